"""A handler that blocks the event loop for longer than the lease keeps it: the heartbeat has a thread of its own."""

from pathlib import Path

from faults.fleet import Fleet
from faults.ledger import PostgresLedger
from faults.proof import prove

LEASE_S = 6.0
"""Longer than a process may stand still on a busy machine: then it would be declared dead, and rightly."""


def test_a_blocked_event_loop_keeps_its_lease(postgres: PostgresLedger, tmp_path: Path) -> None:
    """It runs once, and so does what the same worker holds beside it."""
    gate = tmp_path / "gate"
    with Fleet(postgres, tmp_path, lease=f"{LEASE_S}s") as fleet:
        fleet.start(3)
        holds = fleet.enqueue_holds_for_all(gate, 3)
        [blocked] = fleet.enqueue("block", [(1.5 * LEASE_S,)])
        fleet.until(lambda: blocked in fleet.running([blocked]), "one worker is blocked")
        fleet.enqueue("step", [(0.01,)] * 50)
        fleet.until(lambda: not fleet.running([blocked]), "it has ended")
        gate.touch()
        fleet.until_all_have_ended()

        assert [run.task for run in fleet.effects() if run.task == blocked] == [blocked]
        assert sorted(run.task for run in fleet.effects() if run.task in holds) == holds
        assert {row.rescues for row in postgres.history()} == {0}
        prove(fleet)
