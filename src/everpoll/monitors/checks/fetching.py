"""Fetching: sends the requests of looks, one for all services with the same request, and a few at a time to each host.

    shared(key) ──▶ not in flight ──▶ slot of the host ──▶ send ──▶ the answer is for every look that waits for the key
                └─▶ in flight: wait for its answer

Promises: services with the same method, URL and headers share a request while it is in flight, and never an earlier
answer. At most `per_host` requests to one host run at a time; `HostSlots` orders the waiting ones.
A waiting look occupies a slot of the worker, so their number is limited: beyond `most_waiting` looks at one host, the
looks whose services were looked at most recently leave; beyond `most_in_all` looks in this process, those at the host
with the most waiting looks leave. A look that leaves raises `HostBusy`, and its task is due again after 1 to 10 s, when
about half of the waiting looks have had their slot: each return costs a lease.
If one caller is canceled, the others still get their answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, NamedTuple, TypeVar

from everpoll.monitors.host_slots import HostSlots

T = TypeVar("T")


SHORTEST_REST_S, LONGEST_REST_S = 1.0, 10.0
PACE_WEIGHT = 0.1
"""The weight of the newest value in the moving average of the time between two granted slots."""


class HostBusy(Exception):
    """Too many looks already wait for a slot of this host: try again in `rest_s`."""

    def __init__(self, rest_s: float = SHORTEST_REST_S) -> None:
        super().__init__()
        self.rest_s = rest_s


class _Pace(NamedTuple):
    """How often a waiting look at one host gets a slot."""

    at: float
    """When the last slot was granted."""
    mean_s: float
    """The mean time between two granted slots."""


class _RequestUnderWay:
    """One request in flight, and the callers that wait for its answer."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[Any]] = []


class Fetching:
    """The requests of one process. Belongs to one event loop."""

    def __init__(self, per_host: int, most_waiting: int = 200, most_in_all: int = 500) -> None:
        self._slots: HostSlots[int] = HostSlots(per_host)
        self._most_waiting = most_waiting
        self.most_in_all = most_in_all
        self._turns: dict[int, asyncio.Future[None]] = {}
        self._flights: dict[Hashable, _RequestUnderWay] = {}
        self._tickets = 0
        self._paces: dict[str, _Pace] = {}
        """The pace of each host for which looks wait."""

    def waiting(self, host: str) -> int:
        """Return how many looks wait for a slot of a host."""
        return self._slots.waiting(host)

    async def shared(self, key: Hashable, host: str, looked_at: float | None, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the answer of `ask`, or that of a request in flight with the same key."""
        while (flight := self._flights.get(key)) is not None:
            landed: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
            flight.waiting.append(landed)
            answer = await landed
            if answer is not None:
                return answer
            # The caller that sent the request was canceled: one of the waiting callers sends it again.
        flight = self._flights[key] = _RequestUnderWay()
        self._tickets += 1
        ticket = self._tickets
        try:
            if self._slots.waiting(host) >= self._most_waiting:
                self._make_room(host, looked_at)
            if not self._slots.enter(host, ticket, looked_at):
                await self._turn(host, ticket)
            try:
                answer = await ask()
            finally:
                self._leave(host, ticket)
        except BaseException as error:
            self._land(key, flight, None, error)
            raise
        self._land(key, flight, answer, None)
        return answer

    def _land(self, key: Hashable, flight: _RequestUnderWay, answer: Any, error: BaseException | None) -> None:
        del self._flights[key]
        for landed in flight.waiting:
            if landed.done():
                continue
            if isinstance(error, Exception) and not isinstance(error, HostBusy):
                landed.set_exception(error)
            else:
                landed.set_result(answer)

    async def _turn(self, host: str, ticket: int) -> None:
        """Wait until the host has a slot for this look."""
        turn = self._turns[ticket] = asyncio.get_running_loop().create_future()
        if self._slots.waiting_in_all > self.most_in_all:
            self._send_away(self._slots.busiest())
        try:
            await turn
        except BaseException:
            self._leave(host, ticket)
            raise
        finally:
            del self._turns[ticket]

    def _make_room(self, host: str, looked_at: float | None) -> None:
        """Make the last look in the queue leave; raise `HostBusy` if the new look would be the last one."""
        last_at, _ = self._slots.last(host)
        if last_at is None or (looked_at is not None and looked_at >= last_at):
            raise HostBusy(self._rest_s(host))
        self._send_away(host)

    def _send_away(self, host: str) -> None:
        """Make the last look in this host's queue leave and come back later."""
        _, last = self._slots.last(host)
        self._leave(host, last)
        turn = self._turns[last]
        if not turn.done():
            turn.set_exception(HostBusy(self._rest_s(host)))

    def _rest_s(self, host: str) -> float:
        """Return how long a look stays away: until half of the waiting looks have had their slot."""
        pace = self._paces.get(host)
        turns_s = 0.0 if pace is None else pace.mean_s * self._slots.waiting(host) / 2
        return min(max(SHORTEST_REST_S, turns_s), LONGEST_REST_S)

    def _note_turns(self, host: str, turns: int) -> None:
        if not self._slots.waiting(host):
            self._paces.pop(host, None)
            return
        now, before = asyncio.get_running_loop().time(), self._paces.get(host)
        if before is None:
            self._paces[host] = _Pace(now, 0.0)
            return
        each_s = (now - before.at) / turns
        weight = PACE_WEIGHT if before.mean_s else 1.0
        self._paces[host] = _Pace(now, before.mean_s + weight * (each_s - before.mean_s))

    def _leave(self, host: str, ticket: int) -> None:
        turns = self._slots.leave(host, ticket)
        if turns:
            self._note_turns(host, len(turns))
        for granted in turns:
            turn = self._turns.get(granted)
            if turn is not None and not turn.done():
                turn.set_result(None)
