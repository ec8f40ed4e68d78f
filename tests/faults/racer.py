"""One of two pollers that want the same row, round after round: `python -m faults.racer URL ROUNDS BATCH`.

Standard input is a socket to the other one.

Before each batch both wait for each other, so that they always set out together. The output is one JSON object: how
many rows this poller asked for, and the ids that it won.
"""

import asyncio
import json
import secrets
import socket
import sys

from everpoll.stores.contract import WorkerCard
from everpoll.stores.urls import store_for


async def race(url: str, rounds: int, batch: int, other: socket.socket) -> dict[str, object]:
    """Race for every row. Each round has a queue of its own, with one row in it."""
    store = store_for(url)
    await store.open()
    me = secrets.randbits(63)
    await store.sign_on(
        WorkerCard(incarnation=me, label="racer", host="here", pid=1, queues=(), slots=1, version="0"), 3600
    )
    won: list[int] = []
    asked = 0
    for first in range(0, rounds, batch):
        other.send(b".")
        assert other.recv(1), "the other one is gone"
        rooms = {f"round {number}": 1 for number in range(first, first + batch)}
        asked += len(rooms)
        won += [lease.id for lease in (await store.lease(me, rooms, batch)).leases]
    await store.close()
    return {"asked": asked, "won": won}


if __name__ == "__main__":
    url, rounds, batch = sys.argv[1:]
    with socket.socket(fileno=sys.stdin.fileno()) as other:
        print(json.dumps(asyncio.run(race(url, int(rounds), int(batch), other))))  # noqa: T201 - the answer
