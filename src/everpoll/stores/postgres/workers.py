"""Signs workers on and off, and settles what they ran, on Postgres. `leasing.py` leases.

Promises: a settlement wakes the workers that it concerns: those of this process at once, those of others by a
notification, unless nothing is due before their next look.
"""

from collections.abc import Sequence

from everpoll.drivers.postgres.connections import Connections
from everpoll.drivers.postgres.lane import Lane
from everpoll.stores.fleet import WorkerCard
from everpoll.stores.leases import Again, Ended, Lease, Settlement
from everpoll.stores.postgres import own_transactions, rights, settling
from everpoll.stores.postgres.held_leases import HeldLeases
from everpoll.stores.postgres.leasing import Leasing
from everpoll.stores.postgres.repeats import repeated
from everpoll.stores.postgres.waking import Waking

# Repeatable, as everything: a sign-on whose answer got lost is made again under the same incarnation.
SIGN_ON = """insert into everpoll.workers (incarnation, label, host, pid, queues, slots, version, lease_s, names)
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    on conflict (incarnation) do update set label = excluded.label, host = excluded.host, pid = excluded.pid,
        queues = excluded.queues, slots = excluded.slots, version = excluded.version, lease_s = excluded.lease_s,
        names = excluded.names,
        started_at = now(), beat_at = now(), beats = workers.beats + 1, stopped_at = null, is_clear = false"""
# A worker that certainly holds nothing needs no rescue to look for it.
SIGN_OFF = """update everpoll.workers set stopped_at = now(), is_clear = $2
    where incarnation = $1 and stopped_at is null"""


class Workers:
    """The workers that lease from one store object."""

    def __init__(
        self,
        connections: Connections,
        settlements: Lane,
        calls: Lane,
        leasing: Leasing,
        held_leases: HeldLeases,
        waking: Waking,
    ) -> None:
        self._connections = connections
        self._settlements = settlements
        self._calls = calls
        self._leasing = leasing
        self._held_leases = held_leases
        self._waking = waking

    async def sign_on(self, card: WorkerCard, lease_s: float) -> None:
        """See the contract. The heartbeat that follows gets its connection before the lanes get their second.

        A role that may sign on, and later lacks the right to settle, would run handlers in vain: all rights are asked
        for here.
        """
        await self._calls.call(rights.check)
        await self._calls.row(
            SIGN_ON,
            card.incarnation,
            card.label,
            card.host,
            card.pid,
            list(card.queues),
            card.slots,
            card.version,
            lease_s,
            list(card.names),
        )
        self._held_leases.sign_on(card.incarnation)
        self._leasing.sign_on(card)
        self._connections.await_heartbeat()

    async def sign_off(self, incarnation: int) -> None:
        """See the contract."""
        if self._held_leases.has_doubts(incarnation):
            await self._leasing.recover(incarnation)
        is_clear = self._held_leases.holds(incarnation) == ([], []) and not self._held_leases.has_doubts(incarnation)
        await self._calls.row(SIGN_OFF, incarnation, is_clear)
        self._held_leases.sign_off(incarnation)
        self._leasing.sign_off(incarnation)

    async def settle(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        """See the contract."""
        if not settlements:
            return set()
        with self._leasing.settling(settlements):
            return await self._settle(incarnation, settlements)

    async def _settle(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        followed = [one for one in settlements if one.follow_ups]
        lost, due_s = await repeated(lambda: settling.settle(self._settlements, incarnation, settlements, followed))
        self._leasing.settled()
        self._unblocked(due_s)
        if lost and (
            known := [one for one in settlements if one.id in lost and self._held_leases.still_has(incarnation, one)]
        ):
            # The server may have forgotten these leases in a crash: then they are taken again, and settled.
            await self._leasing.recover(incarnation)
            followed_known = [one for one in known if one.follow_ups]
            settled = await repeated(lambda: settling.settle(self._settlements, incarnation, known, followed_known))
            lost = lost - {one.id for one in known} | settled.lost
            self._unblocked(settled.due_s)
        self._held_leases.release(incarnation, settlements, lost)
        if self._leasing.release(settlements):
            self._waking.here()  # another task of the same limit may start now
        if Again in set(map(type, settlements)):
            self._waking.again([one for one in settlements if isinstance(one, Again)])
        if followed:
            self._waking.everywhere(due_s=max(0.0, min(task.delay_s for one in followed for task in one.follow_ups)))
        return lost

    def _unblocked(self, due_s: float | None) -> None:
        """Wake workers here and elsewhere, if a task no longer waits for another to end."""
        if due_s is not None:
            self._waking.everywhere(due_s=due_s)

    async def is_complete(self, incarnation: int, lease: Lease) -> bool:
        """See the contract."""
        if not await own_transactions.is_complete(self._calls, incarnation, lease):
            return False
        ended = [Ended(lease.id, lease.sequence)]
        self._held_leases.release(incarnation, ended, set())
        if self._leasing.release(ended):
            self._waking.here()  # another task of the same limit may start now
        return True
