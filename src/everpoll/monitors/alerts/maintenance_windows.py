"""Maintenance windows: planned, listed and removed by operators; all processes apply them within seconds."""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct

from everpoll.engine.actors import action
from everpoll.errors import BadInput
from everpoll.monitors.alerts.situation_reader import read_window
from everpoll.monitors.maintenance import Window
from everpoll.policy import shown
from everpoll.stores.contract import Store
from everpoll.stores.health import MaintenanceWindow
from everpoll.stores.operations import LogEntry

MAX_WINDOWS = 1_000
MAX_ID_CHARS = 100


class PlannedWindow(Struct, frozen=True):
    """A window, and the id under which it is removed."""

    id: str
    window: Window


class MaintenanceWindows:
    """The windows of all services: `app.services.maintenance`."""

    def __init__(self, store: Callable[[], Awaitable[Store]]) -> None:
        self._store = store

    async def add(self, window: Window, id: str | None = None, *, by: str = "") -> str:  # noqa: A002 - the word of the API
        """Plan a window, made by `once` or `weekly`; return its id. One with the same id is replaced.

        `by` names the actor for the log.
        """
        if not isinstance(window, Window):
            raise BadInput(f"maintenance: {shown(window)} is not a window; write once(…) or weekly(…)")
        window_id = secrets.token_hex(4) if id is None else _checked_id(id)
        entry = LogEntry("service", window_id, action("add maintenance", by, window.reason))
        health = (await self._store()).health
        there = {one.id for one in await health.windows()}
        if len(there | {window_id}) > MAX_WINDOWS:
            raise BadInput(f"maintenance: there are {MAX_WINDOWS:,} windows already; remove some")
        await health.set_window(MaintenanceWindow(window_id, msgspec.to_builtins(window)), entry)
        return window_id

    async def list(self) -> tuple[PlannedWindow, ...]:
        """Return all windows, by id."""
        found = await (await self._store()).health.windows()
        read = [(one.id, read_window(one.id, one.body)) for one in found]
        return tuple(PlannedWindow(window_id, window) for window_id, window in read if window is not None)

    async def remove(self, id: str, *, by: str = "") -> bool:  # noqa: A002 - the word of the API
        """Remove a window; False: there is none of that id."""
        entry = LogEntry("service", _checked_id(id), action("remove maintenance", by))
        return await (await self._store()).health.delete_window(entry.name, entry)


def _checked_id(value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_ID_CHARS or not value.isprintable():
        raise BadInput(f"maintenance: id={shown(value)}: must be 1 to {MAX_ID_CHARS} printable characters")
    return value
