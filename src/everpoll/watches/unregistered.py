"""Runs of watches that are not registered in this worker: two releases side by side, or two apps on one queue.

Promises: such a run becomes due again with growing delays, so that a worker with its watch can lease it. It is never
ended, canceled or restarted because code is missing. The third time in a row it is parked as `needs_code`, which pauses
its budget.
"""

import logging

import msgspec

from everpoll.engine.work import Run
from everpoll.policy import Backoff
from everpoll.stores.contract import Again, NewEvent, Settlement
from everpoll.stores.contract import encode as encode_json
from everpoll.watches.limits import WHY_LIMIT, short_text
from everpoll.watches.memory import Decision, decode, encode

logger = logging.getLogger("everpoll.watches")

WAIT = Backoff("1s", factor=2, cap="5m", jitter=0)
PARKED_AFTER = 3


def settle_unregistered(run: Run, known: list[str], now: float) -> Settlement:
    """Settle a leased run of an unregistered watch: due again later, parked after some tries."""
    lease = run.lease
    watches = ", ".join(known[:20]) or "none"
    why = short_text(f"no watch called {lease.name!r} is registered in this worker; registered: {watches}", WHY_LIMIT)
    try:
        memory = decode(lease.memory or "{}")
    except msgspec.DecodeError:
        return Again(lease.id, lease.sequence, WAIT.cap_s, refund=True)
    last = memory.log[-1] if memory.log else None
    times = 1 + (last.times if last is not None and last.rule == "needs_code" else 0)
    delay_s = WAIT.delay(times)
    logger.log(logging.ERROR if times == 1 else logging.WARNING, "%s: %s", lease.label, why)
    memory.note(Decision(now, "needs_code", why, delay_s, memory.status))
    events: tuple[NewEvent, ...] = ()
    if times >= PARKED_AFTER and memory.parked is None:
        memory.parked = why
        memory.pause(now)
        memory.seq += 1
        events = (NewEvent(memory.seq, encode_json({"phase": "needs_code", "reason": why, "looks": memory.looks})),)
    return Again(lease.id, lease.sequence, delay_s, refund=True, memory=encode(memory), events=events)
