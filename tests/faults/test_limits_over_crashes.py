"""kill -9 and SIGSTOP past the lease: no limit is exceeded by live runs, and no slot of it is lost or freed twice."""

import math
import time
from collections import defaultdict
from pathlib import Path

from faults.effects import Effect
from faults.fleet import Fleet
from faults.ledger import Ledger, PostgresLedger
from faults.test_frozen_workers import freeze

LIMIT, KEYS, EACH = 2, ("a", "b", "c"), 5


def test_limits_hold_over_kills_and_freezes(ledger: Ledger, tmp_path: Path) -> None:
    gate, late_gate = tmp_path / "gate", tmp_path / "late gate"
    count = 3 if isinstance(ledger, PostgresLedger) else 2
    gone_at: dict[tuple[str, str], float] = {}
    with Fleet(ledger, tmp_path, lease="2s", slots=LIMIT * len(KEYS)) as fleet:
        fleet.start(count)
        ids = fleet.enqueue("limited", [(key, str(gate)) for _ in range(EACH) for key in KEYS])
        keys = dict(zip(ids, KEYS * EACH, strict=True))

        def live(without: str = "") -> dict[str, int]:
            running = [run for run in fleet.running(keys).values() if run.worker != without]
            counts = dict.fromkeys(KEYS, 0)
            for run in running:
                counts[keys[run.task]] += 1
            return counts

        full = dict.fromkeys(KEYS, LIMIT)
        fleet.until(lambda: live() == full, "as many run as may")

        killed = fleet.busiest(ids)
        held = [run for run in fleet.running(ids).values() if run.worker == killed.label]
        killed.kill()
        gone_at |= {(run.worker, run.fence): time.monotonic() for run in held}
        fleet.start()
        fleet.until(lambda: live() == full, "others took the slots of the killed worker")

        frozen = fleet.busiest(ids)
        held = [run for run in fleet.running(ids).values() if run.worker == frozen.label]
        freeze(frozen, ledger)
        gone_at |= {(run.worker, run.fence): time.monotonic() for run in held}
        fleet.until(lambda: live(without=frozen.label) == full, "others took the slots of the frozen worker")
        frozen.thaw()
        fleet.until(lambda: frozen.said("signed on as") >= 2, "it signs on anew")

        gate.touch()
        fleet.until_all_have_ended()
        assert most_at_once(fleet.effects(), keys, gone_at) == LIMIT

        # Whatever was lost with the workers: all slots are there again.
        late = fleet.enqueue("limited", [(key, str(late_gate)) for key in KEYS for _ in range(LIMIT + 1)])
        keys = dict(zip(late, [key for key in KEYS for _ in range(LIMIT + 1)], strict=True))
        fleet.until(lambda: live() == full, "as many run as at first")
        late_gate.touch()
        fleet.until_all_have_ended()
        assert most_at_once(fleet.effects(), keys, gone_at) == LIMIT


def most_at_once(runs: list[Effect], keys: dict[int, str], gone_at: dict[tuple[str, str], float]) -> int:
    """Return how many live runs a key had at any instant; runs of a killed or frozen process do not count."""
    steps: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for run in runs:
        if run.task in keys:
            over_at = math.inf if run.over_at is None else run.over_at
            steps[keys[run.task]] += [
                (run.began_at, 1),
                (min(over_at, gone_at.get((run.worker, run.fence), math.inf)), -1),
            ]
    most = 0
    for of_key in steps.values():
        running = 0
        for _, change in sorted(of_key):
            running += change
            most = max(most, running)
    return most
