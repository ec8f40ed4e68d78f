"""Gatus conditions: translates `[STATUS] == 200` and the like into conditions of everpoll.

Promises: the result is a condition that everpoll compiles; anything else raises ValueError with the reason.
"""

import json
import re

from everpoll.monitors.condition_text import parse_condition
from everpoll.monitors.importing.go_durations import duration_text, go_seconds

MAX_CHARS = 500
_OPERATORS = (" == ", " != ", " <= ", " >= ", " > ", " < ")
_TURNED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_WRAPPED = re.compile(r"(len|has)\((.*)\)", re.DOTALL)
_FUNCTION = re.compile(r"(pat|any)\((.*)\)", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]{1,9})\]")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?")
_SUBJECTS = {
    "[STATUS]": "status",
    "[RESPONSE_TIME]": "latency",
    "[CERTIFICATE_EXPIRATION]": "certificate",
    "[CONNECTED]": "connected",
    "[IP]": "ip",
}
_DURATIONS = {"latency", "certificate"}


def translated(condition: object) -> str:
    """Return the condition of everpoll that means the same; raise ValueError if there is none."""
    if not isinstance(condition, str) or len(condition) > MAX_CHARS:
        raise ValueError("it is not a text of at most 500 characters")
    left, operator, right = _split(condition)
    if not _is_about_the_answer(left):
        left, operator, right = right, _TURNED[operator], left
    if not _is_about_the_answer(left) or _is_about_the_answer(right):
        raise ValueError("it does not compare a part of the answer with a value")
    text = _compared(left, operator, right)
    parse_condition(text)
    return text


def _split(condition: str) -> tuple[str, str, str]:
    for operator in _OPERATORS:
        if operator in condition:
            left, right = condition.split(operator, 1)
            return left.strip(), operator.strip(), right.strip()
    raise ValueError("it has no operator")


def _is_about_the_answer(text: str) -> bool:
    wrapped = _WRAPPED.fullmatch(text)
    return (wrapped[2] if wrapped else text).lstrip().startswith("[") or text.startswith("age(")


def _compared(left: str, operator: str, right: str) -> str:
    wrapped = _WRAPPED.fullmatch(left)
    function, subject = (wrapped[1], _subject(wrapped[2].strip())) if wrapped else ("", _subject(left))
    if function == "has":
        return _presence(subject, operator, right)
    if function == "len":
        return f"len({'json' if subject == 'body' else subject}) {operator} {right}"
    called = _FUNCTION.fullmatch(right)
    if called:
        if operator not in {"==", "!="}:
            raise ValueError(f"{called[1]}() is compared with == or != only")
        return _called(subject, "not " if operator == "!=" else "", called[1], called[2])
    if subject in _DURATIONS:
        return f"{subject} {operator} {_duration(right)}"
    return f"{subject} {operator} {_literal(subject, right)}"


def _subject(text: str) -> str:
    upper = text.upper()
    if upper in _SUBJECTS:
        return _SUBJECTS[upper]
    if upper == "[BODY]":
        return "body"
    if upper.startswith(("[BODY].", "[BODY][")):
        return "json" + _steps(text[len("[BODY]") :])
    if upper.startswith("[HEADER]."):
        return f"header[{json.dumps(text[len('[HEADER].') :].lower())}]"
    raise ValueError(f"everpoll has no counterpart of {text[:60]}")


def _steps(path: str) -> str:
    steps, position = "", 0
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            raise ValueError(f"the path {path[:60]} cannot be followed")
        key, index = step.groups()
        if index is not None:
            steps += f"[{index}]"
        else:
            steps += f".{key}" if _PLAIN_KEY.fullmatch(key) else f"[{_quoted(key)}]"
        position = step.end()
    return steps


def _presence(subject: str, operator: str, right: str) -> str:
    if right not in {"true", "false"} or operator not in {"==", "!="}:
        raise ValueError("has() is compared with true or false only")
    is_there = (right == "true") == (operator == "==")
    if subject == "body":
        return 'body != ""' if is_there else 'body == ""'
    return f"{subject} {'exists' if is_there else 'missing'}"


def _called(subject: str, negation: str, function: str, arguments: str) -> str:
    if function == "any":
        values = [_literal(subject, value.strip()) for value in arguments.split(",")]
        if subject == "body":
            raise ValueError("the whole body is compared with one text at a time")
        return f"{subject} {negation}in [{', '.join(values)}]"
    if set(arguments) & set("?["):
        raise ValueError("in patterns, everpoll knows only *")
    return f"{subject} {negation}matches {_quoted(arguments)}"


def _duration(text: str) -> str:
    """Return a duration in the words of everpoll; a plain number is milliseconds."""
    seconds = float(text) / 1000 if _NUMBER.fullmatch(text) else go_seconds(text)
    return duration_text(seconds)


def _literal(subject: str, text: str) -> str:
    if subject in {"body", "ip"}:
        return _quoted(text)
    if _NUMBER.fullmatch(text) or text in {"true", "false", "null"}:
        return text
    return _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text.strip('"'), ensure_ascii=False)
