"""aspnet: ASP.NET Core health checks: `status` and `entries{name: {…}}`, or the default writer's word as text."""

import re
from typing import Any

from everpoll.monitors.bounds import latency_ms, name, optional_text, quoted
from everpoll.monitors.formats.failure import failure_of
from everpoll.monitors.gathering import Gathering, Unreadable
from everpoll.monitors.report import Dependency, Status

NAME = "aspnet"
WORDS = ("Healthy", "Degraded", "Unhealthy")
_LONGEST_WORD_BYTES = 32
# As .NET writes a TimeSpan: [d.]hh:mm:ss[.fffffff]
_DURATION = re.compile(r"(?:([0-9]{1,8})\.)?([0-9]{1,2}):([0-9]{2}):([0-9]{2})(\.[0-9]{1,9})?")


def recognizes(body: dict[str, Any]) -> bool:
    """Tell whether the body has entries."""
    status = body.get("status")
    if type(status) is not str:
        return False
    return type(body.get("entries")) is dict or (type(body.get("results")) is dict and status in WORDS)


def recognizes_text(data: bytes) -> bool:
    """Tell whether the whole body is one of the three words."""
    return len(data) <= _LONGEST_WORD_BYTES and data.strip().lower() in {b"healthy", b"degraded", b"unhealthy"}


def read(body: Any, into: Gathering) -> Status | None:
    """Read every entry, and the service's own word."""
    if isinstance(body, str):
        if not recognizes_text(body[: _LONGEST_WORD_BYTES + 1].encode("utf-8", "replace")):
            raise Unreadable("the body is neither an object with a status nor Healthy, Degraded or Unhealthy")
        return into.own_word(body)
    if not isinstance(body, dict) or not isinstance(body.get("status"), str):
        raise Unreadable("the body is not an object with a status")
    entries = body.get("entries")
    if type(entries) is not dict:
        # The writer in Microsoft's documentation calls them results.
        entries = body.get("results")
    for key, entry in entries.items() if type(entries) is dict else ():
        if not into.more():
            break
        label = name(key)
        if not label or type(entry) is not dict:
            into.warn(f"entry {quoted(key)}: " + ("not an object" if label else "has no name"))
            continue
        into.add(_read_entry(label, entry, into))
    return into.own_word(body["status"])


def _read_entry(label: str, entry: dict[str, Any], into: Gathering) -> Dependency:
    status = into.word_of_part(label, entry.get("status"))
    error, error_message = None, None
    if status is not Status.UP:
        error, error_message = failure_of(label, (entry.get("exception"), entry.get("description")), into)
    return Dependency(
        name=label,
        status=status,
        latency_ms=_milliseconds(entry.get("duration")),
        description=optional_text(entry.get("description")),
        check_details=into.json_object(label, "data", entry.get("data")) or None,
        error=error,
        error_message=error_message,
    )


def _milliseconds(duration: object) -> float | None:
    found = _DURATION.fullmatch(duration) if isinstance(duration, str) else None
    if found is None:
        return None
    days, hours, minutes, seconds, fraction = found.groups()
    whole_s = ((int(days or 0) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    return latency_ms(round((whole_s + float(fraction or 0)) * 1000, 4))
