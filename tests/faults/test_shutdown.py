"""SIGTERM with a grace period that is too short for the job: handed back, at no cost, and picked up at once."""

import signal
from pathlib import Path

from faults.fleet import Fleet
from faults.ledger import PostgresLedger
from faults.proof import prove


def test_what_is_handed_back_is_picked_up_at_once(postgres: PostgresLedger, tmp_path: Path) -> None:
    """Long before the lease ends, and before any worker looks by itself: a notification woke it."""
    gate = tmp_path / "gate"
    with Fleet(postgres, tmp_path, lease="60s", grace="0.2s") as fleet:
        fleet.start(3)
        holds = fleet.enqueue_holds_for_all(gate, 3)
        leaver = fleet.busiest(holds)
        left = [task for task, run in fleet.running(holds).items() if run.worker == leaver.label]
        room = 2 * fleet.slots - (len(holds) - len(left))
        assert room >= 1

        leaver.process.send_signal(signal.SIGTERM)
        fleet.until(lambda: not leaver.is_running, "it ends")
        assert leaver.process.returncode == 0
        fleet.until(lambda: len(fleet.running(left)) == room, "others run as much of it as they have room for")
        gate.touch()
        fleet.until_all_have_ended()

        history = {row.id: row for row in postgres.history()}
        assert [history[task].trail for task in left] == [("hand-back",)] * len(left)
        assert {row.rescues for row in history.values()} == {0}
        prove(fleet)
