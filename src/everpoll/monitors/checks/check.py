"""Check: the engine runs it for a service: wake, look, decide, record, settle.

    lease ──▶ wake ──not yet, or paused──▶ settle
                └──▶ look ──▶ compare ──▶ decide ──▶ record ──▶ settle: due again, with the new memory

Promises: one fenced write settles the row with its memory, its next due time and its events. A look that changed
something is in the records before its row is settled, so that the next worker compares with it; other looks are
recorded within a tenth of a second. The row of an incident exists before the service's row names it. Nothing that a
remote does raises an error here.
"""

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec.structs import replace

from everpoll.engine.work import Run, Work
from everpoll.monitors.checks import assignment as assignments
from everpoll.monitors.checks.assignment import CHECK, QUEUE, Assignment
from everpoll.monitors.checks.change_log import log_changes, log_look
from everpoll.monitors.checks.fetching import HostBusy
from everpoll.monitors.checks.known import KnownDependencies
from everpoll.monitors.checks.looking import Looking, Reader, reader_of
from everpoll.monitors.checks.recorder import FLUSH_S, Recorder
from everpoll.monitors.checks.records import heartbeat_record, new_look, pause_mark
from everpoll.monitors.checks.run_or_retry import run_or_retry
from everpoll.monitors.control import Control
from everpoll.monitors.control import read as read_control
from everpoll.monitors.control import write as write_control
from everpoll.monitors.decision import Decision, beat, decide, look_events, register, remove, wake
from everpoll.monitors.dependencies import MAX_KNOWN, NO_CHANGES, Changes, compare, repeated
from everpoll.monitors.events import ServiceEvent
from everpoll.monitors.events import write as write_event
from everpoll.monitors.incident import Incident
from everpoll.monitors.incident_changes import Closing
from everpoll.monitors.look import Look
from everpoll.monitors.pausing import paused, resumed
from everpoll.monitors.report import MAX_WARNINGS
from everpoll.stores.contract import Again, Ended, NewEvent, Settlement, Store

logger = logging.getLogger("everpoll.monitors")

MAX_READERS = 20_000
"""How many compiled definitions are kept."""


