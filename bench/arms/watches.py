"""everpoll's watches: many live runs, each looked at now and then, for as long as the order says."""

import asyncio
import random
import time
from typing import Any

from msgspec.structs import replace

from bench.arms import gate
from everpoll import Backoff, Budget, Everpoll
from everpoll.watches import Wait
from everpoll.watches.memory import Decision, RunMemory, encode

FILL = 5_000


def make(order: gate.Order, late: list[float]) -> Everpoll:
    app = Everpoll(order["url"], slots=order.get("slots", 50))

    @app.watch(every=Backoff(order["every_s"], factor=1, jitter=0.1), budget=Budget("1d"))
    async def query(_op: Any, w: Any) -> Wait:
        # What a look does not tell its user: when it was meant to be.
        last = w._memory.log[-1]  # noqa: SLF001
        late.append(w._now - (last.at + (last.next_s or 0.0)))  # noqa: SLF001
        return Wait()

    return app


async def fill(app: Everpoll, order: gate.Order) -> None:
    """Runs in the middle of their life, due at any time of the next interval."""
    store, rng, now = await app.store(), random.Random(7), time.time()
    from_s, watch = order.get("from_s", 3.0), app.watches["query"]
    for start in range(0, order["runs"], FILL):
        tasks = []
        for number in range(start, min(start + FILL, order["runs"])):
            delay_s = from_s + rng.uniform(0, order["every_s"])
            log = [Decision(now, "cadence", "the cadence waits so", delay_s)]
            memory = RunMemory(f"r{number}", "looking", f"id-{number}", started_at=now, begun_at=now, looks=3, log=log)
            task = watch.new_task({"sql": "select 1"}, f"r{number}", f"id-{number}", delay_s)
            tasks.append(replace(task, memory=encode(memory), events=()))
        await store.enqueue(tasks)


async def watches(order: gate.Order) -> None:
    late: list[float] = []
    app = make(order, late)
    await fill(app, order)
    gate.ready()
    async with app:
        await asyncio.sleep(order["warm_s"])
        late.clear()
        cpu_s, began = time.process_time(), time.perf_counter()
        await asyncio.sleep(order["lasts_s"])
        took_s, cpu_s, taken = time.perf_counter() - began, time.process_time() - cpu_s, sorted(late)
        await gate.report(
            rate=len(taken) / took_s,
            python_us=cpu_s / max(1, len(taken)) * 1e6,
            p50_ms=taken[len(taken) // 2] * 1e3,
            p99_ms=taken[int(len(taken) * 0.99)] * 1e3,
        )


if __name__ == "__main__":
    gate.main({"watches": watches})
