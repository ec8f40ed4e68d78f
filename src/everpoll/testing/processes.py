"""The store of one simulated process: while the process is dead or frozen, its calls wait."""

from collections.abc import Sequence
from typing import Any

from everpoll.stores.contract import Beat, HeartbeatConnection, Leased, Rescued, Settlement, Store
from everpoll.stores.figures import Figure
from everpoll.testing.points import Process

WRITES = frozenset(
    {"enqueue", "enqueue_flow", "sign_on", "sign_off", "progress", "cancel", "retry", "note_loss", "prune"}
)


class ProcessStore:
    """Passes all calls to the store while the process lives; `lease` and `settle` have crash points around them."""

    beats_in_loop = True

    def __init__(self, store: Store, process: Process) -> None:
        self._store = store
        self._process = process

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in WRITES:
            return found

        async def gated(*args: Any, **kwargs: Any) -> Any:
            await self._process.gate()
            answer = await found(*args, **kwargs)
            await self._process.gate()
            return answer

        return gated

    async def open(self, *, migrate: bool = True) -> None:
        """Do nothing: the store is open already."""

    async def close(self) -> None:
        """Do nothing: other processes use the store."""

    async def lease(self, incarnation: int, rooms: dict[str, int], most: int) -> Leased:
        """See the contract."""
        await self._process.gate()
        leased = await self._store.lease(incarnation, rooms, most)
        if leased.leases:
            await self._pass("after_lease")
        else:
            await self._process.gate()
        return leased

    async def settle(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """See the contract."""
        await self._pass("before_settle")
        lost = await self._store.settle(incarnation, settlements)
        await self._pass("after_settle")
        return lost

    async def _pass(self, name: str) -> None:
        await self._process.gate()
        self._process.fault.passes(self._process, name)
        await self._process.gate()

    def heartbeat_connection(self) -> HeartbeatConnection:
        """See the contract."""
        return _GatedHeartbeatConnection(self._store.heartbeat_connection(), self._process)


class _GatedHeartbeatConnection:
    def __init__(self, connection: HeartbeatConnection, process: Process) -> None:
        self._connection = connection
        self._process = process

    def beat(self, incarnation: int, lease_s: float, running: Sequence[int]) -> Beat:
        if self._process.state != "alive":
            # A stopped process notices nothing: neither that it is silent, nor that it was declared dead.
            return Beat(is_alive=True)
        return self._connection.beat(incarnation, lease_s, running)

    def rescue(self, incarnation: int, dead: Sequence[tuple[int, int]], overdue: Sequence[tuple[int, int]]) -> Rescued:
        return self._connection.rescue(incarnation, dead, overdue) if self._process.state == "alive" else Rescued()

    def publish(self, incarnation: int, figures: Sequence[Figure], loops: str | None) -> None:
        pass

    def close(self) -> None:
        self._connection.close()
