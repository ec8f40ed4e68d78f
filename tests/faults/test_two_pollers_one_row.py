"""Two pollers, one row: exactly one claims (A3), 10,000 times over, in two processes."""

import asyncio
import json
import socket
import subprocess
import sys
from collections import Counter

from everpoll.stores.contract import NewTask
from everpoll.stores.urls import store_for
from faults.fleet import GIVE_UP_S
from faults.ledger import Ledger
from worker_processes import TESTS

ROUNDS, BATCH = 10_000, 20
"""A statement looks into twenty queues with one row each: both pollers race for each row."""


async def enqueue_rounds(url: str) -> list[int]:
    store = store_for(url)
    await store.open()
    enqueued = await store.enqueue([NewTask(name="row", queue=f"round {number}") for number in range(ROUNDS)])
    await store.close()
    return [one.id for one in enqueued]


def test_exactly_one_claims(ledger: Ledger) -> None:
    """No row twice, none left, and both have won: there was a race."""
    ids = asyncio.run(enqueue_rounds(ledger.url))
    racers = []
    for end in socket.socketpair():
        with end:
            command = [sys.executable, "-m", "faults.racer", ledger.url, str(ROUNDS), str(BATCH), str(end.fileno())]
            racers.append(
                subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, text=True, pass_fds=[end.fileno()])
            )
    try:
        won = [json.loads(racer.communicate(timeout=4 * GIVE_UP_S)[0]) for racer in racers]
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()
    assert Counter(won[0] + won[1]) == Counter(ids)
    assert all(won)
