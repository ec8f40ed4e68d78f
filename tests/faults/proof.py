"""What must hold after any fault: every job ended once, under the right fence, and no process died of it."""

import signal
from collections import Counter, defaultdict
from collections.abc import Collection
from itertools import pairwise

from faults.effects import Effect
from faults.fleet import Fleet
from worker_processes import WorkerProcess, story_of


def prove(fleet: Fleet, *, killed: Collection[WorkerProcess] = (), frozen: Collection[WorkerProcess] = ()) -> None:
    """Invariants 1 to 5 and 10, from what the handlers did and what history says; then all workers end in peace."""
    runs: dict[int, list[Effect]] = defaultdict(list)
    for run in fleet.effects():
        runs[run.task].append(run)
    history = fleet.ledger.history()
    assert [row.id for row in history] == sorted(fleet.ids), "each task is in history, once"
    assert fleet.ledger.live() == 0
    lawless = {worker.label for worker in (*killed, *frozen)}
    for row in history:
        mine = runs[row.id]
        last = mine[-1]
        outcome = (row.state, row.attempt, last.attempt)
        assert outcome == ("done", 1, 1), f"nothing that came back cost an attempt: {row}"
        owner, lease = (row.incarnation, row.sequence), (last.incarnation, last.sequence)
        assert (owner, row.result) == (lease, last.fence), f"settled by who had it last, with its result: {row} {mine}"
        assert last.has_ended, f"settled without having ended: {row} {last}"
        sequences = [run.sequence for run in mine]
        assert sequences == sorted(set(sequences)), f"the sequence grows with every lease: {mine}"
        assert_one_at_a_time(mine, lawless)
    assert_all_are_well(fleet, {worker.label for worker in killed})


def prove_no_live_worker_was_given_up(fleet: Fleet, killed: WorkerProcess | None = None) -> None:
    """No result that a handler finished was dropped, and only what the killed worker held was rescued.

    Call this while all other workers live: one that has signed off looks like one that was declared dead.
    """
    dead = set() if killed is None else {killed.label}
    assert {one.label for one in fleet.ledger.burials()} == dead, story_of(fleet.workers.values())
    assert fleet.ledger.losses() == 0
    for row in fleet.ledger.history():
        assert row.rescues == len(row.lost_by) <= len(dead), f"rescued from a live worker: {row}"
        assert set(row.lost_by) <= dead, f"rescued from a live worker: {row}"
    # What the killed worker had finished and not settled is gone with it.
    ended = Counter(run.task for run in fleet.effects() if run.has_ended and run.worker not in dead)
    assert all(count == 1 for count in ended.values()), "a handler that has finished is not run again"
    verdicts = {
        entry["message"].split()[1]
        for worker in fleet.workers.values()
        for entry in worker.log()
        if "declaring it dead" in entry["message"]
    }
    assert verdicts == (set() if killed is None else set(killed.incarnations()))
    for worker in fleet.workers.values():
        assert len(worker.incarnations()) == 1, f"{worker.label} signed on anew\n{story_of([worker])}"
        assert not worker.said("was declared dead")
        assert not worker.said("its result is dropped")


def assert_one_at_a_time(runs: list[Effect], lawless: set[str]) -> None:
    """A task runs at one place at a time; what a killed or frozen process did cannot be known."""
    for earlier, later in pairwise(runs):
        if earlier.worker not in lawless:
            assert earlier.over_at is not None, f"two at once: {earlier} {later}"
            assert earlier.over_at <= later.began_at, f"two at once: {earlier} {later}"


def assert_all_are_well(fleet: Fleet, killed: set[str]) -> None:
    """A process that was not killed lives, reported no bug, and ends with 0 when it is asked to."""
    alive = [worker for label, worker in fleet.workers.items() if label not in killed]
    gone = [(one.label, one.process.poll()) for one in alive if one.process.poll() not in {None, 0}]
    assert not gone, f"a worker died\n{story_of(fleet.workers.values())}"
    for worker in fleet.workers.values():
        bugs = [one for one in worker.log() if one["level"] in {"critical", "raw"} or "traceback" in one]
        assert not bugs, f"{worker.label} had something to report: {bugs}"
    # A process that is still importing has no handler for the signal yet, and would die of it.
    fleet.until(lambda: all(has_begun(worker) for worker in alive), "all have tried to sign on")
    for worker in alive:
        if worker.is_running:
            worker.process.send_signal(signal.SIGTERM)
    fleet.until(lambda: not any(worker.is_running for worker in alive), "all have ended")
    assert [worker.process.returncode for worker in alive] == [0] * len(alive), story_of(fleet.workers.values())


def has_begun(worker: WorkerProcess) -> bool:
    """Whether the worker has tried to sign on, or has ended."""
    return not worker.is_running or any(
        worker.said(words) for words in ("signed on as", "cannot sign on", "cannot start")
    )
