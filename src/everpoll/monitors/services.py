"""All services of one app: registers and publishes them, and starts the worker that looks at them.

    app.service(…) ──▶ registered ──start, or while the app runs──▶ published: one task for each service
    command line, HTTP API ────────────────────────────────────────▶ published

Promises: a service is one task, identified by its name, whether code of several processes, a configuration file or the
command line published it. Publishing the same definition again changes nothing; a changed one is due at once. A change
takes effect on the running fleet within two seconds. Checks have a worker of their own, so that looks that wait for
slow hosts use no slot of the worker for jobs.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from everpoll.engine.meter import PollerHealth
from everpoll.engine.worker import Worker
from everpoll.errors import BadInput, ServiceNotFound
from everpoll.monitors import service_tasks
from everpoll.monitors.alerting import Message
from everpoll.monitors.alerts.channel import Channel
from everpoll.monitors.alerts.channels import Channels
from everpoll.monitors.alerts.incidents import Incidents
from everpoll.monitors.alerts.maintenance_windows import MaintenanceWindows
from everpoll.monitors.checks.assignment import Assignment
from everpoll.monitors.checks.query_trigger import QUERY_S, QueryTrigger
from everpoll.monitors.definition import Definition
from everpoll.monitors.events import ServiceEvent
from everpoll.monitors.options import Bounds, ServiceOptions, bounds_from, define
from everpoll.monitors.presence import Presence
from everpoll.monitors.service import Service
from everpoll.policy import Duration, shown, whole_number
from everpoll.stores.contract import Store, TaskInfo

if TYPE_CHECKING:
    from everpoll.monitors.checks.runtime import Runtime

logger = logging.getLogger("everpoll.monitors")

SLOTS = 1_000
"""How many looks run at a time in one process; most of them wait for an answer."""
REMOVING_S = 0.2
"""How often to try again while an old service of the same name is being removed."""


class Services:
    """Registered services, by name."""

    def __init__(self, store: Callable[[], Awaitable[Store]], wall: Callable[[], float], label: str) -> None:
        self.store = store
        self.wall = wall
        self._label = label
        self._bounds = bounds_from(os.environ)
        self._slots = SLOTS
        self._definitions: dict[str, Definition] = {}
        self._aliases: dict[str, str] = {}
        self._unpublished: dict[str, Definition] = {}
        self._listeners: list[Callable[[ServiceEvent], None]] = []
        self.finds_others = False
        """Whether to look at services of other processes even if this app has no work in a store."""
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
        """Set the bounds of `every=`, how many looks run at a time at one host, and how many in all."""
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
        """Check options against the bounds of this app and return the definition; raise `BadInput` for bad ones."""
        return define(name, target, options, self._bounds)

    def alias(self, name: str, canonical: str) -> None:
        """Show a dependency that services report as `name` under the name `canonical`."""
        given: list[tuple[str, object]] = [("name", name), ("canonical", canonical)]
        for option, value in given:
            if not isinstance(value, str) or not value.strip():
                raise BadInput(f"alias: {option}={shown(value)}: must be a name")
        self._aliases[name] = canonical
        self._changed.set()

    def channel(self, name: str, channel: Channel | Callable[[Message], Any], group: Duration | None = None) -> None:
        """Register a channel for alerts with this name in `to=`: `Webhook`, `Slack`, `Email`, or a function of a
        `Message`.

        Alerts within `group` (default: a minute) are one message.
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
                f"For a service of another process: await app.services.find({name!r})"
            )
        return Service(self, name)

    def __iter__(self) -> Iterator[Service]:
        return (Service(self, name) for name in self._definitions)

    def __len__(self) -> int:
        return len(self._definitions)

    def __contains__(self, name: object) -> bool:
        return name in self._definitions

    async def find(self, name: str) -> Service:
        """Return the service of that name, even if another process has published it."""
        await self.row(name)
        return Service(self, name)

    async def rows(self) -> list[TaskInfo]:
        """Return the live tasks of all services, by name."""
        return await service_tasks.live_tasks(await self.store())

    async def row(self, name: str) -> TaskInfo:
        """Return the live task of a service; raise `ServiceNotFound` if there is none."""
        return await service_tasks.live_task(await self.store(), name)

    async def publish(self, definitions: Sequence[Definition], *, by: str = "") -> list[Definition]:
        """Create a task for each definition, or give the existing task the new definition.

        Returns the definitions that were not published, because the old service of that name is being removed: publish
        them again once a worker has removed it. `by` names the operator for the log.
        """
        return await service_tasks.publish(await self.store(), definitions, self.wall, by)

    async def change(self, name: str, edit: Callable[[Assignment], Assignment], note: str | None = None) -> Assignment:
        """Change the assignment of a service and return it; a change by another process in between is kept.

        The note of an action, made by `action`, goes to the log together with the change.
        """
        return await service_tasks.change(await self.store(), name, edit, note)

    @property
    def is_set_up(self) -> bool:
        """Whether this app looks at services, including those of other processes and of the command line."""
        return bool(self._definitions or self._aliases or self.channels.names or self.finds_others)

    async def start(self, lease_s: float, keep_s: float | None = None, *, finds_others: bool = True) -> None:
        """Publish the registered services and start to look at services; without any, wait for the first one.

        `keep_s` is how long history is kept: this worker drops old events and incidents, because the app may have no
        other worker. With `finds_others=False`, an app without services does not query services of other processes.
        """
        if self._definitions:
            await self._publish_changes()
            await self._start_looking(lease_s, keep_s)
            self.channels.warn_of_missing((one.name, one.alert.to) for one in self._definitions.values())
        # Start following only now: during a slow publication, the follower would start a second worker. An app that
        # failed to start calls this again, so the follower may exist already.
        if self._publishing is None:
            following = self._follow(lease_s, keep_s, finds_others)
            self._publishing = asyncio.get_running_loop().create_task(following, name="everpoll-services")

    async def stop(self, grace_s: float) -> None:
        """Start no new look; wait up to `grace_s` for running looks."""
        publishing, self._publishing = self._publishing, None
        try:
            if publishing is not None:
                publishing.cancel()
                await asyncio.gather(publishing, return_exceptions=True)
        except asyncio.CancelledError:
            # A second signal that comes at once: running looks are still handed back.
            grace_s = 0.0
            raise
        finally:
            runtime = self._runtime
            self.forget()
            if runtime is not None:
                await runtime.stop(grace_s)

    def forget(self) -> None:
        """Drop everything that belongs to an earlier event loop."""
        self._runtime = self._publishing = None
        self._changed = asyncio.Event()
        self._presence = Presence()
        self._unpublished = dict(self._definitions)

    def health(self) -> PollerHealth | None:
        """Return the health of the worker that looks at services; None if there are no services."""
        return None if self._runtime is None else self._runtime.health()

    @property
    def worker(self) -> Worker | None:
        """The worker that looks at services; None if there are no services."""
        return None if self._runtime is None else self._runtime.worker

    @property
    def looks(self) -> Mapping[str, int]:
        """How many looks this process made since its start, by status."""
        return {} if self._runtime is None else self._runtime.recorder.looks

    @property
    def alerts(self) -> Mapping[str, int]:
        """How many messages this process sent since its start, and how many failed."""
        return {} if self._runtime is None else self._runtime.alerts

    async def _start_looking(self, lease_s: float, keep_s: float | None) -> None:
        if self._runtime is None:
            # Imported late: an app without services saves 4 MB.
            from everpoll.monitors.checks.runtime import Runtime  # noqa: PLC0415

            runtime = Runtime(
                await self.store(),
                self._bounds.per_host,
                self.channels,
                self._notify_listeners if self._listeners else None,
            )
            await runtime.start(self._label, self._slots, lease_s, keep_s)
            self._runtime = runtime

    async def _follow(self, lease_s: float, keep_s: float | None, finds_others: bool) -> None:
        """Publish changes while the app runs; start to look once any process has published a service."""
        query_trigger = QueryTrigger(self._changed)
        try:
            rest_s = 0.0 if self._unpublished or (finds_others and self._runtime is None) else None
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(rest_s):
                        await self._changed.wait()
                rest_s = await self._follow_once(lease_s, keep_s, query_trigger if finds_others else None)
        finally:
            await query_trigger.stop()

    async def _follow_once(
        self, lease_s: float, keep_s: float | None, query_trigger: QueryTrigger | None
    ) -> float | None:
        """Publish what has changed and ask for services; return how long to rest at most."""
        try:
            if self._runtime is None and query_trigger is not None:
                await query_trigger.begin(await self.store())
            await self._publish_changes()
            if self._runtime is None and await self._has_work():
                await self._start_looking(lease_s, keep_s)
            if self._unpublished:
                # The old service of that name is being removed.
                return REMOVING_S
            if self._runtime is None and query_trigger is not None:
                return query_trigger.rest_s
        except Exception as error:  # noqa: BLE001 - the next try may succeed
            logger.warning("cannot publish services: %s; trying again", error)
            self._changed.set()
            await asyncio.sleep(QUERY_S)
        if self._runtime is not None and query_trigger is not None:
            await query_trigger.stop()
        return None

    async def _publish_changes(self) -> None:
        self._changed.clear()
        publishing = dict(self._unpublished)
        held = {one.name for one in await self.publish(list(publishing.values()))}
        for name, definition in publishing.items():
            # If a newer definition was registered meanwhile, the next round publishes it.
            if name not in held and self._unpublished.get(name) is definition:
                del self._unpublished[name]
        if self._aliases:
            health = (await self.store()).health
            known = await health.aliases()
            for name, canonical in self._aliases.items():
                if known.get(name) != canonical:
                    await health.set_alias(name, canonical)

    async def _has_work(self) -> bool:
        """Return True if there is a service, an open incident or a waiting message."""
        if self._definitions:
            return True
        return await self._presence.is_any(await self.store())

    def _notify_listeners(self, events: Sequence[ServiceEvent]) -> None:
        for listener in self._listeners:
            for event in events:
                try:
                    listener(event)
                except Exception:
                    logger.exception("a listener of service events failed")
