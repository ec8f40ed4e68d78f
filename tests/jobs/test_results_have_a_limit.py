"""A result is kept whole or not at all. Where something is missing the trail says so; the job is done all the same."""

import pytest

from everpoll import BadInput, Everpoll, Retry, Task
from everpoll.jobs.call import ARGS_LIMIT
from everpoll.jobs.outcome import RESULT_LIMIT
from everpoll.jobs.task import PROGRESS_LIMIT
from jobs.jobs_stage import LIMIT_S, ended


async def test_a_result_that_is_too_large_is_not_kept_and_the_trail_says_so(app: Everpoll) -> None:
    @app.job(retry=Retry(1))
    async def f(size: int) -> str:
        return "x" * size

    async with app:
        fits, large = await f.enqueue_many([(RESULT_LIMIT - 2,), (RESULT_LIMIT - 1,)])
        assert len(await fits.result(timeout=LIMIT_S)) == RESULT_LIMIT - 2
        assert await large.result(timeout=LIMIT_S) is None
        info = await ended(large)
    assert (info.state, info.attempt) == ("done", 1)
    [entry] = info.trail
    assert entry["what"] == "done"
    assert entry["why"].startswith("its result takes 1,000,001 bytes, more than 1,000,000, and was not kept")


async def test_a_number_that_json_does_not_know_becomes_null_and_the_trail_says_so(app: Everpoll) -> None:
    @app.job()
    async def f() -> list[float | None]:
        return [1.0, float("-inf"), None]

    async with app:
        task = await f.enqueue()
        assert await task.result(timeout=LIMIT_S) == [1.0, None, None]
        info = await ended(task)
    assert [entry["why"] for entry in info.trail] == ["-inf in its result is not valid JSON and became null"]


async def test_progress_that_is_too_large_is_refused_in_the_jobs_face() -> None:
    app = Everpoll("memory://")

    @app.job()
    async def f(task: Task) -> None:
        await task.progress("x" * (PROGRESS_LIMIT - 2))
        with pytest.raises(BadInput, match="its progress takes 100,001 bytes, more than 100,000"):
            await task.progress("x" * (PROGRESS_LIMIT - 1))

    async with app:
        task = await f.enqueue()
        await task.result(timeout=LIMIT_S)
        assert len((await task.info()).progress) == PROGRESS_LIMIT - 2


async def test_limits_are_counted_in_bytes(app: Everpoll) -> None:
    """What takes four bytes a character would otherwise fill a statement four times over."""
    emoji = "🎉"

    @app.job(retry=Retry(1))
    async def f(text: str, size: int) -> str:
        return emoji * size

    fits = RESULT_LIMIT // 4 - 10
    async with app:
        with pytest.raises(BadInput, match=r"job 'f': its arguments take 1,000,0.. bytes, more than 1,000,000"):
            await f.enqueue(emoji * (ARGS_LIMIT // 4), 0)
        small, large = await f.enqueue_many([(emoji * fits, fits), ("", RESULT_LIMIT // 4)])
        assert await small.result(timeout=LIMIT_S) == emoji * fits
        assert await large.result(timeout=LIMIT_S) is None
        assert "its result takes 1,000,002 bytes" in (await ended(large)).trail[0]["why"]


async def test_the_text_of_an_error_is_cut_in_bytes_and_between_characters() -> None:
    app = Everpoll("memory://")

    @app.job(retry=Retry(1))
    async def f() -> None:
        raise ValueError("x" + "é" * 20_000)

    async with app:
        info = await ended(await f.enqueue())
    [error] = info.errors
    assert error["error"] == "x" + "é" * 999
    assert error["traceback"].endswith("é\n")
    assert 7_990 <= len(error["traceback"].encode()) <= 8_000
