"""everpoll as a monitor of services, and the same requests from a bare aiohttp loop that keeps nothing.

Looks are counted once the store has confirmed them, so what is counted is in the history.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

from bench.arms import gate
from everpoll import Everpoll
from everpoll.http import HttpClient, Request
from everpoll.stores.contract import Store
from everpoll.stores.health import NewLook

ASKING = 100
"""Requests under way at a time in the bare loop."""


def make(order: gate.Order) -> Everpoll:
    """An app with so many services at one target."""
    app = Everpoll(order["url"])
    every_s = order["every_s"]
    app.services.configure(shortest=every_s, per_host=order["per_host"], slots=order["slots"])
    for number in range(order["services"]):
        where = f"http://127.0.0.1:{order['port']}/{order['path']}/{number}"
        app.service(f"service-{number}", where, every=every_s, format=order["format"], fresh=order["fresh"])
    return app


class Recorded:
    """The looks that are in the history: when each was made, by service."""

    def __init__(self, store: Store) -> None:
        self.looks: list[tuple[str, float]] = []
        health = store.health
        record = health.record

        async def recorded(looks: Sequence[NewLook]) -> None:
            await record(looks)
            self.looks.extend([(look.service, look.at) for look in looks])

        health.record = recorded  # type: ignore[method-assign]


async def checks(order: gate.Order) -> None:
    """Look as often as this process can."""
    app = make(order)
    store = await app.store()
    recorded = Recorded(store)
    async with app:
        await asyncio.sleep(order["warm_s"])
        await gate.ready_meanwhile()
        recorded.looks.clear()
        cpu_s, began = time.process_time(), time.perf_counter()
        await asyncio.sleep(order["lasts_s"])
        took_s, cpu_s, count = time.perf_counter() - began, time.process_time() - cpu_s, len(recorded.looks)
        await gate.report(rate=count / took_s, count=count, cpu_s=cpu_s)


async def punctual(order: gate.Order) -> None:
    """Look at many services on time; lateness is the distance of each look from its slot."""
    app = make(order)
    store = await app.store()
    recorded = Recorded(store)
    phases = {name: one.phase_s for name, one in app.services._definitions.items()}  # noqa: SLF001
    every_s = order["every_s"]
    async with app:
        # The first look comes within 5 s, off the grid; the second is at most one and a half intervals later.
        await asyncio.sleep(min(order["warm_s"], 6.0 + every_s * 1.5))
        await gate.ready_meanwhile()
        recorded.looks.clear()
        cpu_s, began = time.process_time(), time.perf_counter()
        await asyncio.sleep(order["lasts_s"])
        took_s, cpu_s, looks = time.perf_counter() - began, time.process_time() - cpu_s, list(recorded.looks)
        late = sorted(_late(at, phases[name], every_s) for name, at in looks)
        await gate.report(
            rate=len(looks) / took_s,
            cpu_share=cpu_s / took_s,
            p50_ms=late[len(late) // 2] * 1e3,
            p99_ms=late[int(len(late) * 0.99)] * 1e3,
            max_ms=late[-1] * 1e3,
            distance_s=_distance(looks),
            longest_s=_longest(looks),
        )


def _late(at: float, phase_s: float, every_s: float) -> float:
    late_s = (at - phase_s) % every_s
    return late_s if late_s < every_s * 0.9 else late_s - every_s  # a look may begin a moment before its slot


def _longest(looks: Sequence[tuple[str, float]]) -> float:
    """The longest time from one look at a service to its next."""
    last: dict[str, float] = {}
    longest_s = 0.0
    for name, at in sorted(looks, key=lambda look: look[1]):
        longest_s = max(longest_s, at - last.get(name, at))
        last[name] = at
    return longest_s


def _distance(looks: Sequence[tuple[str, float]]) -> float | None:
    """The mean time from one look at a service to its next."""
    by_service: defaultdict[str, list[float]] = defaultdict(list)
    for name, at in looks:
        by_service[name].append(at)
    spans = [(max(ats) - min(ats), len(ats) - 1) for ats in by_service.values() if len(ats) > 1]
    return sum(span for span, _ in spans) / sum(count for _, count in spans) if spans else None


async def bare(order: gate.Order) -> None:
    """Ask with aiohttp, read the body, keep nothing."""
    import aiohttp  # noqa: PLC0415 - the other arms do without it

    connector = aiohttp.TCPConnector(limit=0, force_close=order["fresh"])
    async with aiohttp.ClientSession(connector=connector) as session:

        async def ask(url: str) -> None:
            async with session.get(url) as answer:
                await answer.read()

        await _asking(order, ask)


async def lean(order: gate.Order) -> None:
    """Ask with the client that everpoll makes plain looks with, keep nothing: what the sockets alone cost."""
    client = HttpClient(environment=None)

    async def ask(url: str) -> None:
        await client.send(Request(url, fresh=order["fresh"]))

    try:
        await _asking(order, ask)
    finally:
        await client.close()


async def _asking(order: gate.Order, ask: Callable[[str], Awaitable[None]]) -> None:
    """Ask as often as this process can."""
    count = 0
    is_over = False

    async def one_after_another(first: int) -> None:
        nonlocal count
        number = first
        while not is_over:
            number = (number + ASKING) % order["services"]
            await ask(f"http://127.0.0.1:{order['port']}/{order['path']}/{number}")
            count += 1

    asking = [asyncio.create_task(one_after_another(number)) for number in range(ASKING)]
    await asyncio.sleep(min(2.0, order["warm_s"]))
    await gate.ready_meanwhile()
    count, cpu_s, began = 0, time.process_time(), time.perf_counter()
    await asyncio.sleep(order["lasts_s"])
    took_s, cpu_s, asked = time.perf_counter() - began, time.process_time() - cpu_s, count
    is_over = True
    await asyncio.gather(*asking)
    await gate.report(rate=asked / took_s, count=asked, cpu_s=cpu_s)


if __name__ == "__main__":
    gate.main({"checks": checks, "punctual": punctual, "bare": bare, "lean": lean})
