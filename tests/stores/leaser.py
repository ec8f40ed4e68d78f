"""A process that leases until nothing is left and prints what it got: `python leaser.py URL INCARNATION MOST`.

It says "ready" and waits for a line, so that several of them start at the same moment.
"""

import asyncio
import sys

from everpoll.stores.contract import WorkerCard
from everpoll.stores.urls import store_for


async def main(url: str, incarnation: int, most: int) -> None:
    store = store_for(url)
    await store.open()
    card = WorkerCard(
        incarnation=incarnation, label="leaser", host="here", pid=1, queues=("default",), slots=most, version="0"
    )
    await store.sign_on(card, 600.0)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    looked = await store.lease(incarnation, {"default": most}, most)
    while looked.leases or looked.next_due_s is not None:
        sys.stdout.write("".join(f"{lease.id}\n" for lease in looked.leases))
        looked = await store.lease(incarnation, {"default": most}, most)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
