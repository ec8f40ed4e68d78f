"""Start, end and failure of jobs and runs are each logged once, at the right level, and a storm of them is bounded."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from everpoll import Backoff, Budget, Cancel, Everpoll, Retry, Snooze
from everpoll.engine.rate_limited_log import LINES, RateLimitedLog
from everpoll.testing import VirtualClock, drain
from everpoll.watches import Done, Fail, Wait

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR


def answer(caplog: pytest.LogCaptureFixture, logger: str) -> list[tuple[int, str]]:
    return [(one.levelno, one.getMessage()) for one in caplog.records if one.name == logger]


def fields(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = record.__dict__["task_fields"]
    return found


def test_a_job_is_told_at_its_start_its_end_and_each_failure(caplog: pytest.LogCaptureFixture) -> None:
    """Debug, info, and a warning or an error; the last failure has the traceback."""
    app = Everpoll("memory://")

    @app.job
    async def fine() -> None:
        pass

    @app.job(retry=Retry(2, Backoff("1ms", jitter=0)))
    async def broken() -> None:
        raise ValueError("no card")

    async def main() -> None:
        async with app:
            await (await fine.enqueue()).result(timeout="30s")
            with pytest.raises(Exception, match="no card"):
                await (await broken.enqueue()).result(timeout="30s")

    with caplog.at_level(DEBUG, "everpoll.jobs"):
        asyncio.run(main())
    lines = answer(caplog, "everpoll.jobs")
    assert [level for level, _ in lines] == [DEBUG, INFO, DEBUG, WARNING, DEBUG, ERROR]
    assert lines[0][1] == "fine#1: starts, attempt 1"
    assert lines[1][1].startswith("fine#1: done in ")
    assert lines[3][1] == "broken#2: attempt 1 of 2 failed: next in 1ms (ValueError: no card)"
    assert lines[5][1] == "broken#2: attempt 2 of 2 failed (ValueError: no card)"
    done, failed = (one for one in caplog.records if one.levelno in {INFO, ERROR} and one.name == "everpoll.jobs")
    assert fields(done)["outcome"] == "done"
    assert fields(done)["duration_s"] >= 0
    assert fields(failed)["error_type"] == "ValueError"
    assert failed.exc_info is not None
    assert failed.exc_info[2] is not None
    assert failed.exc_info[2].tb_frame.f_code.co_name == "broken", "the frames of everpoll are left out"


def test_a_snooze_is_debug_and_a_cancel_is_info(caplog: pytest.LogCaptureFixture) -> None:
    """Neither is a failure."""
    app, answers = Everpoll("memory://"), [Snooze("0s"), Cancel("sold out")]

    @app.job
    async def poll() -> object:
        return answers.pop(0)

    async def main() -> None:
        await poll.enqueue()
        await drain(app)
        await app.close()

    with caplog.at_level(DEBUG, "everpoll.jobs"):
        asyncio.run(main())
    ends = [one for one in answer(caplog, "everpoll.jobs") if "starts" not in one[1]]
    assert ends == [
        (DEBUG, "poll#1: snoozes: the job asked to be run again in 0s"),
        (INFO, "poll#1: canceled: sold out"),
    ]


def test_a_run_is_told_at_its_start_each_look_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """Looks at debug level; an end that is a failure as an error."""
    app = Everpoll("memory://")
    answers: dict[int, list[object]] = {1: [Wait(after="1ms"), Done(1)], 2: [Fail("no space")]}

    @app.watch(every="1ms", budget=Budget("1m"))
    async def query(op: int) -> object:
        return answers[op].pop(0)

    async def main() -> None:
        async with app:
            await (await query.begin(1, id="a")).result(timeout="30s")
            with pytest.raises(Exception, match="no space"):
                await (await query.begin(2, id="b")).result(timeout="30s")

    with caplog.at_level(DEBUG, "everpoll.watches"):
        asyncio.run(main())
    lines = answer(caplog, "everpoll.watches")
    assert [level for level, _ in lines] == [INFO, DEBUG, INFO, INFO, ERROR]
    assert lines[0][1] == "query:a: started"
    assert "next step in" in lines[1][1]
    assert lines[2][1].startswith("query:a: ready after 2 looks in ")
    assert lines[4][1].startswith("query:b: failed after 1 look in ")
    assert lines[4][1].endswith(": no space")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[int]]:
    """How many records of everpoll are made, by level; every logger as a program has it that sets up nothing."""
    counted, before = Counter[int](), logging.getLogRecordFactory()
    for name in [one for one in logging.Logger.manager.loggerDict if one.partition(".")[0] == "everpoll"]:
        # Commands that ran in this process before may have set levels of their own.
        monkeypatch.setattr(logging.getLogger(name), "level", logging.NOTSET)
        logging.getLogger(name).manager._clear_cache()  # type: ignore[attr-defined]

    def count(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = before(*args, **kwargs)
        if record.name.startswith("everpoll"):
            counted[record.levelno] += 1
        return record

    logging.setLogRecordFactory(count)
    yield counted
    logging.setLogRecordFactory(before)


async def _drained(jobs: int) -> None:
    app = Everpoll("memory://", slots=500)

    @app.job
    async def noop() -> None:
        pass

    await noop.enqueue_many([()] * jobs)
    await drain(app)
    await app.close()


def test_a_drain_at_the_default_level_makes_no_record_at_all(made: Counter[int]) -> None:
    """Neither for a job that ended, nor for a claim."""
    assert logging.getLogger("everpoll.jobs").getEffectiveLevel() == WARNING
    asyncio.run(_drained(600))
    assert made == {}


def test_a_drain_at_info_makes_one_record_a_job_up_to_the_ration(
    made: Counter[int], caplog: pytest.LogCaptureFixture
) -> None:
    """As `everpoll run` logs: the rest is one line that counts."""
    with caplog.at_level(INFO, "everpoll.jobs"):
        asyncio.run(_drained(LINES + 500))
    # More, should ten seconds pass meanwhile: the next stretch has a ration of its own.
    assert LINES + 1 <= made[INFO] <= LINES + 500


def test_a_storm_is_one_line_at_the_end_of_its_stretch(caplog: pytest.LogCaptureFixture) -> None:
    """With the highest level of what it counts; the next stretch has its own ration."""
    clock, logger = VirtualClock(), logging.getLogger("everpoll.tests")

    async def scene() -> None:
        log = RateLimitedLog(logger, lines=2)
        for number in range(5):
            log.log(WARNING if number == 3 else INFO, "audit done", "line %d", number)
        log.log(INFO, "mail done", "line 5")
        await clock.advance(10)
        log.log(INFO, "audit done", "line 6")

    with caplog.at_level(INFO, "everpoll.tests"):
        clock.run(scene())
    text = "4 more lines within 10s, each logged at debug level: audit done 3, mail done 1"
    assert answer(caplog, "everpoll.tests") == [(INFO, "line 0"), (INFO, "line 1"), (WARNING, text), (INFO, "line 6")]


def test_at_debug_level_a_storm_has_every_line(caplog: pytest.LogCaptureFixture) -> None:
    """Those behind the ration at debug level."""

    async def scene() -> None:
        log = RateLimitedLog(logging.getLogger("everpoll.tests"), lines=1)
        for number in range(3):
            log.log(INFO, "audit done", "line %d", number)
        log.flush()

    with caplog.at_level(DEBUG, "everpoll.tests"):
        asyncio.run(scene())
    assert [level for level, _ in answer(caplog, "everpoll.tests")] == [INFO, DEBUG, DEBUG, INFO]
