"""Conditions: checks an answer against the user's conditions; each failed condition becomes a sentence.

Promises: pure. A condition never raises, whatever the answer is, and takes time linear in the size of the body.
A missing value fails every comparison except `!=` and those with `not`. A body that is not JSON fails every `json`
condition.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from everpoll.monitors import body as bodies
from everpoll.monitors.body import MAX_VALUES
from everpoll.monitors.bounds import quoted
from everpoll.monitors.condition_text import Condition, Step, parse_condition
from everpoll.monitors.gathering import Unreadable
from everpoll.policy import human

__all__ = ["Condition", "Facts", "failures", "parse_condition"]


class Facts(Struct, frozen=True, kw_only=True):
    """The values of an answer that conditions can compare; None for values that it does not have."""

    status: int | None = None
    latency_ms: float | None = None
    headers: Mapping[str, str] = {}
    """The names in lower case."""
    body: bytes | str = b""
    certificate_s: float | None = None
    """Seconds until the certificate expires; negative if it has expired."""
    connected: bool = True
    ip: str | None = None


class _Missing(Exception):
    """There is no value to compare; the text says why. `is_certain`: the answer was read, and has no such value."""

    def __init__(self, text: str, *, is_certain: bool = False) -> None:
        super().__init__(text)
        self.is_certain = is_certain


def failures(conditions: Iterable[Condition], facts: Facts) -> tuple[str, ...]:
    """Return a sentence for each condition that does not hold, with the value that was found."""
    answer = _Answer(facts)
    failed = []
    for condition in conditions:
        problem = _problem(condition, answer)
        if problem is not None:
            failed.append(f"{condition.text}: {problem}")
    return tuple(failed)


class _Answer:
    """The facts of one answer; the body is decoded once for all conditions."""

    __slots__ = ("_json", "_text", "_unreadable", "facts")

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._json: Any = _UNREAD
        self._unreadable: str | None = None
        self._text: str | None = None

    def value(self, condition: Condition) -> Any:
        facts = self.facts
        match condition.subject:
            case "status":
                return _known(facts.status, "there was no answer")
            case "latency":
                return _known(facts.latency_ms, "there was no answer") / 1000
            case "certificate":
                return _known(facts.certificate_s, "there is no certificate")
            case "connected":
                return facts.connected
            case "ip":
                return _known(facts.ip, "there is no address")
            case "header":
                name = condition.path[0]
                if name not in facts.headers:
                    raise _Missing("there is no such header", is_certain=True)
                return facts.headers[str(name)]
            case "body":
                return self._body()
            case "json":
                return _at(self._decoded(), condition.path)

    def _utf8(self) -> bytes:
        media = bodies.media_type(self.facts.headers.get("content-type"))
        return bodies.as_utf8(bodies.as_bytes(self.facts.body), media, _ignored)

    def _body(self) -> str:
        if self._text is None:
            try:
                self._text = bodies.as_text(self._utf8(), _ignored)
            except Unreadable as reason:
                raise _Missing(str(reason)) from None
        return self._text

    def _decoded(self) -> Any:
        if self._json is _UNREAD:
            try:
                self._json = bodies.as_json(self._utf8(), _ignored)
            except Unreadable as reason:
                self._json, self._unreadable = None, str(reason)
        if self._unreadable is not None:
            raise _Missing(self._unreadable)
        return self._json


_UNREAD = object()


def _ignored(_warning: str) -> None:
    pass


def _known(value: Any, otherwise: str) -> Any:
    if value is None:
        raise _Missing(otherwise)
    return value


def _at(value: Any, path: tuple[Step, ...]) -> Any:
    for step in path:
        if isinstance(value, dict) and str(step) in value:
            value = value[str(step)]
        elif isinstance(value, list) and (index := _index(step)) < len(value):
            value = value[index]
        else:
            raise _Missing("there is no such value", is_certain=True)
    return value


def _index(step: Step) -> int:
    """Return the list index of a step; `items.0`, as a mapping's path writes it, is one, too."""
    if isinstance(step, int):
        return step
    return int(step) if step.isascii() and step.isdigit() and len(step) <= 9 else MAX_VALUES


def _problem(condition: Condition, answer: _Answer) -> str | None:
    """Return why a condition does not hold; None if it holds."""
    try:
        value = answer.value(condition)
        if condition.is_length:
            value = _length(value)
    except _Missing as missing:
        holds_without = condition.operator in {"!=", "missing"} or condition.is_negated
        return None if missing.is_certain and holds_without else str(missing)
    if condition.operator == "exists":
        return None
    holds = condition.operator != "missing" and _HOLDS[condition.operator](value, condition.value)
    if holds != condition.is_negated:
        return None
    return f"it is {_shown(condition, value)}"


def _length(value: Any) -> int:
    if not isinstance(value, str | list | dict):
        raise _Missing(f"{quoted(value)} has no length")
    return len(value)


def _shown(condition: Condition, value: Any) -> str:
    return human(value) if condition.subject in {"latency", "certificate"} else quoted(value)


def _is_equal(value: Any, wanted: Any) -> bool:
    if _is_number(wanted):
        number = _number(value)
        return number is not None and number == wanted
    return type(value) is type(wanted) and bool(value == wanted)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any) -> float | int | None:
    """Return a number; a short text is converted, because headers and many bodies write numbers as texts."""
    if _is_number(value):
        return value  # type: ignore[no-any-return]
    if not isinstance(value, str) or len(value) > 40 or "_" in value:
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _ordered(compare: Callable[[float, float], bool]) -> Callable[[Any, Any], bool]:
    def holds(value: Any, wanted: Any) -> bool:
        number = _number(value)
        return number is not None and compare(number, wanted)

    return holds


def _contains(value: Any, wanted: Any) -> bool:
    if isinstance(value, str):
        return isinstance(wanted, str) and wanted in value
    if isinstance(value, list):
        return any(_is_equal(one, wanted) for one in value)
    return isinstance(value, dict) and isinstance(wanted, str) and wanted in value


def _matches(value: Any, pattern: str) -> bool:
    """Compare a text with a pattern in which `*` stands for any characters; one search for each part in between."""
    if not isinstance(value, str):
        return False
    first, *parts = pattern.split("*")
    if not parts:
        return value == first
    *middle, last = parts
    if not value.startswith(first) or not value.endswith(last) or len(value) < len(first) + len(last):
        return False
    position, end = len(first), len(value) - len(last)
    for part in middle:
        position = value.find(part, position, end)
        if position < 0:
            return False
        position += len(part)
    return True


_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "==": _is_equal,
    "!=": lambda value, wanted: not _is_equal(value, wanted),
    "<": _ordered(lambda value, wanted: value < wanted),
    "<=": _ordered(lambda value, wanted: value <= wanted),
    ">": _ordered(lambda value, wanted: value > wanted),
    ">=": _ordered(lambda value, wanted: value >= wanted),
    "in": lambda value, wanted: any(_is_equal(value, one) for one in wanted),
    "contains": _contains,
    "matches": _matches,
}
