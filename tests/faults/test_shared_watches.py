"""Two processes share the watches; after one is killed, the other has them all within a lease."""

import asyncio
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from faults.ledger import Ledger
from faults.watchers import GATE, LOOKS, watchers
from worker_processes import WorkerProcess

RUNS = 300
GIVE_UP_S = 60.0


def test_when_one_of_two_is_killed_the_other_looks_at_all_runs_and_each_ends_once(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, gate = tmp_path / "looks", tmp_path / "gate"
    file.touch()
    monkeypatch.setenv(LOOKS, str(file))
    monkeypatch.setenv(GATE, str(gate))
    env = {**os.environ, "EVERPOLL_URL": ledger.url}
    asyncio.run(_begun(ledger.url))
    workers = [WorkerProcess(label, tmp_path, env, "faults.watchers:app", "5s") for label in ("w1", "w2")]
    try:
        _until(lambda: len(_looked(file, "w1")) > 20 and len(_looked(file, "w2")) > 20, "both look")
        workers[0].kill()
        before = file.stat().st_size
        _until(lambda: len(_looked(file, "w2", before)) == RUNS, "the other one has them all")
        gate.touch()
        _until(lambda: not ledger.live(), "all have ended")
    finally:
        for worker in workers:
            if worker.is_running:
                worker.kill()
    assert Counter(row.state for row in ledger.history()) == {"done": RUNS}
    lines = [line.split() for line in file.read_text().splitlines()]
    # The kill may fall between a start or a cleanup and its settlement: both are done again under the same key.
    starts = Counter(run for what, run, _ in lines if what == "start")
    assert (len(starts), set(starts.values()) <= {1, 2}) == (RUNS, True)
    assert sum(starts.values()) <= RUNS + 4, "no more than the slots of the killed process"
    assert len({run for what, run, _ in lines if what == "clean"}) == RUNS


async def _begun(url: str) -> None:
    app = watchers(url)
    await asyncio.gather(*(app.watches["query"].begin({}, id=f"r{number}") for number in range(RUNS)))
    await app.close()


def _looked(file: Path, worker: str, after: int = 0) -> set[str]:
    """The runs that this worker has looked at, as told after that place in the file."""
    with file.open() as text:
        text.seek(after)
        lines = [line.split() for line in text.read().splitlines()]
    return {one[1] for one in lines if len(one) == 3 and one[0] == "look" and one[2] == worker}


def _until(condition: object, wanted: str) -> None:
    assert callable(condition)
    give_up_at = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < give_up_at, f"not within {GIVE_UP_S:g} s: {wanted}"
        time.sleep(0.1)
