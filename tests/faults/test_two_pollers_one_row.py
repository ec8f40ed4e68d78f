"""Two pollers, one row: exactly one claims, thousands of times over, in two processes."""

import asyncio
import json
import socket
from collections import Counter

import pytest

from everpoll.stores.contract import NewTask
from everpoll.stores.urls import store_for
from faults.fleet import GIVE_UP_S
from faults.ledger import Ledger
from warm_processes import PIPE, TESTS, WarmProcess

BATCH = 20
"""A statement looks into twenty queues with one row each: both pollers race for each row."""


async def enqueue_rounds(url: str, rounds: int) -> list[int]:
    store = store_for(url)
    await store.open()
    enqueued = await store.enqueue([NewTask(name="row", queue=f"round {number}") for number in range(rounds)])
    await store.close()
    return [one.id for one in enqueued]


@pytest.mark.parametrize("rounds", [2_000, pytest.param(10_000, marks=pytest.mark.prove)])
def test_exactly_one_claims(ledger: Ledger, rounds: int) -> None:
    """No row is claimed twice and none is left, although both pollers asked for every row at the same moment.

    Which poller wins how often is up to the scheduler, so the test does not ask. The racers meet before each
    statement: that both asked for all rows is what makes it a race.
    """
    ids = asyncio.run(enqueue_rounds(ledger.url, rounds))
    racers = []
    for end in socket.socketpair():
        with end:
            command = ["-m", "faults.racer", ledger.url, str(rounds), str(BATCH)]
            racers.append(WarmProcess(command, cwd=TESTS, stdin=end, stdout=PIPE))
    try:
        reports = [json.loads(racer.communicate(timeout=4 * GIVE_UP_S)[0]) for racer in racers]
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()
    assert [report["asked"] for report in reports] == [rounds, rounds]
    assert Counter(reports[0]["won"] + reports[1]["won"]) == Counter(ids)
