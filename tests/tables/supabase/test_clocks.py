"""The database's clock decides wherever it can be asked, and no clock where clocks disagree."""

from datetime import UTC, datetime, timedelta

import pytest

from everpoll.drivers.postgrest import clock
from everpoll.drivers.postgrest.clock import DatabaseClock
from everpoll.tables.supabase import SupabaseTable, heartbeat_connection
from servers.postgrest import token
from tables.postgrest_stage import PostgRestStage

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
HEADER = "Tue, 01 Jan 2030 12:00:00 GMT"


class Times:
    """A clock of seconds and one on the wall, set by hand."""

    def __init__(self) -> None:
        self.passed_s = 100.0
        self.wall = NOON

    def database(self) -> DatabaseClock:
        return DatabaseClock(lambda: self.passed_s, lambda: self.wall)

    def wait(self, seconds: float) -> None:
        self.passed_s += seconds
        self.wall += timedelta(seconds=seconds)


def test_nothing_is_known_at_first() -> None:
    times = Times()
    assert not times.database().is_sure
    assert times.database().now() == NOON


def test_an_instant_of_the_database_is_believed_whatever_the_machine_says() -> None:
    times = Times()
    times.wall = NOON + timedelta(days=1)
    known = times.database()
    known.saw_date(HEADER)
    before = known.is_sure
    known.saw("2030-01-01T11:00:00.5+00:00")
    times.wait(10)
    assert (before, known.is_sure) == (False, True)
    assert known.now() == NOON - timedelta(hours=1) + timedelta(seconds=10.5)


def test_a_date_is_believed_where_this_machine_agrees() -> None:
    times = Times()
    known = times.database()
    known.saw_date(HEADER)
    assert known.is_sure
    times.wall += timedelta(seconds=6)
    assert not known.is_sure


def test_dates_that_are_cut_to_their_second_approach_the_time_from_below() -> None:
    """Asked at 12:00:00.9 and at 12:00:01.1, the second answer tells nearly all."""
    times = Times()
    times.wait(0.9)
    known = times.database()
    known.saw_date(HEADER)
    assert known.now() == NOON
    times.wait(0.2)
    known.saw_date("Tue, 01 Jan 2030 12:00:01 GMT")
    assert known.now() == NOON + timedelta(seconds=1)
    times.wait(0.8)
    known.saw_date("Tue, 01 Jan 2030 12:00:01 GMT")
    assert known.now() == NOON + timedelta(seconds=1.8)


def test_a_clock_that_was_set_back_is_followed() -> None:
    times = Times()
    known = times.database()
    known.saw_date(HEADER)
    known.saw_date("Tue, 01 Jan 2030 11:00:00 GMT")
    assert known.now() == NOON - timedelta(hours=1)


@pytest.mark.parametrize("header", [None, "", "yesterday", "Tue, 99 Jan 2030 12:00:00 GMT"])
def test_a_date_that_cannot_be_read_tells_nothing(header: str | None) -> None:
    known = Times().database()
    known.saw_date(header)
    assert not known.is_sure


def test_no_two_claims_have_one_start() -> None:
    known = Times().database()
    starts = [known.unique() for _ in range(100)]
    assert len(set(starts)) == 100
    assert starts == sorted(starts)


@pytest.mark.parametrize("days", [-1, 1])
async def test_a_machine_whose_clock_is_wrong_takes_nobodys_rows_away(
    postgrest_stage: PostgRestStage, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """Two clocks disagree: then only what this process itself has seen silent for the whole limit counts as lost."""
    stage = postgrest_stage
    await stage.create()
    await stage.queue(1)
    passed_s = 1000.0
    monkeypatch.setattr(heartbeat_connection, "monotonic_s", lambda: passed_s)
    mapping = stage.mapping(guard="status")
    async with stage.claimer(mapping, "alive") as alive, stage.claimer(mapping, "skewed") as skewed:
        assert isinstance(skewed.source, SupabaseTable)
        skewed.source._link.clock._wall = lambda: datetime.now(UTC) + timedelta(days=days)
        lease = await alive.take_one()
        assert (await skewed.beat()).rescued == 0
        await alive.beat(lease)
        passed_s += mapping.stale_after_s
        assert (await skewed.beat()).rescued == 0, "it was heard of meanwhile"
        passed_s += mapping.stale_after_s - 1
        assert (await skewed.beat()).rescued == 0
        passed_s += 1
        assert (await skewed.beat()).rescued == 1
        assert await alive.end(lease) == {lease.id}


async def test_what_is_written_is_the_databases_time(postgrest_stage: PostgRestStage) -> None:
    """However wrong this machine's clock is: a heartbeat and an end are written by the database."""
    stage = postgrest_stage
    await stage.create()
    await stage.queue(1)
    source = SupabaseTable(stage.url, stage.mapping(guard="status"), token())
    source._link.clock._wall = lambda: datetime(1999, 1, 1, tzinfo=UTC)
    async with stage.claimer(stage.mapping(guard="status")) as worker:
        worker.source = source
        await source.open()
        await worker.sign_on()
        lease = await worker.take_one()
        assert abs((await stage.one(1))["started_at"] - datetime.now(UTC)) < timedelta(minutes=1)
        await worker.beat(lease)
        assert await worker.end(lease) == set()
        row = await stage.one(1)
        [[now]] = await stage.fetch("select now()")
        for name in ("last_heartbeat", "finished_at"):
            assert timedelta() <= now - row[name] < timedelta(minutes=1)
        assert source._link.clock._exact is not None
        await source.close()


def test_an_instant_without_a_zone_is_utc() -> None:
    assert clock.read_instant("2030-01-01T12:00:00.123") == NOON + timedelta(milliseconds=123)
    assert clock.read_instant("2030-01-01T14:00:00+02:00") == NOON


async def test_a_claims_first_sign_of_life_is_never_a_second_behind(postgrest_stage: PostgRestStage) -> None:
    """A `Date` is cut to its second: by that alone, with a short limit, a fresh claim would look dead to others."""
    await postgrest_stage.create()
    await postgrest_stage.queue(1)
    async with postgrest_stage.claimer(postgrest_stage.mapping(guard="status")) as claimer:
        before = datetime.now(UTC)
        await claimer.take_one()
    # The server runs on this machine, by the same clock.
    assert (await postgrest_stage.one(1))["last_heartbeat"] >= before
