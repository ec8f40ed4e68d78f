"""A zombie: stopped past its lease, then continued. It changes nothing, learns what happened, and works on."""

from pathlib import Path

from faults.fleet import Fleet
from faults.ledger import Ledger, PostgresLedger, SqliteLedger
from faults.proof import prove
from worker_processes import WorkerProcess


def freeze(worker: WorkerProcess, ledger: Ledger) -> None:
    """Between two transactions: frozen inside one, it would hold SQLite's only lock, and no process could write."""
    worker.freeze()
    while isinstance(ledger, SqliteLedger) and ledger.is_locked():
        worker.thaw()
        worker.freeze()


def test_a_zombie_settles_nothing_and_signs_on_anew(ledger: Ledger, tmp_path: Path) -> None:
    """Others have its tasks in hand when it comes back: it may neither end them nor hand them back."""
    gate, late_gate = tmp_path / "gate", tmp_path / "late gate"
    count = 3 if isinstance(ledger, PostgresLedger) else 2
    with Fleet(ledger, tmp_path, lease="4s") as fleet:
        fleet.start(count)
        holds = fleet.enqueue_holds_for_all(gate, count)
        [clutch] = fleet.enqueue("clutch", [(str(gate),)])
        fleet.until(lambda: clutch in fleet.running([clutch]), "one worker is blocked")
        first = fleet.running([clutch])[clutch]
        zombie = fleet.workers[first.worker]
        held = [task for task, run in fleet.running(fleet.ids).items() if run.worker == zombie.label]
        assert len(held) >= 2

        freeze(zombie, ledger)
        for run in fleet.running(holds).values():
            if run.task not in held:
                Path(f"{gate}.{run.fence}").touch()  # there must be room for what the zombie held
        fleet.until(lambda: zombie.label not in workers_of(fleet, held), "others run what it held")
        fleet.until(lambda: ledger.live() == len(held), "the rest has ended")
        before = ledger.history()

        # The blocked handler comes to its end, with a result; the others are canceled, and handed back.
        Path(f"{gate}.{first.fence}").touch()
        zombie.thaw()
        fleet.until(lambda: zombie.said("its result is dropped") >= len(held), "it tells of each loss")
        fleet.until(lambda: zombie.said("signed on as") >= 2, "it signs on anew")
        assert zombie.said("was declared dead; it drops what it held and signs on anew")
        runs = [run for run in fleet.effects() if run.task == clutch]
        assert (runs[0].has_ended, runs[-1].has_ended) == (True, False)
        assert ledger.history() == before
        assert zombie.label not in workers_of(fleet, held)
        gate.touch()
        fleet.until_all_have_ended()

        late = fleet.enqueue_holds_for_all(late_gate, count)
        assert zombie.label in workers_of(fleet, late)
        late_gate.touch()
        fleet.until_all_have_ended()
        prove(fleet, frozen=[zombie])


def workers_of(fleet: Fleet, ids: list[int]) -> set[str]:
    """Who runs these, by the last that was heard of each."""
    return {run.worker for run in fleet.running(ids).values()}