class Checks:
    """Looks at the services that this process leases."""

    def __init__(
        self,
        store: Store,
        looking: Looking,
        recorder: Recorder,
        known: KnownDependencies,
        incidents: "IncidentRows",
        notify: Callable[[Sequence[ServiceEvent]], None] | None = None,
    ) -> None:
        self._store = store
        self._looking = looking
        self._recorder = recorder
        self._known = known
        self._incidents = incidents
        self._notify = notify
        self._readers: OrderedDict[int, tuple[str, Assignment, Reader]] = OrderedDict()
        self._rng = random.Random()  # noqa: S311 - jitter needs no secure randomness
        self.work = Work(CHECK, QUEUE, self.run, handles_cancel=True, kind="check")

    def run(self, run: Run) -> Awaitable[Settlement]:
        """Look at one service if it is due. An error never ends its task."""
        return run_or_retry(run, self._run, "service")

    async def _run(self, run: Run) -> Settlement:
        lease = run.lease
        wall = run.clock(asyncio.get_running_loop().time)
        assignment, reader = self._reader(lease.id, lease.args)
        definition, now = assignment.definition, wall()
        control = register(definition, now).control if lease.memory is None else read_control(lease.memory)
        if lease.cancel_requested:
            return await self._removed(run, remove(definition, control, now))
        if assignment.paused is not None:
            return await self._paused(run, control, paused(definition, control, assignment.paused, now), wall, now)
        if control.paused_at is not None:
            decided = resumed(definition, control, assignment.beats, now)
            return await self._settled_without_look(run, control, decided, wall, now)
        if definition.is_heartbeat and _has_beaten(assignment, control):
            counted = replace(control, beats=assignment.beats)
            decided = beat(definition, counted, now, assignment.beat_status)
            return await self._settled_without_look(run, control, decided, wall, now)
        is_forced = _is_asked(assignment, control)
        step = wake(definition, control, now, is_forced=is_forced)
        if not step.looks:
            assert step.decision is not None, "a wake without a look has a decision"
            return await self._settled_without_look(run, control, step.decision, wall, now)
        try:
            look = await self._looking.look(reader, control, wall, is_forced=is_forced)
        except HostBusy as busy:
            return Again(lease.id, lease.sequence, busy.rest_s, refund=True)
        control = replace(control, asks=assignment.asks) if is_forced else control
        return await self._looked(run, reader, control, look, wall)

    async def _looked(
        self, run: Run, reader: Reader, control: Control, look: Look, wall: Callable[[], float]
    ) -> Settlement:
        """Decide what follows from a look, record it, and settle the row."""
        definition = reader.definition
        changes = await self._changes(reader, control, look)
        if changes.left_out:
            look = replace(look, warnings=(*look.warnings[: MAX_WARNINGS - 1], _left_out(changes.left_out)))
        if look.is_unchanged and not control.dependencies:
            look = replace(look, report=None)  # only the errors of failed dependencies need the report
        now = wall()
        decision = decide(definition, control, look, now, changes, self._rng.random())
        if logger.isEnabledFor(logging.DEBUG):
            log_look(logger, definition.name, look, decision.next_at - now)
        if self._notify is not None:
            self._notify((*decision.events, *look_events(definition, look, decision, changes)))
        record = new_look(definition, look, decision, changes)
        if not decision.events and not changes.upserts:
            self._recorder.add(record)
            return _again(run, decision, now)
        await self._recorder.put(record)
        self._known.changed(definition.name, decision.control.edition, changes)
        return await self._settled(run, decision, wall, now)

    async def _changes(self, reader: Reader, control: Control, look: Look) -> Changes:
        if look.report is None or not (look.report.dependencies or control.edition):
            return NO_CHANGES
        name, aliases = reader.definition.name, self._known.current_aliases()
        if aliases is None:
            aliases = await self._known.aliases()
        if look.is_unchanged and reader.aliases is aliases:
            return repeated(name, look.report, look.ended_at)
        known = await self._known.of(name, control.edition)
        changes = compare(name, known, look.report, look.ended_at, aliases)
        # Compare names that were left out again at the next look, so that the warning stays.
        reader.aliases = None if changes.left_out else aliases
        return changes

    async def _settled_without_look(
        self, run: Run, before: Control, decision: Decision, wall: Callable[[], float], now: float
    ) -> Settlement:
        """Settle a decision without a look; record a heartbeat, or a missed one, in the history."""
        definition = self._reader(run.lease.id, run.lease.args)[0].definition
        record = heartbeat_record(definition, before, decision) if definition.is_heartbeat else None
        if self._notify is not None and decision.events:
            self._notify(decision.events)
        if record is not None and decision.events:
            await self._recorder.put(record)
        elif record is not None:
            self._recorder.add(record)
        return await self._settled(run, decision, wall, now)

    async def _paused(
        self, run: Run, before: Control, decision: Decision, wall: Callable[[], float], now: float
    ) -> Settlement:
        """Settle the row of a paused service; the first time, record the beginning of the pause in the history."""
        assignment = self._reader(run.lease.id, run.lease.args)[0]
        if self._notify is not None and decision.events:
            self._notify(decision.events)
        if assignment.paused is not None and before.paused_at is None and before.looked_at is not None:
            await self._recorder.put(pause_mark(assignment.definition.name, assignment.paused, now))
        return await self._settled(run, decision, wall, now)

    async def _settled(self, run: Run, decision: Decision, wall: Callable[[], float], now: float) -> Settlement:
        """Open and close incidents, and settle the row."""
        if decision.events:
            log_changes(decision.events)
        if decision.opened:
            await self._incidents.opened(decision.opened)
        if decision.closed:
            await self._incidents.closed(decision.closed)
        return _again(run, decision, wall() if decision.opened or decision.closed or decision.events else now)

    async def _removed(self, run: Run, decision: Decision) -> Settlement:
        """End the task of a service that was removed, and forget its records."""
        lease = run.lease
        await self._incidents.closed(decision.closed)
        # No look may be written after `forget`, neither here nor in a process that looked before.
        await self._recorder.drop(lease.key or "")
        await asyncio.sleep(2 * FLUSH_S)
        await self._store.health.forget(lease.key or "")
        self._readers.pop(lease.id, None)
        return Ended(lease.id, lease.sequence, "canceled", events=_numbered(decision))

    def _reader(self, task_id: int, args: str) -> tuple[Assignment, Reader]:
        """Return the assignment, and its definition compiled; both are kept while the arguments stay the same."""
        kept = self._readers.get(task_id)
        if kept is not None and kept[0] == args:
            return kept[1], kept[2]
        assignment = assignments.read(args)
        if kept is not None and kept[1].definition == assignment.definition:
            reader = kept[2]
        else:
            reader = reader_of(assignment.definition)
        self._readers[task_id] = (args, assignment, reader)
        if len(self._readers) > MAX_READERS:
            self._readers.popitem(last=False)
        return assignment, reader


class IncidentRows(Protocol):
    """Creates and wakes the rows of incidents; `alerts` implements it."""

    async def opened(self, incidents: Sequence[Incident]) -> None:
        """Create a row for each incident; repeating it creates no second one."""

    async def closed(self, closings: Sequence[Closing]) -> None:
        """Make the rows of these incidents due soon, so that they read from their service that they are over."""


def _again(run: Run, decision: Decision, now: float) -> Settlement:
    """Return the settlement of a row that is due again."""
    lease, delay_s = run.lease, max(0.0, decision.next_at - now)
    events = _numbered(decision) if decision.events else ()
    return Again(lease.id, lease.sequence, delay_s, True, None, write_control(decision.control), events)


def _left_out(names: int) -> str:
    return (
        f"{names:,} new dependencies are left out: {MAX_KNOWN:,} names are known, those that vanished within "
        "90 days included; let each dependency keep its name"
    )


def _numbered(decision: Decision) -> tuple[NewEvent, ...]:
    first = decision.control.seq - len(decision.events) + 1
    return tuple(NewEvent(first + place, write_event(event)) for place, event in enumerate(decision.events))


def _has_beaten(assignment: Assignment, control: Control) -> bool:
    return assignment.beats != control.beats


def _is_asked(assignment: Assignment, control: Control) -> bool:
    return assignment.asks != control.asks
