"""huey 3.x on SQLite: its consumer with one thread, which measured best, and the shortest rests it takes."""

import asyncio
import logging
import threading
import time
from typing import Any

from huey import SqliteHuey  # type: ignore[import-not-found]

from bench.arms import gate


async def drain(order: gate.Order) -> None:
    jobs, ran, began, all_ran = order["jobs"], 0, 0.0, threading.Event()
    huey = SqliteHuey("bench", filename=order["path"], fsync=order["fsync"], cache_mb=16)

    def noop(*_: Any) -> None:
        nonlocal ran, began
        if not ran:
            began = time.perf_counter()
        ran += 1
        if ran == jobs:
            all_ran.set()

    task = huey.task()(noop)
    for _ in range(jobs):
        task(*gate.ARGS)
    logging.disable(logging.CRITICAL)
    rests = {"initial_delay": 0.001, "backoff": 1, "max_delay": 0.001}
    consumer = huey.create_consumer(workers=1, periodic=False, check_worker_health=False, **rests)
    gate.ready()
    cpu_s = time.process_time()
    consumer.start()
    await asyncio.to_thread(all_ran.wait)
    ended, cpu_s = time.perf_counter(), time.process_time() - cpu_s
    await gate.report(rate=jobs / (ended - began), python_us=cpu_s / jobs * 1e6)
    consumer.stop(graceful=True)


if __name__ == "__main__":
    gate.main({"drain": drain})
