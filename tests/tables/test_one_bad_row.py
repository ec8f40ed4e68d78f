"""A row that the user's own trigger refuses to have changed stops no other, and costs no worker its heartbeat."""

import logging

import pytest

from everpoll.tables import Guard, Row
from everpoll.tables.refusals import LIMIT, REST_S, Refusals
from tables.sqlite_stage import SqliteStage
from tables.stages import HOUR_S, TableStage, keys


async def refuse(stage: TableStage, key: int, *words: str) -> None:
    """From now on, every change of this row is refused; with words, only a change to such a status."""
    which = f"old.id = {key}" + (f" and new.status in {(*words, '-')}" if words else "")
    if isinstance(stage, SqliteStage):
        await stage.execute(
            f"create trigger refuses before update on jobs when {which} "
            "begin select raise(abort, 'row under audit'); end"
        )
        return
    await stage.execute(
        "create function refused() returns trigger language plpgsql as "
        "$$ begin raise exception 'row under audit'; end $$"
    )
    await stage.execute(
        f"create trigger refuses before update on jobs for each row when ({which}) execute function refused()"
    )


async def nothing(row: Row) -> None:
    """Do nothing."""


async def test_a_row_that_cannot_be_claimed_stops_no_other(stage: TableStage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    await stage.create()
    await stage.queue(*range(1, 9))
    await refuse(stage, 1)
    async with stage.working(nothing, slots=2):
        await stage.until(lambda rows: [row["status"] for row in rows] == ["queued"] + ["completed"] * 7)
    answer = [record.getMessage() for record in caplog.records if "row under audit" in record.getMessage()]
    assert answer
    assert len(answer) < 5, "it is told, and not again and again"


@pytest.mark.parametrize("how", ["rollback, 'row under audit'", "fail, 'row under audit'", "ignore"])
async def test_whatever_a_trigger_does_to_a_claim_stops_no_other_row(sqlite_stage: SqliteStage, how: str) -> None:
    await sqlite_stage.create()
    await sqlite_stage.queue(1, 2, 3)
    await sqlite_stage.execute(f"create trigger t before update on jobs when old.id = 2 begin select raise({how}); end")
    async with sqlite_stage.claimer() as claimer:
        taken = [key for _ in range(4) for key in keys(await claimer.take())]
        last = await claimer.look()
    assert taken == [1, 3]
    assert (last.next_due_s, last.missed) == (None, 0), "it is left alone, and no reason to look again at once"


async def test_a_row_that_cannot_be_beaten_for_costs_the_others_nothing(stage: TableStage) -> None:
    await stage.create()
    await stage.queue(1, 2)
    async with stage.claimer() as claimer:
        leases = await claimer.take()
        await stage.age(100, "last_heartbeat")
        before = {row["id"]: row["last_heartbeat"] for row in await stage.rows()}
        await refuse(stage, 1)
        assert (await claimer.beat(*leases)).canceled == ()
        heard = {row["id"]: row["last_heartbeat"] for row in await stage.rows()}
    assert heard[1] == before[1]
    assert heard[2] > before[2]


async def test_a_row_that_cannot_be_given_back_holds_up_no_other_and_no_beat(stage: TableStage) -> None:
    await stage.create()
    await stage.queue(1, 2, 3)
    async with stage.claimer(label="dead") as dead, stage.claimer(label="alive") as alive:
        assert keys(await dead.take(2)) == [1, 2]
        await stage.age(HOUR_S, "last_heartbeat", "started_at")
        mine = await alive.take_one()
        await refuse(stage, 1)
        beat = await alive.beat(mine)
        assert (beat.is_alive, beat.rescued, beat.canceled) == (True, 1, ())
    assert await stage.statuses() == {1: "running", 2: "queued", 3: "running"}


async def test_a_trigger_that_ends_the_beats_transaction_costs_one_beat(sqlite_stage: SqliteStage) -> None:
    """What the beat had written before is lost with it; the next beats leave that row alone."""
    await sqlite_stage.create()
    await sqlite_stage.queue(1, 2, 3)
    async with sqlite_stage.claimer(label="dead") as dead, sqlite_stage.claimer(label="alive") as alive:
        assert keys(await dead.take(2)) == [1, 2]
        await sqlite_stage.age(HOUR_S, "last_heartbeat", "started_at")
        mine = await alive.take_one()
        await sqlite_stage.execute(
            "create trigger t before update on jobs when old.id = 1 begin select raise(rollback, 'audit'); end"
        )
        beats = [await alive.beat(mine) for _ in range(2)]
        assert [beat.is_alive for beat in beats] == [True, True]
    assert await sqlite_stage.statuses() == {1: "running", 2: "queued", 3: "running"}


async def test_a_row_whose_end_is_refused_has_failed_and_says_why(stage: TableStage, guard: Guard) -> None:
    await stage.create()
    await stage.queue(*range(1, 6))
    await refuse(stage, 3, "completed")
    mapping = stage.mapping(guard=guard)
    async with stage.working(nothing, mapping, slots=5):
        rows = await stage.until_all("completed", "failed")
    assert [row["id"] for row in rows if row["status"] == "failed"] == [3]
    assert "row under audit" in rows[2]["error"]
    assert rows[2]["retry_count"] == 1


async def test_a_row_that_cannot_end_at_all_is_told_and_the_others_go_on(
    stage: TableStage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.create()
    await stage.queue(1, 2)
    await refuse(stage, 1, "completed", "failed", "queued")
    beats = {"heartbeat_every": "50ms", "stale_after": "150ms"}
    async with stage.working(nothing, stage.mapping(**beats), slots=2) as working:
        await stage.until(lambda _: "cannot be handed back" in caplog.text)
        await stage.queue(*range(3, 30))
        await stage.until(lambda rows: [row["status"] for row in rows] == ["running"] + ["completed"] * 28)
        assert working.app.health().healthy
    assert caplog.text.count("cannot be handed back") == 1


def test_what_is_refused_is_left_alone_for_a_while_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    refusals = Refusals("jobs", "claimed", lambda: now[0])
    for _ in range(3):
        refusals.add(7, ValueError("no"))
    assert (refusals.known(), caplog.text.count("row 7 cannot be claimed")) == ({7}, 1)
    now[0] = REST_S
    assert refusals.known() == set()
    for key in range(LIMIT + 5):
        refusals.add(key, ValueError("no"))
    assert refusals.known() == set(range(5, LIMIT + 5))
