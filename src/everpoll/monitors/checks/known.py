"""Known dependencies: a copy of the recorded dependencies of services, until another worker changes them.

Promises: `of` returns the dependencies that were recorded for that edition of the service's memory. A copy of another
edition is read again; so is a copy with MAX_KNOWN names that is older than FULL_S, because the records may have
forgotten vanished names since. At most MAX_SERVICES copies are kept. Aliases are at most ALIASES_S old.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping

from everpoll.monitors.dependencies import MAX_KNOWN, Changes, Known, current_error
from everpoll.monitors.report import Dependency, Status
from everpoll.stores.contract import Store
from everpoll.stores.health import DependencyInfo

MAX_SERVICES = 20_000
ALIASES_S = 2.0
FULL_S = 600.0


class KnownDependencies:
    """The dependencies of all services that this process looks at."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[str, tuple[int, dict[str, Known]]] = OrderedDict()
        self._full_at: dict[str, float] = {}
        """When copies with MAX_KNOWN names were read."""
        self._aliases: dict[str, str] = {}
        self._aliases_at: float | None = None

    async def of(self, service: str, edition: int) -> Mapping[str, Known]:
        """Return the known dependencies of one service; none for edition 0."""
        if edition == 0:
            return {}
        kept = self._kept.get(service)
        if kept is not None and kept[0] == edition and not self._is_outdated(service):
            self._kept.move_to_end(service)
            return kept[1]
        self._full_at.pop(service, None)
        found = {one.name: _known(service, one) for one in await self._store.health.dependencies(service)}
        self._keep(service, edition, found)
        return found

    def current_aliases(self) -> Mapping[str, str] | None:
        """Return the aliases, the same object while they do not change; None: call `aliases`, which reads them."""
        if self._aliases_at is None or asyncio.get_running_loop().time() - self._aliases_at > ALIASES_S:
            return None
        return self._aliases

    async def aliases(self) -> Mapping[str, str]:
        """Return the aliases, the same object while they do not change."""
        current = self.current_aliases()
        if current is not None:
            return current
        self._aliases_at = asyncio.get_running_loop().time()
        found = await self._store.health.aliases()
        if found != self._aliases:
            self._aliases = found
        return self._aliases

    def changed(self, service: str, edition: int, changes: Changes) -> None:
        """Apply the changes of a look to the copy, once they are recorded."""
        if changes.upserts:
            before = self._kept.get(service, (0, {}))[1]
            self._keep(service, edition, before | {one.name: one for one in changes.upserts})

    def _is_outdated(self, service: str) -> bool:
        full_at = self._full_at.get(service)
        return full_at is not None and asyncio.get_running_loop().time() - full_at > FULL_S

    def _keep(self, service: str, edition: int, known: dict[str, Known]) -> None:
        self._kept[service] = (edition, known)
        self._kept.move_to_end(service)
        if len(known) >= MAX_KNOWN:
            self._full_at.setdefault(service, asyncio.get_running_loop().time())
        if len(self._kept) > MAX_SERVICES:
            self._full_at.pop(self._kept.popitem(last=False)[0], None)


def _known(service: str, info: DependencyInfo) -> Known:
    reported = Dependency(
        name=info.name,
        status=Status(info.status),
        skipped=info.skipped,
        type=info.type,
        impact=info.impact,
        description=info.description,
        contact=info.contact,
        check_details=info.check_details,
        error=info.error,
        error_message=info.error_message,
    )
    error, message = current_error(reported)
    return Known(
        service=service,
        canonical=info.canonical,
        reported=reported,
        changed_at=info.changed_at,
        first_at=info.changed_at,
        error=error,
        error_message=message,
        vanished_at=info.seen_at if info.vanished else None,
    )
