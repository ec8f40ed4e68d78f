"""Condition text: compiles the small language in which users write conditions for answers.

    status == 200 · status in [200, 204] · latency < 300ms · certificate > 14d · connected == true · ip == "10.0.0.1"
    header.x-version == "2" · json.status == "UP" · json.items[0].n >= 3 · json["odd key"] exists
    len(json.items) > 0 · body contains "ok" · body not matches "*error*"

Promises: a text is compiled once, in linear time, into a frozen condition. An error shows the text, what is wrong and
what to write. Nothing is evaluated as code. There are no regular expressions: `matches` knows only `*`.
"""

import re
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from everpoll.errors import BadInput
from everpoll.policy import seconds, shown

Subject: TypeAlias = Literal["status", "latency", "certificate", "connected", "ip", "header", "json", "body"]
Step: TypeAlias = str | int
MAX_CHARS = 500
"""The longest condition, in characters."""
MAX_VALUES = 100
"""How many values one list may have."""

_ORDERS = ("<", "<=", ">", ">=")
_TEXT_OPERATORS = ("contains", "matches")
_PRESENCES = ("exists", "missing")
_OPERATORS: dict[Subject, tuple[str, ...]] = {
    "status": ("==", "!=", *_ORDERS, "in"),
    "latency": _ORDERS,
    "certificate": _ORDERS,
    "connected": ("==", "!="),
    "ip": ("==", "!=", "in", "matches"),
    "header": ("==", "!=", *_ORDERS, "in", *_TEXT_OPERATORS, *_PRESENCES),
    "json": ("==", "!=", *_ORDERS, "in", *_TEXT_OPERATORS, *_PRESENCES),
    "body": ("==", "!=", *_TEXT_OPERATORS),
}
_OF_LENGTHS = ("==", "!=", *_ORDERS, "in")
_NEGATABLE = ("in", *_TEXT_OPERATORS)
_WITH_LENGTH = ("header", "json", "body")
_WORDS = {"true": True, "false": False, "null": None}
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*")
      |(?P<order>==|!=|<=|>=|<|>)
      |(?P<mark>[\[\](),])
      |(?P<amount>-?[0-9]+(?:\.[0-9]+)?[eE][-+][0-9]+|-?[0-9][0-9A-Za-z.]*)
      |(?P<word>\.?[^\s"\[\](),=!<>.]+))""",
    re.VERBOSE,
)
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


class Condition(Struct, frozen=True, kw_only=True):
    """One compiled condition."""

    text: str
    subject: Subject
    path: tuple[Step, ...] = ()
    """The keys and indexes of `json`, or the name of a header in lower case."""
    is_length: bool = False
    operator: str
    is_negated: bool = False
    value: Any = None
    """A number, a text, a boolean, None or a tuple of these; seconds where times are compared."""


def parse_condition(text: object) -> Condition:
    """Compile one condition; raise `BadInput` if it is not one."""
    if not isinstance(text, str) or not text.strip():
        raise BadInput(f'condition={shown(text)}: not a condition; write one such as "status == 200"')
    if len(text) > MAX_CHARS:
        raise BadInput(f"condition={shown(text)}: longer than {MAX_CHARS} characters")
    try:
        return _Parser(text.strip()).condition()
    except ValueError as wrong:
        raise BadInput(f"condition={shown(text)}: {wrong}") from None


class _Parser:
    """The tokens of one text, read from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._next = 0

    def condition(self) -> Condition:
        subject, path, is_length = self._measured()
        is_negated = self._taken("word", "not")
        operator = self._operator(subject, is_length, is_negated)
        value = None if operator in _PRESENCES else self._operand(subject, operator, is_length)
        if self._next < len(self._tokens):
            raise ValueError(f"unexpected text after the condition: {self._tokens[self._next][1]}")
        return Condition(
            text=self._text,
            subject=subject,
            path=path,
            is_length=is_length,
            operator=operator,
            is_negated=is_negated,
            value=value,
        )

    def _measured(self) -> tuple[Subject, tuple[Step, ...], bool]:
        if self._peek() != ("word", "len"):
            return *self._subject(), False
        self._next += 1
        self._expect("mark", "(")
        subject, path = self._subject()
        self._expect("mark", ")")
        if subject not in _WITH_LENGTH:
            raise ValueError(f"{subject} has no length; only header, json and body have one")
        return subject, path, True

    def _subject(self) -> tuple[Subject, tuple[Step, ...]]:
        kind, word = self._take("a subject")
        if kind != "word" or word not in _OPERATORS:
            raise ValueError(f"{word} is not a subject; write {', '.join(_OPERATORS)} or len(…)")
        subject: Subject = word
        path = tuple(self._steps()) if subject in {"header", "json"} else ()
        if subject == "header":
            if len(path) != 1 or not isinstance(path[0], str):
                raise ValueError("a header needs its name, such as header.x-version")
            path = (path[0].lower(),)
        return subject, path

    def _steps(self) -> list[Step]:
        steps: list[Step] = []
        while True:
            kind, token = self._peek()
            if kind == "word" and token.startswith("."):
                self._next += 1
                steps.append(token[1:])
            elif (kind, token) == ("mark", "["):
                self._next += 1
                steps.append(self._step_in_brackets())
            else:
                return steps

    def _step_in_brackets(self) -> Step:
        kind, token = self._take("an index or a key in quotes")
        self._expect("mark", "]")
        if kind == "text":
            return _unquoted(token)
        if kind == "amount" and token.isdigit() and len(token) <= 9:
            return int(token)
        raise ValueError(f"[{token}] is not a step; write an index such as [0] or a key in quotes")

    def _operator(self, subject: Subject, is_length: bool, is_negated: bool) -> str:
        kind, word = self._take("an operator")
        known = _OF_LENGTHS if is_length else _OPERATORS[subject]
        if kind not in {"order", "word"} or word not in known:
            raise ValueError(f"{word} is not an operator here; write {', '.join(known)}")
        if is_negated and word not in _NEGATABLE:
            raise ValueError(f"not {word} is not an operator; write not before {', '.join(_NEGATABLE)}")
        return word

    def _operand(self, subject: Subject, operator: str, is_length: bool) -> Any:
        value = self._list() if operator == "in" else self._value(subject)
        values = value if isinstance(value, tuple) else (value,)
        for one in values:
            _check_operand(subject, operator, is_length, one)
        return value

    def _list(self) -> tuple[Any, ...]:
        self._expect("mark", "[")
        values = [self._value(None)]
        while self._taken("mark", ","):
            values.append(self._value(None))
        self._expect("mark", "]")
        if len(values) > MAX_VALUES:
            raise ValueError(f"a list has at most {MAX_VALUES} values")
        return tuple(values)

    def _value(self, subject: Subject | None) -> Any:
        kind, token = self._take("a value")
        if kind == "text":
            return _unquoted(token)
        if kind == "amount" and subject in {"latency", "certificate"}:
            return _duration_s(token)
        if kind == "amount" and _NUMBER.fullmatch(token):
            return float(token) if set(token) & set(".eE") else int(token)
        if kind == "word" and token in _WORDS:
            return _WORDS[token]
        raise ValueError(f"{token} is not a value; write a number, a text in quotes, true, false or null")

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._next] if self._next < len(self._tokens) else ("end", "")

    def _take(self, wanted: str) -> tuple[str, str]:
        token = self._peek()
        if token[0] == "end":
            raise ValueError(f"it ends where {wanted} should be")
        self._next += 1
        return token

    def _taken(self, kind: str, token: str) -> bool:
        found = self._peek() == (kind, token)
        self._next += found
        return found

    def _expect(self, kind: str, token: str) -> None:
        if not self._taken(kind, token):
            raise ValueError(f"{token} is missing before {self._peek()[1] or 'its end'}")


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, position = [], 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise ValueError(f"cannot read {text[position:].strip()}")
        kind = str(token.lastgroup)
        tokens.append((kind, token[kind]))
        position = token.end()
    return tokens


def _duration_s(token: str) -> float:
    try:
        return seconds(token)
    except ValueError:
        raise ValueError(f"{token} is not a duration; write one such as 300ms or 14d") from None


def _unquoted(token: str) -> str:
    try:
        return str(msgspec.json.decode(token, type=str))
    except ValueError:
        raise ValueError(f"{token} is not a text; write it as in JSON") from None


def _check_operand(subject: Subject, operator: str, is_length: bool, value: Any) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_length or subject == "status":
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{'a length' if is_length else subject} is compared with whole numbers")
    elif subject == "connected":
        if not isinstance(value, bool):
            raise ValueError("connected is compared with true or false")
    elif operator in _ORDERS and not is_number:
        unit = " with a unit, such as 300ms" if subject in {"latency", "certificate"} else ""
        raise ValueError(f"{operator} needs a number{unit}")
    elif (subject in {"body", "ip"} or operator == "matches") and not isinstance(value, str):
        raise ValueError(f"{subject} {operator} needs a text in quotes")
    elif subject == "header" and operator == "contains" and not isinstance(value, str):
        raise ValueError("header contains needs a text in quotes")
