"""Nudges, a toy front: sends a text again and again until it was sent so many times. Knows the contracts only."""

from collections.abc import Callable
from typing import Any

import msgspec

from everpoll.engine.work import Run, Work, WorkRegistry
from everpoll.stores.contract import Again, Ended, NewEvent, NewTask, Settlement, Store, encode

KIND = "nudge"


class Nudge(msgspec.Struct):
    """What a caller wants."""

    text: str
    times: int
    every_s: float


class Nudges:
    """Of one app; `send` gets each text, and a last one where a nudge is canceled."""

    def __init__(self, works: WorkRegistry, send: Callable[[str], Any]) -> None:
        self._send = send
        works.add(Work("nudge", "nudges", self._run, timeout_s=5.0, handles_cancel=True, kind=KIND))

    async def begin(self, store: Store, to: str, nudge: Nudge) -> int:
        """Enqueue a nudge, once for each recipient; return the id of its task."""
        task = NewTask(
            name="nudge",
            kind=KIND,
            queue="nudges",
            key=to,
            args=encode(nudge),
            memory="0",
            timeout_s=5.0,
            cancels_itself=True,
            indexed=True,
            once=True,
        )
        return (await store.enqueue([task]))[0].id

    async def _run(self, run: Run) -> Settlement:
        lease = run.lease
        nudge = msgspec.json.decode(lease.args, type=Nudge)
        sent = int(lease.memory or 0)
        if lease.cancel_requested:
            self._send(f"never mind: {nudge.text}")
            note = encode({"what": "canceled", "why": f"canceled after it was sent {sent} times"})
            return Ended(lease.id, lease.sequence, "canceled", note=note, events=(NewEvent(sent + 1, note),))
        self._send(nudge.text)
        sent += 1
        events = (NewEvent(sent, encode({"phase": "sent", "times": sent})),)
        if sent >= nudge.times:
            return Ended(lease.id, lease.sequence, "done", encode({"sent": sent}), events=events)
        return Again(lease.id, lease.sequence, nudge.every_s, refund=True, memory=str(sent), events=events)
