"""Held leases: the leases of each worker of this process that are not settled yet, and doubts about them.

The answer of a lease can get lost: the connection breaks, or the call times out or is canceled after the server has
committed. Then tasks are leased to a worker that does not know it. No rescue takes them back, because that worker is
alive. So after a lease with an unknown outcome the worker is in doubt, and its next call hands back the leases that it
does not know of (`recover`). A worker is also in doubt after a reconnect: after a failover, or a crash with
asynchronous commits, the server may have lost settlements.
"""

import time
from collections.abc import Callable, Iterable
from operator import attrgetter

from everpoll.stores.contract import Settlement

SECOND_CHECK_S = 60.0
"""A statement may reach the server late, through a broken connection. So a doubt about a lease is checked twice."""

_id = attrgetter("id")


class HeldLeases:
    """The leases by incarnation, as task id → sequence, and when to recover each worker that is in doubt."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: dict[int, dict[int, int]] = {}
        self._doubts: dict[int, list[float]] = {}

    def sign_on(self, incarnation: int) -> None:
        """Add a worker that holds nothing."""
        self._held[incarnation] = {}
        self._doubts.pop(incarnation, None)

    def sign_off(self, incarnation: int) -> None:
        """Forget the worker."""
        self._held.pop(incarnation, None)
        self._doubts.pop(incarnation, None)

    def take(self, incarnation: int, leases: dict[int, int]) -> set[int]:
        """Note these leases, id → sequence. Return the ids that the worker already holds under the same sequence.

        The server lost such a lease in a crash, and has leased the task again. Its handler still runs, so the worker
        must not start it a second time.
        """
        held = self._held.get(incarnation)
        if held is None:
            return set()
        known = set() if held.keys().isdisjoint(leases) else {one for one in leases if held.get(one) == leases[one]}
        held.update(leases)
        return known

    def release(self, incarnation: int, settlements: Iterable[Settlement], lost: set[int]) -> None:
        """Forget the leases that these settlements have ended; `lost`: the ids whose settlement the server rejected."""
        if held := self._held.get(incarnation):
            if not lost:
                for task_id in map(_id, settlements):
                    held.pop(task_id, None)
                return
            for one in settlements:
                # A task whose settlement was lost may have been leased to this worker again: keep that newer lease.
                if one.id not in lost or held.get(one.id) == one.sequence:
                    held.pop(one.id, None)

    def doubt(self, incarnation: int) -> None:
        """Note that a lease of this worker may have been made without an answer."""
        now = self._clock()
        self._doubts[incarnation] = [now, now + SECOND_CHECK_S]

    def doubt_all(self) -> None:
        """Doubt all workers: the server may have lost what it answered. One recovery is enough for this doubt."""
        now = self._clock()
        for incarnation in self._held:
            later = [one for one in self._doubts.get(incarnation, ()) if one > now]
            self._doubts[incarnation] = [now, *later]

    def is_in_doubt(self, incarnation: int) -> bool:
        """Return whether the worker must recover now."""
        doubts = self._doubts.get(incarnation)
        return doubts is not None and doubts[0] <= self._clock()

    def has_doubts(self, incarnation: int) -> bool:
        """Return whether the worker is in doubt, now or later."""
        return incarnation in self._doubts

    def settled_doubt(self, incarnation: int) -> None:
        """Note that the worker has recovered."""
        doubts = self._doubts.pop(incarnation, [])
        if doubts[1:]:
            self._doubts[incarnation] = doubts[1:]

    def in_use(self) -> list[int]:
        """Return the workers that hold leases."""
        return [incarnation for incarnation, held in self._held.items() if held]

    def still_has(self, incarnation: int, settlement: Settlement) -> bool:
        """Return whether the worker still holds the lease that this settlement is about."""
        return self._held.get(incarnation, {}).get(settlement.id) == settlement.sequence

    def holds(self, incarnation: int) -> tuple[list[int], list[int]] | None:
        """Return ids and sequences of a worker's leases; None: another process signed that worker on."""
        held = self._held.get(incarnation)
        return None if held is None else (list(held), list(held.values()))
