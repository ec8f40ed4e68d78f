"""An outage that all workers share kills none of them: dead is a worker that does not beat while others do."""

import logging
from pathlib import Path

import pytest

from faults.fleet import Fleet
from faults.ledger import Ledger, PostgresLedger, SqliteLedger
from faults.proof import prove, prove_no_live_worker_was_given_up
from faults.shared_outages import WORKERS, frozen, lead_through, locked, stopped, until_all_have_beaten
from faults.ways import Way
from servers.databases import Databases

logger = logging.getLogger(__name__)

LEASE_S = 5.0
SHORT_S, LONG_S = 3.0, 8.0
REAL_LEASE_S = 30.0
REAL_S = (20.0, 60.0, 20.0)
SLACK_S = 20.0
"""For a machine that has other things to do."""
STEP_S = 10.0


def found_in_time_s(lease_s: float) -> float:
    """A lease and a beat, counted from the first beat after the outage, which comes within another one."""
    return lease_s + 2 * lease_s / 3 + SLACK_S


def test_three_outages_in_a_row_cost_no_result_and_no_live_worker(
    fault_server: Databases, postgres: PostgresLedger, tmp_path: Path
) -> None:
    """Each of another kind. A worker that is killed in the last one is found as soon as ever."""
    with (
        Way("proxy", postgres.url) as way,
        Fleet(postgres, tmp_path, lease=f"{LEASE_S}s", url=way.url) as fleet,
    ):
        outages = [
            (frozen(way), SHORT_S),
            (stopped(fault_server.server), LONG_S),
            (frozen(fault_server.server), LONG_S),
        ]
        assert lead_through(fleet, tmp_path, outages).after_s <= found_in_time_s(LEASE_S)


def test_a_sqlite_file_that_is_locked_for_long_costs_no_result_and_no_live_worker(tmp_path: Path) -> None:
    """No worker can beat, so no worker is dead."""
    ledger = SqliteLedger(tmp_path / "tasks.db")
    with Fleet(ledger, tmp_path, lease=f"{LEASE_S}s") as fleet:
        found = lead_through(fleet, tmp_path, [(locked(ledger), LONG_S)])
        assert found.after_s <= found_in_time_s(LEASE_S)


def test_a_clock_that_steps_kills_no_worker_and_begins_no_task_twice(ledger: Ledger, tmp_path: Path) -> None:
    """By more than three leases, in the middle of work."""
    gate = tmp_path / "gate"
    with Fleet(ledger, tmp_path, lease=f"{LEASE_S}s") as fleet:
        fleet.start(WORKERS)
        holds = fleet.enqueue_holds_for_all(gate, WORKERS)
        before = ledger.beats()
        ledger.step_clock(STEP_S)
        until_all_have_beaten(fleet, before)
        gate.touch()
        fleet.until_all_have_ended()
        assert len(fleet.effects()) == len(holds), "each of them was begun once"
        prove_no_live_worker_was_given_up(fleet)
        prove(fleet)


@pytest.mark.prove
@pytest.mark.parametrize("kind", ["stopped", "frozen", "proxy", "pooler", "locked"])
def test_long_outages_cost_no_result_and_no_live_worker(kind: str, fault_server: Databases, tmp_path: Path) -> None:
    """Three in a row, with the figures of production: 20, 60 and 20 seconds under a lease of 30."""
    lease, patience_s = f"{REAL_LEASE_S}s", 4 * REAL_LEASE_S + SLACK_S
    if kind == "locked":
        file = SqliteLedger(tmp_path / "tasks.db")
        with Fleet(file, tmp_path, lease=lease, patience_s=patience_s) as fleet:
            found = lead_through(fleet, tmp_path, [(locked(file), length_s) for length_s in REAL_S])
    elif kind in {"stopped", "frozen"}:
        outage = (stopped if kind == "stopped" else frozen)(fault_server.server)
        with (
            fault_server.fresh() as url,
            Fleet(PostgresLedger(url), tmp_path, lease=lease, patience_s=patience_s) as fleet,
        ):
            found = lead_through(fleet, tmp_path, [(outage, length_s) for length_s in REAL_S])
    else:
        with (
            fault_server.fresh() as url,
            Way(kind, url) as way,
            Fleet(PostgresLedger(url), tmp_path, lease=lease, patience_s=patience_s, url=way.url) as fleet,
        ):
            found = lead_through(fleet, tmp_path, [(frozen(way), length_s) for length_s in REAL_S])
    logger.info("%s: the killed worker was declared dead %.1f s after the last outage", kind, found.after_s)
    assert found.after_s <= found_in_time_s(REAL_LEASE_S)
