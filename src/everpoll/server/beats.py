"""Beat tokens: finds the service of a heartbeat by its token, which is in the service's target: `beat:TOKEN`.

Promises: tokens are kept and compared as hashes, so the time of an answer tells nothing about them. A beat costs no
scan of all services: they are read again at most every AGAIN_S, when a token is not known.
"""

import asyncio
import hashlib

import msgspec

from everpoll.errors import ServiceNotFound
from everpoll.monitors.checks.assignment import Assignment
from everpoll.monitors.service import Service
from everpoll.monitors.service_rows import service_rows
from everpoll.monitors.services import Services

AGAIN_S = 2.0


class BeatTokens:
    """The tokens of all services that call everpoll."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._names: dict[bytes, str] = {}
        self._read_at: float | None = None
        self._reading = asyncio.Lock()

    async def beat(self, token: str, status: str) -> str:
        """Count a heartbeat; return the name of its service, or raise `ServiceNotFound`."""
        wanted = _digest(f"beat:{token}")
        name = self._names.get(wanted)
        if name is None or not await self._is_still(name, wanted):
            await self._read_again()
            name = self._names.get(wanted)
        if name is None:
            raise ServiceNotFound("no service has that token; the target of a heartbeat service is beat:TOKEN")
        await Service(self._services, name).beat(status)
        return name

    async def _is_still(self, name: str, wanted: bytes) -> bool:
        try:
            row = await self._services.row(name)
        except ServiceNotFound:
            return False
        return _digest(msgspec.convert(row.args, Assignment).definition.target) == wanted

    async def _read_again(self) -> None:
        async with self._reading:
            now = asyncio.get_running_loop().time()
            if self._read_at is not None and now - self._read_at < AGAIN_S:
                return
            targets = [row.definition for row in await service_rows(await self._services.store())]
            self._names = {_digest(one.target): one.name for one in targets if one.is_heartbeat and one.target[5:]}
            self._read_at = asyncio.get_running_loop().time()


def _digest(target: str) -> bytes:
    return hashlib.sha256(target.encode()).digest()
