"""Host slots: limits how many looks at one host run at a time, and chooses which waiting look is next.

Promises: no host has more running looks than the limit. When a look ends, its slot goes at once to the waiting look at
the service that was looked at least recently (a service never looked at comes first; of two equal ones, the look that
has waited longer). So no service starves: between two looks at one service, every other waiting service gets a slot. A
host without looks costs no memory. Nothing here waits: `enter` answers at once, `leave` returns the looks that may
begin.
"""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

from everpoll.policy import whole_number

Ticket = TypeVar("Ticket", bound=Hashable)
_NEVER = float("-inf")


class _Host(Generic[Ticket]):
    """The looks at one host."""

    __slots__ = ("queue", "under_way", "waiting")

    def __init__(self) -> None:
        self.under_way: set[Ticket] = set()
        self.waiting: dict[Ticket, int] = {}
        """The tickets of waiting looks, each with the number of its arrival."""
        self.queue: list[tuple[float, int, Ticket]] = []
        """A heap of (last look, arrival, ticket). Entries of looks that gave up stay in it until they are popped."""

    def tidy(self) -> None:
        """Drop the entries of looks that gave up, once they are more than half."""
        if len(self.queue) > 2 * len(self.waiting) + 16:
            self.queue = [entry for entry in self.queue if self.waiting.get(entry[2]) == entry[1]]
            heapq.heapify(self.queue)


class HostSlots(Generic[Ticket]):
    """The slots of all hosts in one process. A ticket identifies one look; it is in use once at a time."""

    def __init__(self, per_host: int = 5) -> None:
        self._limit = _checked(per_host)
        self._hosts: dict[str, _Host[Ticket]] = {}
        self._arrivals = 0
        self.waiting_in_all = 0
        """How many looks wait for a slot, of all hosts."""

    @property
    def per_host(self) -> int:
        """The limit."""
        return self._limit

    def limit(self, per_host: int) -> list[Ticket]:
        """Set the limit; return the waiting looks that may begin now."""
        self._limit = _checked(per_host)
        return [ticket for host in list(self._hosts) for ticket in self._granted(host)]

    def enter(self, host: str, ticket: Ticket, looked_at: float | None) -> bool:
        """Ask for a slot; return False if the look must wait until `leave` or `limit` returns its ticket.

        `looked_at` is when its service was last looked at; None: never.
        """
        looks = self._hosts.get(host)
        if looks is None:
            looks = self._hosts[host] = _Host()
        assert ticket not in looks.under_way, "a look has one slot"
        assert ticket not in looks.waiting, "a look waits once"
        if len(looks.under_way) < self._limit and not looks.waiting:
            looks.under_way.add(ticket)
            return True
        self._arrivals += 1
        looks.waiting[ticket] = self._arrivals
        self.waiting_in_all += 1
        heapq.heappush(looks.queue, (_NEVER if looked_at is None else looked_at, self._arrivals, ticket))
        return False

    def leave(self, host: str, ticket: Ticket) -> list[Ticket]:
        """End a look, or stop waiting for a slot; return the waiting looks that may begin now."""
        looks = self._hosts.get(host)
        if looks is None:
            return []
        looks.under_way.discard(ticket)
        if looks.waiting.pop(ticket, None) is not None:
            self.waiting_in_all -= 1
            looks.tidy()
        return self._granted(host)

    def under_way(self, host: str) -> int:
        """Return how many looks at a host are under way."""
        looks = self._hosts.get(host)
        return 0 if looks is None else len(looks.under_way)

    def waiting(self, host: str) -> int:
        """Return how many looks wait for a slot of a host."""
        looks = self._hosts.get(host)
        return 0 if looks is None else len(looks.waiting)

    def busiest(self) -> str:
        """Return the host for which most looks wait. At least one look must wait."""
        return max(self._hosts, key=lambda host: len(self._hosts[host].waiting))

    def last(self, host: str) -> tuple[float | None, Ticket]:
        """Return the last look in the queue, and when its service was last looked at; the queue must not be empty."""
        looks = self._hosts[host]
        looked_at, _, ticket = max(entry for entry in looks.queue if looks.waiting.get(entry[2]) == entry[1])
        return (None if looked_at == _NEVER else looked_at), ticket

    def __len__(self) -> int:
        """Return how many hosts have looks that run or wait."""
        return len(self._hosts)

    def _granted(self, host: str) -> list[Ticket]:
        looks = self._hosts[host]
        granted = []
        while looks.queue and len(looks.under_way) < self._limit:
            _, arrival, ticket = heapq.heappop(looks.queue)
            if looks.waiting.get(ticket) == arrival:
                del looks.waiting[ticket]
                self.waiting_in_all -= 1
                looks.under_way.add(ticket)
                granted.append(ticket)
        if not looks.waiting:
            looks.queue.clear()
            if not looks.under_way:
                del self._hosts[host]
        return granted


def _checked(per_host: int) -> int:
    accepted = "how many looks at one host may run at a time, at least 1"
    return whole_number(per_host, name="per_host", at_least=1, accepted=accepted)
