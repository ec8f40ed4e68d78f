"""Undelivered: alerts that incidents have handed over, and that their channels have not delivered yet."""

from collections.abc import Iterable

import msgspec

from everpoll.monitors.alerts.mailbox import KIND, Mail, Pending, waiting
from everpoll.policy import human
from everpoll.stores.contract import Store

WAITS = "alerts are grouped, and a running process must have the channel"

Undelivered = dict[tuple[str, str], str]
"""Incident and channel of each alert that waits, and what it waits for."""


async def undelivered(store: Store, channels: Iterable[str], now: float) -> Undelivered:
    """Return the alerts that wait for these channels."""
    found: Undelivered = {}
    for channel in set(channels):
        row = await store.find(KIND, channel)
        if row is None or row.ended_at is not None:
            continue
        mail = Mail() if row.memory is None else msgspec.convert(row.memory, Mail)
        why = WAITS if mail.error is None else f"{mail.error}; {_next_try(mail, now)}"
        pending = msgspec.convert(row.args, Pending).notices
        found |= {(one.incident, channel): why for one in waiting(mail, pending) if one.kind == "alert"}
    return found


def _next_try(mail: Mail, now: float) -> str:
    left_s = 0.0 if mail.retry_at is None else mail.retry_at - now
    return f"the next try is in {human(round(left_s))}" if left_s >= 1 else "it is tried again now"
