"""status: an object with a `status` word, whose other fields no format recognizes: `{"status": "ok"}`."""

from typing import Any

from everpoll.monitors.gathering import Gathering, Unreadable
from everpoll.monitors.report import Status
from everpoll.monitors.words import meaning

NAME = "status"


def recognizes(body: dict[str, Any]) -> bool:
    """Tell whether the body has a status that is a known word."""
    return meaning(body.get("status")) is not None


def read(body: Any, into: Gathering) -> Status | None:
    """Return what the word says."""
    if not isinstance(body, dict) or not isinstance(body.get("status"), str):
        raise Unreadable("the body is not an object with a status word")
    return into.own_word(body["status"])
