"""kill -9, twice: what the dead held is done by others, and losing its worker twice costs a task nothing."""

from pathlib import Path

from faults.fleet import Fleet
from faults.ledger import Ledger, PostgresLedger
from faults.proof import prove

LEASE_S = 4.0
"""Longer than a process stands still on a busy machine: one that does is declared dead, and rightly."""
RESCUE_PERIOD_S = LEASE_S / 3
SLACK_S = 20.0
"""For a machine that has other things to do; the figures of a quiet one are in `long_outage.py`."""


def test_what_killed_workers_held_is_rescued_and_done(ledger: Ledger, tmp_path: Path) -> None:
    """Among it tasks that lose their worker twice: no poison yet, and no attempt used."""
    gate = tmp_path / "gate"
    count = 3 if isinstance(ledger, PostgresLedger) else 2
    with Fleet(ledger, tmp_path, lease=f"{LEASE_S}s") as fleet:
        fleet.start(count)
        holds = fleet.enqueue_holds_for_all(gate, count)
        fleet.enqueue("step", [(0.02,)] * 100)

        first = fleet.busiest(holds)
        orphans = [task for task, run in fleet.running(holds).items() if run.worker == first.label]
        first.kill()
        fleet.start_one_soon()
        fleet.until(lambda: fleet.running(holds).keys() == set(holds), "others run what the first one held")

        second = fleet.busiest(orphans)
        twice = [task for task in orphans if fleet.running(orphans)[task].worker == second.label]
        second.kill()
        fleet.start_one_soon()
        fleet.until(lambda: fleet.running(holds).keys() == set(holds), "others run what the second one held")

        gate.touch()
        fleet.until_all_have_ended()
        rescues = {row.id: row.rescues for row in ledger.history()}
        assert [rescues[task] for task in twice] == [2] * len(twice)
        for burial in ledger.burials():
            assert LEASE_S <= burial.silent_s <= LEASE_S + RESCUE_PERIOD_S + SLACK_S
        prove(fleet, killed=[first, second])
