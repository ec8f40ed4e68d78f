"""The leases that each worker of this process holds: answered by the server, and not settled yet.

An answer can get lost: the connection breaks, the call times out or is canceled after the server has committed. Then
the server has tasks leased to a worker that lives, beats, and does not know of them, and no rescue would ever come. So
a lease with an unknown outcome is a doubt, and the next call about that worker hands back the leases that the worker
does not know of. A new connection is a doubt, too: its server may have forgotten what was settled (a failover, a crash
with asynchronous commits).
"""

import time
from collections.abc import Callable, Iterable
from operator import attrgetter

from everpoll.stores.contract import Settlement

SECOND_LOOK_S = 60.0
"""A statement may reach the server late, by a connection that broke: so doubts about leases are checked twice."""

_id = attrgetter("id")


class HeldLeases:
    """By incarnation: task id → sequence."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: dict[int, dict[int, int]] = {}
        self._doubts: dict[int, list[float]] = {}

    def sign_on(self, incarnation: int) -> None:
        """Begin with a worker that holds nothing."""
        self._held[incarnation] = {}
        self._doubts.pop(incarnation, None)

    def sign_off(self, incarnation: int) -> None:
        """Forget the worker."""
        self._held.pop(incarnation, None)
        self._doubts.pop(incarnation, None)

    def take(self, incarnation: int, leases: dict[int, int]) -> set[int]:
        """Note these leases, id → sequence. Return the ids that the worker holds already under the same sequence.

        The server forgot such a lease in a crash and made it again. Its handler still runs: it must not run twice.
        """
        held = self._held.get(incarnation)
        if held is None:
            return set()
        known = set() if held.keys().isdisjoint(leases) else {one for one in leases if held.get(one) == leases[one]}
        held.update(leases)
        return known

    def let_go(self, incarnation: int, settlements: Iterable[Settlement], lost: set[int]) -> None:
        """Forget the leases that are settled, and keep those that were lost."""
        if held := self._held.get(incarnation):
            if not lost:
                for task_id in map(_id, settlements):
                    held.pop(task_id, None)
                return
            for one in settlements:
                # What was lost may have been leased again since: then that lease is the one in hand.
                if one.id not in lost or held.get(one.id) == one.sequence:
                    held.pop(one.id, None)

    def doubt(self, incarnation: int) -> None:
        """Note that a lease of this worker may have been made without an answer."""
        now = self._clock()
        self._doubts[incarnation] = [now, now + SECOND_LOOK_S]

    def doubt_all(self) -> None:
        """Doubt all workers: the server may have forgotten what it answered. One look settles this doubt."""
        now = self._clock()
        for incarnation in self._held:
            later = [one for one in self._doubts.get(incarnation, ()) if one > now]
            self._doubts[incarnation] = [now, *later]

    def is_in_doubt(self, incarnation: int) -> bool:
        """Return whether something is to be handed back now."""
        doubts = self._doubts.get(incarnation)
        return doubts is not None and doubts[0] <= self._clock()

    def has_doubts(self, incarnation: int) -> bool:
        """Return whether there is a doubt at all."""
        return incarnation in self._doubts

    def settled_doubt(self, incarnation: int) -> None:
        """Note that the unknown leases have been handed back."""
        doubts = self._doubts.pop(incarnation, [])
        if doubts[1:]:
            self._doubts[incarnation] = doubts[1:]

    def in_use(self) -> list[int]:
        """Return the workers that hold something."""
        return [incarnation for incarnation, held in self._held.items() if held]

    def still_has(self, incarnation: int, settlement: Settlement) -> bool:
        """Return whether the worker has this very lease in hand."""
        return self._held.get(incarnation, {}).get(settlement.id) == settlement.sequence

    def holds(self, incarnation: int) -> tuple[list[int], list[int]] | None:
        """Return ids and sequences of a worker's leases; None: another process signed that worker on."""
        held = self._held.get(incarnation)
        return None if held is None else (list(held), list(held.values()))
