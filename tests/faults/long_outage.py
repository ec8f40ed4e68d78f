"""The faults that take too long for every run, with the figures of the requirements. By hand, from the folder `tests`:

    ../.venv/bin/python -m faults.long_outage

Postgres down for 15 s under a lease of 30 s and one of 6 s; a handler that blocks its event loop for 20 s under a lease
of 6 s; kill -9; SIGTERM with 3 s of grace. Each ends with the same proof as in the tests, and prints what was measured.
"""

# ruff: noqa: T201 - it prints, that is its purpose

import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from faults.conftest import SETTINGS
from faults.fleet import Fleet
from faults.ledger import PostgresLedger
from faults.proof import prove
from servers.databases import Databases
from servers.postgres import Cluster, cluster

OUTAGE_S, BLOCK_S = 15.0, 20.0
STEPS = 4_000


def outage(server: Cluster, ledger: PostgresLedger, folder: Path, lease: str) -> None:
    """In the middle of 4,000 short jobs; three long ones come to their end while the database is away."""
    gate = folder / "gate"
    with Fleet(ledger, folder, lease=lease, slots=10) as fleet:
        fleet.start(3)
        fleet.enqueue("hold", [(str(gate),)] * 3)
        fleet.enqueue("step", [(0.02,)] * STEPS)
        fleet.until_begun(STEPS // 4)
        server.stop()
        gone_at = time.monotonic()
        time.sleep(1)
        gate.touch()
        time.sleep(OUTAGE_S - 1)
        server.start()
        back_at = time.monotonic()
        before = len(fleet.effects())
        again_s = fleet.until(lambda: len(fleet.effects()) > before, "work goes on")
        fleet.until_all_have_ended()
        done_s = time.monotonic() - back_at
        runs = Counter(run.task for run in fleet.effects())
        history = ledger.history()
        print(f"down for {back_at - gone_at:.1f} s, lease {lease}: first job {again_s:.2f} s after it,", end=" ")
        print(f"the last {done_s:.2f} s")
        print(f"  {len(runs)} jobs, {sum(runs.values())} runs, {sum(row.rescues for row in history)} rescues,", end=" ")
        print(f"{sum(one.said('its result is dropped') for one in fleet.workers.values())} results dropped,", end=" ")
        print(f"{sum(one.said('declared dead') for one in fleet.workers.values())} workers given up")
        prove(fleet)


def blocked(_: Cluster, ledger: PostgresLedger, folder: Path, lease: str) -> None:
    """The event loop stands still for more than three leases."""
    with Fleet(ledger, folder, lease=lease) as fleet:
        fleet.start(3)
        [task] = fleet.enqueue("block", [(BLOCK_S,)])
        fleet.until(lambda: task in fleet.running([task]), "it runs")
        time.sleep(BLOCK_S)
        fleet.until_all_have_ended()
        [row] = ledger.history()
        print(f"blocked for {BLOCK_S:g} s, lease {lease}: {len(fleet.effects())} run, {row.rescues} rescues")
        prove(fleet)


def killed(_: Cluster, ledger: PostgresLedger, folder: Path, lease: str) -> None:
    """From the last beat to the burial: the lease and one rescue period at most."""
    gate = folder / "gate"
    with Fleet(ledger, folder, lease=lease) as fleet:
        fleet.start(3)
        holds = fleet.enqueue_holds_for_all(gate, 3)
        victim = fleet.busiest(holds)
        orphans = [task for task, run in fleet.running(holds).items() if run.worker == victim.label]
        victim.kill()
        elsewhere_s = fleet.until(lambda: bool(fleet.running(orphans)), "others run it")
        gate.touch()
        fleet.until_all_have_ended()
        [burial] = ledger.burials()
        print(f"kill -9, lease {lease}: rescued {burial.silent_s:.2f} s after its last beat,", end=" ")
        print(f"running elsewhere {elsewhere_s:.2f} s after the kill")
        prove(fleet, killed=[victim])


def terminated(_: Cluster, ledger: PostgresLedger, folder: Path, lease: str) -> None:
    """From SIGTERM to the end of the process, and to another worker's start of what it handed back."""
    gate = folder / "gate"
    with Fleet(ledger, folder, lease=lease, grace="3s") as fleet:
        fleet.start(3)
        holds = fleet.enqueue_holds_for_all(gate, 3)
        leaver = fleet.busiest(holds)
        left = [task for task, run in fleet.running(holds).items() if run.worker == leaver.label]
        asked_at = time.monotonic()
        leaver.process.send_signal(signal.SIGTERM)
        fleet.until(lambda: not leaver.is_running, "it ends")
        ended_s = time.monotonic() - asked_at
        fleet.until(lambda: bool(fleet.running(left)), "others run it")
        gate.touch()
        fleet.until_all_have_ended()
        stopped_at = min(run.over_at or 0.0 for run in fleet.effects() if run.worker == leaver.label)
        next_at = min(run.began_at for run in fleet.effects() if run.task in left and run.worker != leaver.label)
        print(f"SIGTERM, grace 3 s: ended after {ended_s:.2f} s,", end=" ")
        print(f"running elsewhere {1000 * (next_at - stopped_at):.0f} ms after it was stopped")
        prove(fleet)


SCENES: tuple[tuple[Callable[[Cluster, PostgresLedger, Path, str], None], str], ...] = (
    (outage, "30s"),
    (outage, "6s"),
    (blocked, "6s"),
    (killed, "6s"),
    (terminated, "30s"),
)


def main() -> None:
    """One scene after another, each on a database of its own."""
    with cluster(settings=SETTINGS) as server:
        databases = Databases(server)
        for scene, lease in SCENES:
            with databases.fresh() as url, tempfile.TemporaryDirectory() as folder:
                scene(server, PostgresLedger(url), Path(folder), lease)


if __name__ == "__main__":
    main()
