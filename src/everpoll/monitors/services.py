"""All services of one app: what code registers, what operators change, and the worker that looks at them.

    app.service(…) ──▶ registered ──start, or while the app runs──▶ published: one task for each service
    command line, HTTP API ────────────────────────────────────────▶ published

Promises: a service is one task, known by its name, whoever published it: code of several processes, a configuration
file, the command line. Publishing the same definition again changes nothing; another one is due at once. A change takes
effect on the running fleet within two seconds. Checks have a worker of their own, so that looks that wait for slow
hosts take no slot of a job.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from everpoll.engine.meter import PollerHealth
from everpoll.engine.worker import Worker
from everpoll.errors import BadInput, ServiceNotFound
from everpoll.monitors.alerting import Message
from everpoll.monitors.alerts.channel import Channel
from everpoll.monitors.alerts.channels import Channels
from everpoll.monitors.alerts.incidents import Incidents
from everpoll.monitors.alerts.maintenance_windows import MaintenanceWindows
from everpoll.monitors.beat_tokens import with_token
from everpoll.monitors.checks import assignment as assignments
from everpoll.monitors.checks.assignment import CHECK, KIND, QUEUE, Assignment
from everpoll.monitors.checks.scout import SCOUT_S, Scout
from everpoll.monitors.control import write as write_control
from everpoll.monitors.decision import register
from everpoll.monitors.definition import Definition
from everpoll.monitors.events import ServiceEvent
from everpoll.monitors.events import write as write_event
from everpoll.monitors.options import DEFAULT_BOUNDS, Bounds, ServiceOptions, define
from everpoll.monitors.presence import Presence
from everpoll.monitors.service import Service
from everpoll.policy import Duration, shown, whole_number
from everpoll.stores.contract import NewEvent, NewTask, Store, TaskFilter, TaskInfo, encode
from everpoll.stores.operations import Revision

if TYPE_CHECKING:
    from everpoll.monitors.checks.runtime import Runtime

logger = logging.getLogger("everpoll.monitors")

PER_HOST = "POLL_MAX_CONCURRENT_PER_HOST"
SLOTS = 1_000
"""Looks under way at a time in one process; most of them wait for an answer."""
CHUNK = 500
"""Services that are published in one statement."""
REMOVING_S = 0.2
"""How often a service is tried again whose predecessor of the same name is not removed yet."""


class Services:
    """Registered services, by name."""

    def __init__(self, store: Callable[[], Awaitable[Store]], wall: Callable[[], float], label: str) -> None:
        self.store = store
        self.wall = wall
        self._label = label
        self._bounds = _with_environment(DEFAULT_BOUNDS)
        self._slots = SLOTS
        self._definitions: dict[str, Definition] = {}
        self._aliases: dict[str, str] = {}
        self._unpublished: dict[str, Definition] = {}
        self._listeners: list[Callable[[ServiceEvent], None]] = []
        self.scouts = False
        """Look at services of other processes, even where this app has nothing that needs a store."""
        self.channels = Channels()
        self.incidents = Incidents(store, wall)
        self.maintenance = MaintenanceWindows(store)
        self._runtime: Runtime | None = None
        self._publishing: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._presence = Presence()

    def configure(
        self,
        shortest: Duration | None = None,
        longest: Duration | None = None,
        per_host: int | None = None,
        slots: int | None = None,
    ) -> None:
        """Set the bounds of every=, how many looks at one host run at a time, and how many in all."""
        bounds = self._bounds
        self._bounds = Bounds(
            bounds.shortest_s if shortest is None else shortest,
            bounds.longest_s if longest is None else longest,
            bounds.per_host if per_host is None else per_host,
        )
        if slots is not None:
            accepted = "how many looks are under way at a time, 1 or more"
            self._slots = whole_number(slots, name="slots", at_least=1, accepted=accepted)

    def add(self, name: str, target: str, **options: Unpack[ServiceOptions]) -> Service:
        """Register a service, or replace the one of that name; while the app runs, at once."""
        definition = define(name, target, options, self._bounds)
        self._definitions[name] = definition
        self._unpublished[name] = definition
        self._changed.set()
        return Service(self, name)

    def define(self, name: str, target: str, options: ServiceOptions) -> Definition:
        """Return the definition that these options make within the bounds of this app; `BadInput` for bad ones."""
        return define(name, target, options, self._bounds)

    def alias(self, name: str, canonical: str) -> None:
        """Let dependencies that services call `name` count as `canonical`."""
        given: list[tuple[str, object]] = [("name", name), ("canonical", canonical)]
        for option, value in given:
            if not isinstance(value, str) or not value.strip():
                raise BadInput(f"alias: {option}={shown(value)}: must be a name")
        self._aliases[name] = canonical
        self._changed.set()

    def channel(self, name: str, channel: Channel | Callable[[Message], Any], group: Duration | None = None) -> None:
        """Send alerts whose `to=` has this name by a `Webhook`, a `Slack`, an `Email`, or any function of a `Message`.

        Alerts that come within `group` (default: a minute) of each other are one message.
        """
        self.channels.add(name, channel, group)

    def unregister(self, name: str) -> None:
        """Forget a service that is being removed: this process does not publish it again."""
        self._definitions.pop(name, None)
        self._unpublished.pop(name, None)

    def subscribe(self, listener: Callable[[ServiceEvent], None]) -> None:
        """Call `listener` with every event of looks in this process, "poll:complete" and "poll:error" included."""
        self._listeners.append(listener)

    def __getitem__(self, name: str) -> Service:
        if name not in self._definitions:
            known = ", ".join(sorted(self._definitions)[:20]) or "none"
            raise ServiceNotFound(
                f"no service {name!r} is registered in this app; registered: {known}. "
                f"One that another process has registered: await app.services.find({name!r})"
            )
        return Service(self, name)

    def __iter__(self) -> Iterator[Service]:
        return (Service(self, name) for name in self._definitions)

    def __len__(self) -> int:
        return len(self._definitions)

    def __contains__(self, name: object) -> bool:
        return name in self._definitions

    async def find(self, name: str) -> Service:
        """Return the service of that name, whichever process has published it."""
        await self.row(name)
        return Service(self, name)

    async def rows(self) -> list[TaskInfo]:
        """Return the live tasks of all services, by name."""
        store = await self.store()
        rows: list[TaskInfo] = []
        after: int | None = None
        while True:
            page = await store.tasks(TaskFilter(kind=KIND, indexed=True), limit=1_000, after=after)
            rows += [one for one in page.tasks if one.ended_at is None]
            if page.after is None:
                return sorted(rows, key=lambda one: one.key or "")
            after = page.after

    async def row(self, name: str) -> TaskInfo:
        """Return the live task of a service; raise `ServiceNotFound` where there is none."""
        found = await (await self.store()).find(KIND, name)
        if found is None or found.ended_at is not None:
            raise ServiceNotFound(f"no service is called {name!r}: `everpoll services list` shows those that are")
        return found

    async def publish(self, definitions: Sequence[Definition]) -> list[Definition]:
        """Make a task of each definition, or give the task that is there the new definition.

        Returns the definitions of services that are being removed at this moment: publish them again when a worker has
        done that, or they are lost with the old ones.
        """
        store = await self.store()
        held: list[Definition] = []
        for start in range(0, len(definitions), CHUNK):
            waiting = list(definitions[start : start + CHUNK])
            while waiting:
                answers = await store.enqueue([_new_task(with_token(one), self.wall()) for one in waiting])
                there = {answer.id: one for answer, one in zip(answers, waiting, strict=True) if not answer.is_new}
                waiting = await self._revise(store, there, held) if there else []
        return held

    async def change(self, name: str, edit: Callable[[Assignment], Assignment]) -> Assignment:
        """Change the assignment of a service and return it; a change by another process in between is kept."""
        store = await self.store()
        while True:
            row = await self.row(name)
            changed = edit(msgspec.convert(row.args, Assignment))
            revision = Revision(KIND, name, assignments.write(changed), expects=encode(row.args))
            if (await store.revise([revision]))[0] is not None:
                return changed

    async def _revise(self, store: Store, there: dict[int, Definition], held: list[Definition]) -> list[Definition]:
        """Give tasks that are there their new definitions, keeping what operators asked of them.

        Returns the definitions to publish once more: their task has ended or changed in between. Those of tasks that
        are being removed are added to `held`.
        """
        rows = await store.info(list(there))
        again, revisions, revised = [], [], []
        for task_id, definition in there.items():
            row = rows.get(task_id)
            if row is None or row.ended_at is not None:
                again.append(definition)
                continue
            if row.cancel_requested:
                held.append(definition)
                continue
            assignment = msgspec.convert(row.args, Assignment)
            wanted = with_token(definition, assignment.definition)
            if assignment.definition != wanted:
                args = assignments.write(msgspec.structs.replace(assignment, definition=wanted))
                revisions.append(Revision(KIND, row.key or "", args, expects=encode(row.args)))
                revised.append(definition)
        done = await store.revise(revisions) if revisions else []
        return again + [one for one, task_id in zip(revised, done, strict=True) if task_id is None]

    @property
    def is_set_up(self) -> bool:
        """Whether this app is to look at services, those of other processes and of the command line included."""
        return bool(self._definitions or self._aliases or self.channels.names or self.scouts)

    async def start(self, lease_s: float, keep_s: float | None = None, *, scouts: bool = True) -> None:
        """Publish what is registered, and look at services from now on; wait for the first one where there is none.

        `keep_s` is how long history is kept: events and incidents grow also where the app has no other worker.
        `scouts=False` asks no store for services of other processes while this app has none itself.
        """
        if self._definitions:
            await self._publish_changes()
            await self._look(lease_s, keep_s)
            self._warn_of_unknown_channels()
        # Only now: a follower that runs beside a slow publication would begin a second worker. Repeatable, since an
        # app that could not start everything starts again.
        if self._publishing is None:
            following = self._follow(lease_s, keep_s, scouts)
            self._publishing = asyncio.get_running_loop().create_task(following, name="everpoll-services")

    async def stop(self, grace_s: float) -> None:
        """Make no new look; let those that are under way end for that long."""
        publishing, self._publishing = self._publishing, None
        if publishing is not None:
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
        runtime = self._runtime
        self.forget()
        if runtime is not None:
            await runtime.stop(grace_s)

    def forget(self) -> None:
        """The event loop of earlier calls is gone, and with it what looked at services there."""
        self._runtime = self._publishing = None
        self._changed = asyncio.Event()
        self._presence = Presence()
        self._unpublished = dict(self._definitions)

    def health(self) -> PollerHealth | None:
        """Return the health of the worker that looks at services; None where there is nothing to look at."""
        return None if self._runtime is None else self._runtime.health()

    @property
    def worker(self) -> Worker | None:
        """The worker that looks at services; None where there is nothing to look at."""
        return None if self._runtime is None else self._runtime.worker

    @property
    def looks(self) -> Mapping[str, int]:
        """How many looks this process made since its start, by status."""
        return {} if self._runtime is None else self._runtime.recorder.looks

    @property
    def alerts(self) -> Mapping[str, int]:
        """How many messages this process sent since its start, and how many failed."""
        return {} if self._runtime is None else self._runtime.alerts

    async def _look(self, lease_s: float, keep_s: float | None) -> None:
        if self._runtime is None:
            # Only here: an app without services needs none of what looks, which takes 4 MB.
            from everpoll.monitors.checks.runtime import Runtime  # noqa: PLC0415

            runtime = Runtime(
                await self.store(), self._bounds.per_host, self.channels, self._tell if self._listeners else None
            )
            await runtime.start(self._label, self._slots, lease_s, keep_s)
            self._runtime = runtime

    async def _follow(self, lease_s: float, keep_s: float | None, scouts: bool) -> None:
        """Publish changes while the app runs; begin to look once there is a service, in whatever process it began."""
        scout = Scout(self._changed)
        try:
            rest_s = 0.0 if self._unpublished or (scouts and self._runtime is None) else None
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(rest_s):
                        await self._changed.wait()
                rest_s = await self._followed(lease_s, keep_s, scout if scouts else None)
        finally:
            await scout.stop()

    async def _followed(self, lease_s: float, keep_s: float | None, scout: Scout | None) -> float | None:
        """One turn: publish what has changed, and ask for services; for how long to rest at most."""
        try:
            if self._runtime is None and scout is not None:
                await scout.begin(await self.store())
            await self._publish_changes()
            if self._runtime is None and await self._is_any():
                await self._look(lease_s, keep_s)
            if self._unpublished:
                # Its predecessor is being removed.
                return REMOVING_S
            if self._runtime is None and scout is not None:
                return scout.rest_s
        except Exception as error:  # noqa: BLE001 - whatever it is, the next try may succeed
            logger.warning("cannot publish services: %s; trying again", error)
            self._changed.set()
            await asyncio.sleep(SCOUT_S)
        if self._runtime is not None and scout is not None:
            await scout.stop()
        return None

    async def _publish_changes(self) -> None:
        self._changed.clear()
        publishing = dict(self._unpublished)
        held = {one.name for one in await self.publish(list(publishing.values()))}
        for name, definition in publishing.items():
            # Another definition may have come meanwhile: it is published next.
            if name not in held and self._unpublished.get(name) is definition:
                del self._unpublished[name]
        if self._aliases:
            health = (await self.store()).health
            known = await health.aliases()
            for name, canonical in self._aliases.items():
                if known.get(name) != canonical:
                    await health.set_alias(name, canonical)

    def _warn_of_unknown_channels(self) -> None:
        known = set(self.channels.names)
        for one in self._definitions.values():
            for name in one.alert.to:
                if name not in known:
                    known.add(name)
                    text = "service %r alerts the channel %r, which this process does not have: its alerts wait"
                    logger.warning(text, one.name, name)

    async def _is_any(self) -> bool:
        """Whether there is anything to do: a service, an incident that is not over, a message that waits."""
        if self._definitions:
            return True
        return await self._presence.is_any(await self.store())

    def _tell(self, events: Sequence[ServiceEvent]) -> None:
        for listener in self._listeners:
            for event in events:
                try:
                    listener(event)
                except Exception:
                    logger.exception("a listener of service events failed")


def _new_task(definition: Definition, now: float) -> NewTask:
    first = register(definition, now)
    return NewTask(
        name=CHECK,
        args=assignments.write(Assignment(definition=definition)),
        kind=KIND,
        queue=QUEUE,
        key=definition.name,
        delay_s=max(0.0, first.next_at - now),
        memory=write_control(first.control),
        cancels_itself=True,
        indexed=True,
        events=tuple(NewEvent(place, write_event(event)) for place, event in enumerate(first.events, 1)),
    )


def _with_environment(bounds: Bounds) -> Bounds:
    text = os.environ.get(PER_HOST)
    if text is None:
        return bounds
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise BadInput(f"${PER_HOST}={text!r}: must be how many looks at one host may run at a time, 1 or more")
    return Bounds(bounds.shortest_s, bounds.longest_s, int(text))
