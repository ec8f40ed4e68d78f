"""A row with a value that Python cannot read, or an instant outside of its calendar, stops no other row."""

from datetime import UTC, date, datetime, time

import pytest

from everpoll.drivers.calendar import LAST_INSTANT
from tables.postgres_stage import PostgresStage
from tables.postgrest_stage import PostgRestStage
from tables.sqlite_stage import SqliteStage
from tables.stages import TableStage, keys

CREATE = """create table odd (id integer primary key, status text, created_at {instant}, worker_id text,
    started_at {instant}, due_at {instant}, day date, payload {payload}, until time)"""


async def test_json_that_python_cannot_read_reaches_its_handler_as_text(postgres_stage: PostgresStage) -> None:
    await postgres_stage.execute(CREATE.format(instant="timestamptz", payload="json"))
    too_deep = "[" * 5_000 + "]" * 5_000
    await postgres_stage.execute("""insert into odd (id, status, payload) values
        (1, 'queued', '{"a": 1}'), (2, 'queued', '1e400'), (3, 'queued', '"\\ud800"'),
        (4, 'queued', (repeat('[', 5000) || repeat(']', 5000))::json)""")
    async with postgres_stage.claimer(postgres_stage.bare("odd", order_by="id")) as claimer:
        payloads = [row.values["payload"] for row in await claimer.take()]
    assert payloads == [{"a": 1}, "1e400", '"\\ud800"', too_deep]


@pytest.mark.parametrize("guard", ["skip_locked", "status"])
async def test_an_answer_that_cannot_be_read_loses_no_row(postgrest_stage: PostgRestStage, guard: str) -> None:
    await postgrest_stage.create()
    await postgrest_stage.execute("alter table jobs alter payload type json using payload::json")
    await postgrest_stage.queue(1, 2, 3)
    await postgrest_stage.execute("update jobs set payload = '1e400' where id = 1")
    await postgrest_stage.execute(
        "update jobs set payload = (repeat('[', 5000) || repeat(']', 5000))::json where id = 2"
    )
    async with postgrest_stage.claimer(postgrest_stage.mapping(guard=guard)) as claimer:
        taken = [key for _ in range(4) for key in keys(await claimer.take())]
    assert taken == [1, 3]
    assert await postgrest_stage.statuses() == {1: "running", 2: "queued", 3: "running"}


async def test_instants_outside_of_the_calendar_are_read_as_its_first_or_last(postgres_stage: PostgresStage) -> None:
    await postgres_stage.execute(CREATE.format(instant="timestamptz", payload="text"))
    await postgres_stage.execute("""insert into odd (id, status, created_at, due_at, day, until) values
        (1, 'queued', '10001-01-01', null, '0044-03-15 BC', '24:00'),
        (2, 'queued', '0044-03-15 BC', null, '10001-01-01', null),
        (3, 'queued', '2025-01-31 09:30Z', null, '2025-01-31', '12:00'), (4, 'queued', null, 'infinity', null, null)""")
    mapping = postgres_stage.bare("odd", order_by="id", due_at="due_at", columns=("created_at", "day", "until"))
    async with postgres_stage.claimer(mapping) as claimer:
        assert [tuple(row.values.values()) for row in await claimer.take()] == [
            (datetime.max, date.min, time.max),  # noqa: DTZ901 - as the driver reads what is infinite
            (datetime.min, date.max, None),  # noqa: DTZ901 - see above
            (datetime(2025, 1, 31, 9, 30, tzinfo=UTC), date(2025, 1, 31), time(12)),
        ]
        assert ((await claimer.look()).next_due_s or 0) > 1e9


async def test_a_due_time_at_infinity_is_no_reason_to_stop_looking(stage: TableStage) -> None:
    if isinstance(stage, SqliteStage):
        return  # its instants are not infinite
    await stage.create()
    await stage.queue(1)
    await stage.execute("update jobs set due_at = 'infinity'")
    async with stage.claimer() as claimer:
        assert ((await claimer.look()).next_due_s or 0) > 1e9
        state = await claimer.source.row_state("1")
        assert state is not None
        assert state.due_at == LAST_INSTANT


async def test_a_text_that_is_not_utf8_reaches_its_handler_as_bytes(sqlite_stage: SqliteStage) -> None:
    await sqlite_stage.create()
    await sqlite_stage.queue(1, 2, payload="fine")
    await sqlite_stage.execute("update jobs set payload = cast(x'61ff62' as text) where id = 1")
    async with sqlite_stage.claimer() as claimer:
        assert [row.values["payload"] for row in await claimer.take()] == [b"a\xffb", "fine"]


async def test_a_due_time_in_milliseconds_can_be_explained(sqlite_stage: SqliteStage) -> None:
    await sqlite_stage.execute(CREATE.format(instant="integer", payload="text"))
    await sqlite_stage.execute("insert into odd (id, status, due_at) values (1, 'queued', 1763500000000)")
    async with sqlite_stage.claimer(sqlite_stage.bare("odd", due_at="due_at")) as claimer:
        state = await claimer.source.row_state("1")
        assert keys(await claimer.take()) == []
    assert state is not None
    assert state.due_at == LAST_INSTANT


async def test_a_count_of_retries_that_is_no_number_is_taken_for_none(sqlite_stage: SqliteStage) -> None:
    await sqlite_stage.create()
    await sqlite_stage.queue(1, 2, 3)
    await sqlite_stage.execute("update jobs set retry_count = iif(id = 1, 'two', 9e999) where id < 3")
    async with sqlite_stage.claimer() as claimer:
        assert [row.attempt for row in await claimer.take()] == [1, 1, 1]
