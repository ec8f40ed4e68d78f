"""A process that writes events as fast as it can: `event_writer.py URL NAME EVENTS`."""

import asyncio
import sys

from everpoll.stores.contract import NewEvent, NewTask
from everpoll.stores.urls import store_for


async def main(url: str, name: str, events: int) -> None:
    store = store_for(url)
    await store.open()
    for number in range(events):
        task = NewTask(
            name=name, kind="watch", key=f"{name}:{number}", delay_s=3600, indexed=True, events=(NewEvent(1, "{}"),)
        )
        await store.enqueue([task])
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
