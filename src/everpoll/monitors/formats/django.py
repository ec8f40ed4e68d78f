"""django: django-health-check: a flat object of labels and texts, such as `{"Database": "working"}`.

A body is recognized only if every text begins as the package writes it; otherwise any flat object, such as a page of
settings, would count as an outage. A warning of one check is a degraded dependency, although its HTTP status is 500.
"""

from typing import Any

from everpoll.monitors.bounds import name, optional_text, quoted
from everpoll.monitors.gathering import Gathering, Unreadable
from everpoll.monitors.report import Dependency, Status, worse

NAME = "django"
_BEGINNINGS = {
    "warning": Status.DEGRADED,
    "unavailable": Status.DOWN,
    "unknown error": Status.DOWN,
    "unexpected result": Status.DOWN,
}
_LONGEST_BEGINNING = max(map(len, _BEGINNINGS)) + 1
_MAX_LINES = 100


def recognizes(body: dict[str, Any]) -> bool:
    """Tell whether every value is a text as the package writes it."""
    return bool(body) and all(_status(text) is not None for text in body.values())


def read(body: Any, into: Gathering) -> Status:
    """Read every label."""
    if not isinstance(body, dict):
        raise Unreadable("the body is not an object of labels and texts")
    for key, text in body.items():
        if not into.more():
            break
        label, status = name(key), _status(text)
        if not label:
            into.warn("a label is empty")
        elif status is None:
            into.warn(f"dependency {quoted(label)}: {quoted(text)} is not a known text")
        else:
            said = None if status is Status.UP else optional_text(text)
            into.add(Dependency(name=label, status=status, error_message=said))
    return into.from_parts()


def _status(text: object) -> Status | None:
    """Return what a text means; it has one line for each error of the check."""
    if type(text) is not str:
        return None
    if text in {"working", "OK"} or (len(text) <= len("working") and text.lower() in {"working", "ok"}):
        return Status.UP
    first, *others = text.split("\n", _MAX_LINES)
    status = _of_line(first)
    for line in others if status is not None else ():
        status = worse(status or Status.UP, _of_line(line) or Status.UP)
    return status


def _of_line(line: str) -> Status | None:
    beginning, colon, _ = line[:_LONGEST_BEGINNING].partition(":")
    return _BEGINNINGS.get(beginning.strip().lower()) if colon else None
