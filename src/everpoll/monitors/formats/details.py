"""details: `status` and `details{name: {status, error}}` in small letters: alexliesenfeld/health and NestJS Terminus.

Terminus repeats its parts in `info` (those that are up) and `error` (those that are not); `details` has all of them.
"""

from typing import Any

from everpoll.monitors.bounds import name, quoted
from everpoll.monitors.formats.failure import failure_of
from everpoll.monitors.gathering import Gathering, Unreadable
from everpoll.monitors.report import Dependency, Status

NAME = "details"
_NOT_DETAILS = {"status", "error", "message", "timestamp"}


def recognizes(body: dict[str, Any]) -> bool:
    """Return True if the body has a status, and at least one of its details has a status, too."""
    if type(body.get("status")) is not str:
        return False
    details = body.get("details")
    if type(details) is not dict:
        return False
    return any(type(part) is dict and "status" in part for part in details.values()) or (
        # Terminus without indicators.
        not details and type(body.get("info")) is dict
    )


def read(body: Any, into: Gathering) -> Status | None:
    """Read every detail, and the service's own word."""
    if not isinstance(body, dict) or not isinstance(body.get("status"), str):
        raise Unreadable("the body is not an object with a status")
    for key, part in _parts(body).items():
        if not into.more():
            break
        label = name(key)
        if not label or type(part) is not dict:
            into.warn(f"detail {quoted(key)}: " + ("not an object" if label else "has no name"))
            continue
        into.add(_read_part(label, part, into))
    return into.own_word(body["status"])


def _parts(body: dict[str, Any]) -> dict[str, Any]:
    details = body.get("details")
    if type(details) is dict:
        return details
    inner = (body.get("info"), body.get("error"))
    return {key: part for parts in inner if type(parts) is dict for key, part in parts.items()}


def _read_part(label: str, part: dict[str, Any], into: Gathering) -> Dependency:
    status = into.word_of_part(label, part.get("status"))
    error, error_message = None, None
    if status is not Status.UP:
        error, error_message = failure_of(label, (part.get("error"), part.get("message")), into)
    details = {key: value for key, value in part.items() if key not in _NOT_DETAILS}
    return Dependency(
        name=label,
        status=status,
        check_details=into.json_object(label, "details", details) or None,
        error=error,
        error_message=error_message,
    )
