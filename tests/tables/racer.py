"""One of several pollers that want the same rows: `python -m tables.racer ORDER`, all of them setting out together.

Standard input is a socket to the test, which lets them set out. The last line is what this one won.
"""

import asyncio
import json
import random
import socket
import sys
from typing import Any

from everpoll.stores.contract import WorkerCard
from everpoll.tables import Table
from everpoll.tables.row import RowLease
from everpoll.tables.urls import source_for
from tables.stages import MAPPED


async def race(order: dict[str, Any], others: socket.socket) -> list[Any]:
    """The keys that this poller claimed, until nothing is left."""
    options = {**MAPPED, "columns": (), "guard": order["guard"]}
    source = source_for(order["url"], Table("jobs", **options), order["token"])
    await source.open()
    card = WorkerCard(incarnation=7, label=order["label"], host="here", pid=1, queues=(), slots=1, version="0")
    await source.sign_on(card, 3600)
    rng = random.Random(order["label"])
    won: list[Any] = []
    empty = 0
    while empty < 3:
        others.send(b".")
        assert others.recv(1), "the others are gone"
        look = await source.lease(7, {"jobs": 500}, rng.randint(1, order["batch"]))
        won += [lease.row_key for lease in look.leases if isinstance(lease, RowLease)]
        empty = 0 if look.leases or look.missed or look.next_due_s == 0 else empty + 1
    others.send(b"x")
    await source.close()
    return won


if __name__ == "__main__":
    order = json.loads(sys.argv[1])
    with socket.socket(fileno=sys.stdin.fileno()) as others:
        print(json.dumps(asyncio.run(race(order, others))))  # noqa: T201 - the answer
