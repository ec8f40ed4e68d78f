"""The database is away for longer than the lease: workers stop what they may not own any more, and go on after it."""

import asyncio
import time
from pathlib import Path

from everpoll.stores.contract import Beat, Ended, NewTask, WorkerCard
from everpoll.stores.postgres import PostgresStore
from faults.fleet import Fleet
from faults.ledger import PostgresLedger
from faults.proof import prove
from servers.databases import Databases

LEASE_S = 2.0


def test_an_outage_longer_than_the_lease_ends_no_worker_and_no_job(
    fault_server: Databases, postgres: PostgresLedger, tmp_path: Path
) -> None:
    """Every worker fences itself before others could take over: so nothing runs at two places, ever."""
    gate = tmp_path / "gate"
    with Fleet(postgres, tmp_path, lease=f"{LEASE_S}s") as fleet:
        workers = fleet.start(3)
        holds = fleet.enqueue_holds_for_all(gate, 3)
        fleet.enqueue("step", [(0.02,)] * 100)
        fleet.until_begun(len(holds) + 20)

        fault_server.server.stop()
        gone_at = time.monotonic()
        fleet.until(lambda: all(one.said("heartbeat failed") for one in workers), "every worker notices")
        fleet.until(lambda: all(one.said("no heartbeat for") for one in workers), "every worker fences itself")
        fleet.until(lambda: not fleet.running(fleet.ids), "its handlers have ended")
        fleet.until(lambda: time.monotonic() > gone_at + LEASE_S, "every lease has run out")
        fault_server.server.start()

        fleet.until(lambda: fleet.running(holds).keys() == set(holds), "all run again")
        gate.touch()
        fleet.until_all_have_ended()
        prove(fleet)


async def test_who_was_cut_off_itself_gives_nobody_up_at_once(postgres: PostgresLedger) -> None:
    """The others were cut off by the same outage: what they have computed is theirs to settle, and no death is counted.

    They have until its next beat. Without that, whoever comes back first would bury all the others.
    """
    passed_s = 0.0
    store = PostgresStore(postgres.url)
    store._silence._clock = lambda: passed_s
    await store.open()
    await store.enqueue([NewTask(name="job")])
    for worker in (1, 2):
        card = WorkerCard(incarnation=worker, label="", host="", pid=1, queues=("default",), slots=1, version="0")
        await store.sign_on(card, 60)
    [lease] = (await store.lease(1, {"default": 1}, 1)).leases

    passed_s = 60.0
    await asyncio.to_thread(postgres.ask, "update everpoll.workers set expires_at = now() - interval '1 second'")
    assert (await asyncio.to_thread(beat_once, store, 2)).rescued == 0
    assert await store.settle(1, [Ended(lease.id, lease.sequence)]) == set()

    await store.enqueue([NewTask(name="job")])
    await store.lease(1, {"default": 1}, 1)
    passed_s += 20.0
    assert (await asyncio.to_thread(beat_once, store, 2)).rescued == 1
    await store.close()


def beat_once(store: PostgresStore, worker: int) -> Beat:
    pulse = store.pulse()
    try:
        return pulse.beat(worker, 60, None, [])
    finally:
        pulse.close()
