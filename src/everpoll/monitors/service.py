"""Service: a handle on one service, to read its state and history, and to change it."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec

from everpoll.engine.actors import action, checked_actor
from everpoll.errors import BadInput, WrongState
from everpoll.monitors.beat_tokens import beat_token
from everpoll.monitors.checks.assignment import Assignment
from everpoll.monitors.control import Control, are_reports_stale
from everpoll.monitors.events import AnyEvent
from everpoll.monitors.info import ServiceInfo, service_info
from everpoll.monitors.last_look import last_ahead
from everpoll.monitors.pause import ServicePause, pause_text
from everpoll.monitors.report import Status
from everpoll.policy import Duration, human, seconds
from everpoll.policy.storable_texts import ERROR_LIMIT as REASON_LIMIT
from everpoll.policy.storable_texts import storable
from everpoll.policy.uptime import Uptime, uptime_of
from everpoll.stores.contract import encode
from everpoll.stores.health import DependencyInfo, ErrorEntry, LatencyPoint, Look

if TYPE_CHECKING:
    from everpoll.monitors.services import Services

CHECK_S = 15.0
"""`check()` raises `TimeoutError` after the service's timeout and this much more."""
POLL_S = 0.05
EVENTS_POLL_S = 0.5


class Service:
    """One service, by its name. Every call reads or changes the store."""

    def __init__(self, services: "Services", name: str) -> None:
        self._services = services
        self.name = name

    def __repr__(self) -> str:
        return f"<Service {self.name!r}>"

    async def info(self) -> ServiceInfo:
        """Return the state of the service, and when the next look is due."""
        row = await self._services.row(self.name)
        return service_info(row, self._services.wall())

    async def dependencies(self) -> list[DependencyInfo]:
        """Return the dependencies that the service reports now, by name."""
        row = await self._services.row(self.name)
        assignment, control = msgspec.convert(row.args, Assignment), _control(row.memory)
        found = await (await self._services.store()).health.dependencies(self.name)
        is_stale = are_reports_stale(assignment.definition, control, self._services.wall())
        return [shown_dependency(one, is_stale) for one in found if not one.vanished]

    async def history(self, limit: int = 1000) -> list[Look]:
        """Return the last looks, newest first."""
        health = (await self._services.store()).health
        return await health.looks(self.name, 0.0, self._services.wall() + 1.0, limit)

    async def errors(self, dependency: str, limit: int = 100) -> list[ErrorEntry]:
        """Return the error history of a dependency, newest first; an entry without error is its recovery."""
        return await (await self._services.store()).health.errors(self.name, dependency, limit)

    async def latencies(self, dependency: str, limit: int = 1000) -> list[LatencyPoint]:
        """Return the latencies that the service reported of a dependency, newest first."""
        health = (await self._services.store()).health
        return await health.latencies(self.name, dependency, 0.0, self._services.wall() + 1.0, limit)

    async def uptime(self, span: Duration = "30d") -> Uptime:
        """Return the share of the time in which the service was up or degraded, and how much of it is known."""
        span_s = seconds(span, name="span", positive=True)
        now = self._services.wall()
        health = (await self._services.store()).health
        ahead = await last_ahead(health, self.name, now)
        return uptime_of(await health.summary(self.name, now - span_s, now), round(span_s * 1000), ahead)

    async def check(self, *, by: str = "") -> ServiceInfo:
        """Look at the service now, even if its breaker is open, and return its state after the look.

        `by` names the actor for the log, as in the calls below. Raises `WrongState` if the service is paused, and
        `TimeoutError` if no worker looks at it in time.
        """
        asked = await self._services.change(self.name, self._asked_once_more, action("check", by))
        timeout_s = asked.definition.timeout_s + CHECK_S
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    row = await self._services.row(self.name)
                    if _control(row.memory).asks >= asked.asks:
                        return service_info(row, self._services.wall())
                    self._refuse_paused(msgspec.convert(row.args, Assignment))
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise TimeoutError(
                f"service {self.name!r}: no worker looked at it within {human(timeout_s)}; is `everpoll run` running?"
            ) from None

    def _asked_once_more(self, assignment: Assignment) -> Assignment:
        if assignment.definition.is_heartbeat:
            raise BadInput(f"service {self.name!r}: is a heartbeat, and cannot be asked: it calls everpoll")
        self._refuse_paused(assignment)
        return msgspec.structs.replace(assignment, asks=assignment.asks + 1)

    def _refuse_paused(self, assignment: Assignment) -> None:
        if assignment.paused is not None:
            raise WrongState(f"service {self.name!r}: is {pause_text(assignment.paused)}; resume it to look at it")

    async def beat(self, status: str = "up") -> None:
        """Record a heartbeat. The target of the service must be "beat:"."""
        try:
            said = Status(status)
        except ValueError:
            raise BadInput(f"service {self.name!r}: status={status!r}: write up, degraded or down") from None
        row = await self._services.row(self.name)
        if not msgspec.convert(row.args, Assignment).definition.is_heartbeat:
            raise BadInput(
                f'service {self.name!r}: is looked at; only a service with the target "beat:" takes heartbeats'
            )
        await self._services.change(
            self.name, lambda one: msgspec.structs.replace(one, beats=one.beats + 1, beat_status=said)
        )

    async def beat_token(self) -> str | None:
        """Return the token for heartbeats over HTTP, `POST /api/beat/TOKEN`; None if the service takes no heartbeats.

        If the service is registered without a token, everpoll makes one and keeps it. Any caller that has the token can
        send heartbeats.
        """
        row = await self._services.row(self.name)
        return beat_token(msgspec.convert(row.args, Assignment).definition)

    async def mute(self, span: Duration, reason: str = "", *, by: str = "") -> None:
        """Send no alerts about this service for that long; incidents are still recorded."""
        span_s, kept = seconds(span, name="span", positive=True), storable(reason, REASON_LIMIT)
        note = action("mute", by, f"for {human(span_s)}" + (f": {kept}" if kept else ""))
        until = self._services.wall() + span_s
        await self._services.change(self.name, lambda one: msgspec.structs.replace(one, muted_until=until), note)

    async def unmute(self, *, by: str = "") -> None:
        """Send alerts again."""
        note = action("unmute", by)
        await self._services.change(self.name, lambda one: msgspec.structs.replace(one, muted_until=None), note)

    async def pause(self, reason: str = "", *, by: str = "") -> None:
        """Let no worker of the fleet look at the service until `resume()`; `by` names the actor for the log.

        Open incidents are closed, heartbeats do not count, and the time of the pause is neither uptime nor downtime. A
        pause survives restarts and changes of the service. Pausing a paused service replaces the reason.
        """
        kept, actor = storable(reason, REASON_LIMIT), checked_actor(by)
        now = self._services.wall()

        def edit(one: Assignment) -> Assignment:
            at = now if one.paused is None else one.paused.at
            return msgspec.structs.replace(one, paused=ServicePause(at, kept, actor))

        await self._services.change(self.name, edit, action("pause", actor, kept))

    async def resume(self, *, by: str = "") -> bool:
        """Let workers look at the service again, at once; return False if it was not paused."""
        was_paused = False

        def edit(one: Assignment) -> Assignment:
            nonlocal was_paused
            was_paused = one.paused is not None
            return msgspec.structs.replace(one, paused=None)

        await self._services.change(self.name, edit, action("resume", by))
        return was_paused

    async def remove(self, *, by: str = "") -> None:
        """Remove the service: a worker closes its incidents and deletes its records within two seconds."""
        note = action("cancel", by, "the service was removed")
        row = await self._services.row(self.name)
        self._services.unregister(self.name)
        await (await self._services.store()).cancel(row.id, note)

    async def events(self, after: int = 0) -> AsyncIterator[AnyEvent]:
        """Yield the changes of this service after number `after`, then later ones, until it is removed."""
        from everpoll.monitors.events import read  # noqa: PLC0415

        row = await self._services.row(self.name)
        store = await self._services.store()
        while True:
            # Read this first: the page that follows then has its last events.
            has_ended = row.id in await store.ended([row.id])
            page = await store.task_events(row.id, after)
            for event in page:
                after = event.seq
                yield read(encode(event.body))
            if not page:
                if has_ended:
                    return
                await asyncio.sleep(EVENTS_POLL_S)


def shown_dependency(info: DependencyInfo, is_stale: bool) -> DependencyInfo:
    """Return a dependency for people: unknown if the report is stale."""
    return msgspec.structs.replace(info, status="unknown") if is_stale else info


def _control(memory: Any) -> Control:
    return Control() if memory is None else msgspec.convert(memory, Control)
