"""Claims, rescue and shutdown with real processes: killed, ended, frozen, and racing each other under every guard."""

import json
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from everpoll.tables import Guard
from tables.fleet import TableFleet
from tables.stages import GIVE_UP_S, JOBS, TableStage
from warm_processes import PIPE, WarmProcess
from worker_processes import TESTS

STALE: dict[str, Any] = {"heartbeat_every": "300ms", "stale_after": "2500ms"}
RACERS = 4
BATCH = 10


@pytest.fixture(autouse=True)
def has_processes(stage: TableStage) -> None:
    """Not where a database belongs to one process."""
    if not stage.has_processes:
        pytest.skip(f"{stage.name} belongs to one process")


async def test_a_killed_workers_row_is_given_back_and_fails_after_three(stage: TableStage, tmp_path: Path) -> None:
    await stage.create()
    await stage.queue(1, payload=str(tmp_path / "never"))
    with TableFleet(stage, tmp_path, **STALE) as fleet:
        for attempt in (1, 2, 3):
            [worker] = await fleet.start()
            await fleet.until_begun(attempt)
            assert (await stage.one(1))["retry_count"] == attempt - 1
            worker.kill()
        await fleet.start()
        [row] = await stage.until_all("failed")
        assert (row["retry_count"], row["worker_id"]) == (3, "w3")
        assert [one["attempt"] for one in fleet.effects("began")] == [1, 2, 3]


async def test_a_worker_that_is_told_to_end_puts_its_rows_back_at_once(stage: TableStage, tmp_path: Path) -> None:
    await stage.create()
    await stage.queue(1, 2, payload=str(tmp_path / "never"))
    with TableFleet(stage, tmp_path) as fleet:
        [worker] = await fleet.start()
        await fleet.until_begun(2)
        worker.end()
        await fleet.until(lambda: not worker.is_running, "it has ended")
        assert worker.process.returncode == 0
        rows = await stage.rows()
        assert [(row["status"], row["retry_count"], row["worker_id"]) for row in rows] == [("queued", 0, None)] * 2
        assert len(fleet.effects("stopped")) == 2


async def test_a_frozen_worker_that_comes_back_changes_nothing(stage: TableStage, tmp_path: Path) -> None:
    """Its row was given to another worker meanwhile, which still has it."""
    gate = tmp_path / "gate"
    await stage.create()
    await stage.queue(1, payload=str(gate))
    with TableFleet(stage, tmp_path, **STALE) as fleet:
        [zombie] = await fleet.start()
        await fleet.until_begun(1)
        await fleet.freeze(zombie)
        [heir] = await fleet.start()
        await fleet.until_begun(2)
        row = await stage.one(1)
        assert (row["status"], row["retry_count"], row["worker_id"]) == ("running", 1, heir.label)
        zombie.thaw()
        await fleet.until(lambda: zombie.said("its result is dropped") > 0, "it tells of its loss")
        after = await stage.one(1)
        assert (after["worker_id"], after["started_at"]) == (heir.label, row["started_at"])
        gate.touch()
        [row] = await stage.until_all("completed")
        assert (row["worker_id"], row["retry_count"]) == (heir.label, 1)
        assert zombie.is_running


@pytest.mark.parametrize("has_ended", [False, True], ids=["in hand", "ended"])
async def test_a_frozen_worker_of_the_same_name_as_its_heir_changes_nothing(
    stage: TableStage, tmp_path: Path, has_ended: bool
) -> None:
    """`WORKER_ID` was given to both: the start tells them apart."""
    gate = tmp_path / "gate"
    await stage.create()
    await stage.queue(1, payload=str(gate))
    with TableFleet(stage, tmp_path, **STALE) as fleet:
        fleet.share_name("vdi-7")
        [zombie] = await fleet.start()
        await fleet.until_begun(1)
        await fleet.freeze(zombie)
        await fleet.start()
        await fleet.until_begun(2)
        if has_ended:
            gate.touch()
            await stage.until_all("completed")
        row = await stage.one(1)
        zombie.thaw()
        await fleet.until(lambda: zombie.said("its result is dropped") > 0, "it tells of its loss")
        after = await stage.one(1)
        row["last_heartbeat"] = after["last_heartbeat"]
        assert after == row
        gate.touch()
        [row] = await stage.until_all("completed")
        assert (row["worker_id"], row["started_at"], row["retry_count"]) == ("vdi-7", after["started_at"], 1)


