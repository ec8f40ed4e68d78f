"""Notices and letters for tests."""

from typing import Any

from everpoll.monitors.alerting import Notice, notice_id
from everpoll.monitors.alerts.letter import Letter, compose

NOON = 1_800_000_000.0


def notice(service: str = "billing", channel: str = "ops", **more: Any) -> Notice:
    kind = more.pop("kind", "alert")
    incident = more.pop("incident", f"{service}:abc:1")
    at = more.pop("at", NOON)
    return Notice(
        id=notice_id(incident, channel, kind, more.get("number", 0)),
        incident=incident,
        channel=channel,
        kind=kind,
        at=at,
        service=service,
        since=more.pop("since", at - 60),
        **more,
    )


def letter(*notices: Notice, letter_id: str = "00ff00ff00ff00ff") -> Letter:
    return compose(letter_id, notices or [notice(error="connection refused")], NOON + 60)
