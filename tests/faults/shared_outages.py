"""Outages that all workers share, and how a fleet is led through several of them in a row."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from faults.fleet import Fleet
from faults.ledger import SqliteLedger
from faults.proof import prove, prove_no_live_worker_was_given_up
from faults.ways import Way
from servers.postgres import Cluster
from worker_processes import WorkerProcess

WORKERS = 3
STEPS = 60
BEATS_SEEN = 2
"""So often every worker beats between two outages."""

Outage = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a worker that was killed in the middle of the last outage."""

    worker: WorkerProcess
    after_s: float
    """From the end of that outage until it was declared dead."""


def stopped(server: Cluster) -> Outage:
    """Postgres is shut down, and started again."""

    @contextmanager
    def outage() -> Iterator[None]:
        server.stop()
        try:
            yield
        finally:
            server.start()

    return outage


def frozen(target: Cluster | Way) -> Outage:
    """Postgres, or what stands before it, neither answers nor closes a connection."""

    @contextmanager
    def outage() -> Iterator[None]:
        target.freeze()
        try:
            yield
        finally:
            target.thaw()

    return outage


def locked(ledger: SqliteLedger) -> Outage:
    """Another program holds SQLite's only lock."""

    @contextmanager
    def outage() -> Iterator[None]:
        with closing(ledger.locked()):
            yield

    return outage


def lead_through(fleet: Fleet, folder: Path, outages: Sequence[tuple[Outage, float]]) -> Found:
    """One outage after another, each in the middle of work; then the proof. A worker is killed during the last one.

    At least one of them is longer than the lease, so that workers fence themselves.
    """
    fleet.start(WORKERS)
    for number, (outage, length_s) in enumerate(outages[:-1]):
        gate = folder / f"gate {number}"
        holds = enqueue_work(fleet, gate)
        before = fleet.ledger.beats()
        with lasting(outage, length_s):
            finish_one_of_each(fleet, gate, holds)
        until_all_have_beaten(fleet, before)
        gate.touch()
        fleet.until_all_have_ended()
        prove_no_live_worker_was_given_up(fleet)

    outage, length_s = outages[-1]
    gate = folder / "last gate"
    holds = enqueue_work(fleet, gate)
    before = fleet.ledger.beats()
    with lasting(outage, length_s):
        finish_one_of_each(fleet, gate, holds)
        victim = fleet.busiest(holds)
        victim.kill()
    found_s = fleet.until(lambda: bool(fleet.ledger.burials()), "the killed worker is declared dead")
    until_all_have_beaten(fleet, before)
    gate.touch()
    fleet.until_all_have_ended()
    assert any(one.said("no heartbeat for") for one in fleet.workers.values()), "no outage was felt"
    prove_no_live_worker_was_given_up(fleet, victim)
    prove(fleet, killed=[victim])
    return Found(victim, found_s)


@contextmanager
def lasting(outage: Outage, length_s: float) -> Iterator[None]:
    """The outage, for so long, whatever is done meanwhile; the length of a fault, which decides nothing."""
    with outage():
        over_at = time.monotonic() + length_s
        yield
        time.sleep(max(0.0, over_at - time.monotonic()))


def enqueue_work(fleet: Fleet, gate: Path) -> list[int]:
    """Handlers that hold on at every worker, and short ones of which some have begun; those that hold on."""
    holds = fleet.enqueue_holds_for_all(gate, WORKERS)
    begun = len(fleet.effects())
    fleet.enqueue("step", [(0.02,)] * STEPS)
    fleet.until_begun(begun + STEPS // 4)
    return holds


def finish_one_of_each(fleet: Fleet, gate: Path, holds: Sequence[int]) -> None:
    """Let one handler of every worker come to its end while its result cannot be stored, and wait for that.

    One that the fence cancels before is over as well.
    """
    chosen = {run.worker: run for run in fleet.running(holds).values()}
    for run in chosen.values():
        Path(f"{gate}.{run.fence}").touch()
    tasks = [run.task for run in chosen.values()]
    fleet.until(lambda: not fleet.running(tasks), "one handler of every worker is over")


def until_all_have_beaten(fleet: Fleet, before: dict[str, int]) -> None:
    """Every worker that lives, several times since then."""

    def have() -> bool:
        now = fleet.ledger.beats()
        alive = [label for label, worker in fleet.workers.items() if worker.is_running]
        return all(now.get(label, 0) >= before[label] + BEATS_SEEN for label in alive)

    fleet.until(have, "every worker beats again, under the same incarnation")