@pytest.mark.parametrize("rounds", [2_000, pytest.param(10_000, marks=pytest.mark.prove)])
async def test_thousands_of_rounds_with_all_guards_and_no_double_claim(
    stage: TableStage, tmp_path: Path, rounds: int
) -> None:
    """Four processes want the same rows, each under its own guard: every row is claimed by exactly one of them."""
    await stage.create(JOBS)
    keys = list(range(rounds))
    await fill(stage, keys)
    for guard in stage.guards:
        await stage.prepare(stage.mapping(columns=(), guard=guard))
    won = race(stage, tmp_path, list(stage.guards))
    assert Counter(key for one in won for key in one) == Counter(keys)
    assert all(won), "each of them won some"
    rows = await stage.rows()
    claimed_by = {row["id"]: row["worker_id"] for row in rows}
    assert claimed_by == {key: f"racer-{number}" for number, one in enumerate(won) for key in one}
    assert {row["status"] for row in rows} == {"running"}


async def test_a_fleet_of_all_guards_does_every_row_once_though_one_of_it_is_killed(
    stage: TableStage, tmp_path: Path
) -> None:
    """What the dead one held is done by others; nothing else costs an attempt, and nothing ends twice."""
    gate = tmp_path / "gate"
    await stage.create()
    await stage.queue(1, 2, payload=str(gate))
    with TableFleet(stage, tmp_path, slots=2, **STALE) as fleet:
        [doomed] = await fleet.start(guard=stage.guards[0])
        await fleet.until_begun(2)
        for guard in stage.guards:
            await fleet.start(guard=guard)
        await stage.queue(*range(3, 123), payload="")
        doomed.kill()
        await stage.until(lambda rows: all(row["status"] == "completed" for row in rows[2:]))
        await fleet.until_begun(124)
        gate.touch()
        rows = await stage.until_all("completed")
        assert [row["retry_count"] for row in rows] == [1, 1, *[0] * 120]
        assert Counter(one["key"] for one in fleet.effects("ended")) == Counter(str(row["id"]) for row in rows)


async def fill(stage: TableStage, keys: list[int]) -> None:
    """One by one takes too long."""
    for first in range(0, len(keys), 500):
        values = ", ".join(f"({key}, 'queued')" for key in keys[first : first + 500])
        await stage.execute(f"insert into jobs (id, status) values {values}")  # noqa: S608 - numbers


def race(stage: TableStage, folder: Path, guards: list[Guard]) -> list[list[int]]:
    """What each won. All wait for each other before every look, so that they set out together."""
    ends: list[socket.socket] = []
    racers: list[WarmProcess] = []
    try:
        for number in range(RACERS):
            ours, theirs = socket.socketpair()
            ends.append(ours)
            order = {
                "url": stage.url,
                "token": stage.token,
                "guard": guards[number % len(guards)],
                "label": f"racer-{number}",
                "batch": BATCH,
            }
            with (folder / f"racer-{number}.log").open("wb") as log, theirs:
                command = ["-m", "tables.racer", json.dumps(order)]
                racers.append(WarmProcess(command, cwd=TESTS, stdin=theirs, stdout=PIPE, stderr=log))
        start_together(ends)
        return [json.loads(racer.communicate(timeout=4 * GIVE_UP_S)[0]) for racer in racers]
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()
        for end in ends:
            end.close()


def start_together(ends: list[socket.socket]) -> None:
    """When all remaining processes want to set out, they may. A process that is done says `x`."""
    left = list(ends)
    while left:
        said = [(end, end.recv(1)) for end in left]
        left = [end for end, word in said if word == b"."]
        for end in left:
            end.send(b".")
