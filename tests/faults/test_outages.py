"""The database is away for longer than the lease: workers stop what they may not own any more, and go on after it."""

import time
from pathlib import Path

from faults.fleet import Fleet
from faults.ledger import PostgresLedger
from faults.proof import prove
from servers.databases import Databases

LEASE_S = 4.0


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
