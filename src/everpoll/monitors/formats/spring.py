"""spring: Spring Boot's actuator, 1 to 3: `status`, and parts in `components`, in `details`, or beside `status`.

Parts may be nested. Only leaves are dependencies, named by their path: `broker/us1`. The status of a part with parts of
its own is derived from these, so it would count them twice.
"""

from collections.abc import Iterator
from typing import Any

from everpoll.monitors.bounds import name, optional_text, quoted
from everpoll.monitors.formats.failure import failure_of
from everpoll.monitors.gathering import Gathering, Unreadable
from everpoll.monitors.report import Dependency, Status

NAME = "spring"
MAX_LEVELS = 10
"""How many levels of nested parts are read."""
WORDS = ("UP", "DOWN", "OUT_OF_SERVICE", "UNKNOWN")
_NOT_DETAILS = {"status", "components", "details", "description"}
_NOT_PARTS = {"details", "error"}


def recognizes(body: dict[str, Any]) -> bool:
    """Tell whether the body has parts where Spring Boot writes them."""
    status = body.get("status")
    if type(status) is not str:
        return False
    return type(body.get("components")) is dict or (status.isupper() and _parts(body) is not None)


def read(body: Any, into: Gathering) -> Status | None:
    """Read every leaf, and the service's own word."""
    if not isinstance(body, dict):
        raise Unreadable("the body is not an object with a status")
    parts = _parts(body)
    if parts is None and not isinstance(body.get("status"), str) and not isinstance(body.get("components"), dict):
        raise Unreadable("the body has neither a status nor components")
    for label, part in _leaves("", parts or {}, MAX_LEVELS, into):
        into.add(_read_leaf(label, part, into))
    return into.own_word(body.get("status"))


def _parts(value: dict[str, Any]) -> dict[str, Any] | None:
    """Return the parts of the body or of a part; None for a leaf."""
    components = value.get("components")
    if type(components) is dict and components:
        return components
    details = value.get("details")
    return (_parts_among(details) if type(details) is dict else None) or _parts_among(value)


def _parts_among(members: dict[str, Any]) -> dict[str, Any] | None:
    return {
        key: part
        for key, part in members.items()
        if type(part) is dict and type(part.get("status")) is str and key not in _NOT_PARTS
    } or None


def _leaves(path: str, parts: dict[str, Any], levels: int, into: Gathering) -> Iterator[tuple[str, Any]]:
    for key, part in parts.items():
        if not into.more():
            return
        label = name(f"{path}{key}")
        inner = _parts(part) if type(part) is dict and levels > 1 else None
        if inner is not None:
            yield from _leaves(f"{label}/", inner, levels - 1, into)
        elif not key.strip():
            into.warn("a part has no name")
        elif type(part) is dict or type(part) is str:
            yield label, part
        else:
            into.warn(f"dependency {quoted(label)}: not an object")


def _read_leaf(label: str, part: dict[str, Any] | str, into: Gathering) -> Dependency:
    if isinstance(part, str):
        return Dependency(name=label, status=into.word_of_part(label, part))
    status = into.word_of_part(label, part.get("status"))
    details = part.get("details")
    if type(details) is not dict:
        details = {key: value for key, value in part.items() if key not in _NOT_DETAILS}
    error, error_message = None, None
    if status is not Status.UP:
        candidates = (details.get("error"), part.get("error"), details.get("message"), part.get("message"))
        error, error_message = failure_of(label, candidates, into)
    return Dependency(
        name=label,
        status=status,
        description=optional_text(part.get("description")),
        check_details=into.json_object(label, "details", details) or None,
        error=error,
        error_message=error_message,
    )
