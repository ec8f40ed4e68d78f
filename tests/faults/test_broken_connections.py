"""Connections are cut, the server restarts and crashes, in the middle of the work: nothing is lost, nothing runs twice.

The lease is long, so every worker keeps what it has: a result computed meanwhile is settled later, a settlement whose
answer got lost is recognized, and a lease whose answer got lost is handed back unrun.
"""

import signal
from collections.abc import Callable
from pathlib import Path

from faults.fleet import Fleet
from faults.ledger import PostgresLedger
from faults.proof import prove
from servers.databases import Databases

STEPS = 2_400


def test_every_job_runs_exactly_once(fault_server: Databases, postgres: PostgresLedger, tmp_path: Path) -> None:
    """Many short jobs, and a few that go on all the while."""
    gate = tmp_path / "gate"
    cut, restart = postgres.cut_connections, fault_server.server.restart
    strikes: list[Callable[[], None]] = [cut, restart, cut, lambda: restart(signal.SIGQUIT), cut]
    with Fleet(postgres, tmp_path, lease="20s", slots=10) as fleet:
        fleet.start(3)
        holds = fleet.enqueue("hold", [(str(gate),)] * 3)
        fleet.enqueue("step", [(0.02,)] * STEPS)
        for part, strike in enumerate(strikes, start=1):
            fleet.until_begun(part * STEPS // (len(strikes) + 1))
            strike()
        gate.touch()
        fleet.until_all_have_ended()

        assert len(fleet.effects()) == len(fleet.ids)
        assert {row.rescues for row in postgres.history()} == {0}
        assert all(run.has_ended for run in fleet.effects() if run.task in holds)
        assert sum(worker.said("its result is dropped") for worker in fleet.workers.values()) == 0
        prove(fleet)
