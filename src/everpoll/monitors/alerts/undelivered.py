"""Undelivered alerts: incidents have put them into mailboxes, and the channels have not delivered them yet.

A process with the channel gives a notice up after a day. If no process has the channel, `give_up_unserved` does.
"""

import logging
from collections.abc import Iterable

import msgspec

from everpoll.monitors.alerts.mailbox import KEPT_S, KIND, Mail, Pending, waiting
from everpoll.policy import human
from everpoll.stores.contract import Store, TaskFilter, encode
from everpoll.stores.operations import Revision

logger = logging.getLogger("everpoll.monitors")

WAITS = "alerts are grouped, and a running process must have the channel"

WaitingAlerts = dict[tuple[str, str], str]
"""What each undelivered alert waits for, by its incident and channel."""


async def undelivered(store: Store, channels: Iterable[str], now: float) -> WaitingAlerts:
    """Return the undelivered alerts for these channels."""
    found: WaitingAlerts = {}
    for channel in set(channels):
        row = await store.find(KIND, channel)
        if row is None or row.ended_at is not None:
            continue
        mail = Mail() if row.memory is None else msgspec.convert(row.memory, Mail)
        why = WAITS if mail.error is None else f"{mail.error}; {_next_try(mail, now)}"
        pending = msgspec.convert(row.args, Pending).notices
        found |= {(one.incident, channel): why for one in waiting(mail, pending) if one.kind == "alert"}
    return found


async def give_up_unserved(store: Store, now: float) -> None:
    """Drop notices that are older than KEPT_S: a process with their channel would have dropped them before."""
    page = await store.tasks(TaskFilter(kind=KIND, indexed=True), limit=1_000)
    for row in page.tasks:
        there = row.args.get("notices", ()) if isinstance(row.args, dict) and row.ended_at is None else ()
        left = [one for one in there if one["at"] >= now - KEPT_S]
        if len(left) == len(there):
            continue
        revision = Revision(KIND, row.key or "", encode({**row.args, "notices": left}), expects=encode(row.args))
        if (await store.revise([revision]))[0] is not None:
            text = "channel %r: %d notices are given up: no running process has had this channel for a day"
            logger.error(text, row.key, len(there) - len(left))


def _next_try(mail: Mail, now: float) -> str:
    left_s = 0.0 if mail.retry_at is None else mail.retry_at - now
    return f"the next try is in {human(round(left_s))}" if left_s >= 1 else "it is tried again now"
