"""A process that enqueues and runs tasks under keys that others want, too: `python contender.py URL SEED ROUNDS`.

It says "ready" and waits for a line. Then fifty callers at a time enqueue in every way there is, beside a worker that
leases and settles in batches. It prints how often it enqueued something new.
"""

import asyncio
import random
import sys

from everpoll.engine.enqueuer import Enqueuer
from everpoll.stores.contract import Ended, Enqueued, NewTask, OnConflict, Unique, WorkerCard
from everpoll.stores.urls import store_for

KEYS = 12
CALLERS = 50


def task_of(rng: random.Random) -> NewTask:
    """A task in one of the ways in which a key may be wanted."""
    way: OnConflict = rng.choice(["existing", "reject", "replace"])
    for_s = rng.choice([None, 0.05])
    key = f"k{rng.randrange(KEYS)}"
    unique = None if way != "replace" and for_s is None else Unique(way, for_s)
    return NewTask(name="job", key=key, args=str(rng.random()), unique=unique, indexed=for_s is not None)


async def caller(enqueuer: Enqueuer, rng: random.Random, rounds: int) -> int:
    """Enqueue so often; how many were new."""
    new = 0
    for _ in range(rounds):
        task = task_of(rng)
        enqueued: Enqueued = await enqueuer.one_of(task)
        new += enqueued.is_new
    return new


async def main(url: str, seed: int, rounds: int) -> None:
    """Enqueue and run."""
    store = store_for(url)
    await store.open()
    card = WorkerCard(incarnation=seed, label="c", host="here", pid=1, queues=("default",), slots=50, version="0")
    await store.sign_on(card, 600.0)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    enqueuer = Enqueuer(store)
    callers = [asyncio.create_task(caller(enqueuer, random.Random(seed * 100 + one), rounds)) for one in range(CALLERS)]
    while True:
        are_over = all(one.done() for one in callers)
        leases = (await store.lease(seed, {"default": 50}, 50)).leases
        await asyncio.sleep(0)
        lost = await store.settle(seed, [Ended(one.id, one.sequence) for one in leases])
        assert not lost, f"settlements of leases that no other worker has were lost: {lost}"
        if are_over and not leases:
            break
    sys.stdout.write(f"{sum(one.result() for one in callers)}\n")
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
