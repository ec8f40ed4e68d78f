"""What becomes of a job that fails, takes too long, snoozes or gives up: attempts, errors, states."""

import asyncio
import threading
from random import Random

import pytest

from everpoll import Backoff, BadInput, Cancel, Everpoll, JobCanceled, JobFailed, Retry, Snooze, Task
from everpoll.jobs.outcome import raised
from everpoll.stores.contract import Again, Ended, Lease
from jobs.jobs_stage import LIMIT_S, ended

QUICK = Retry(3, Backoff("5ms", factor=1, jitter=0))


async def test_retry_3_means_three_attempts_and_each_error_is_kept_with_its_traceback(app: Everpoll) -> None:
    @app.job(retry=QUICK)
    async def fails(task: Task) -> None:
        raise LookupError(f"attempt {task.attempt} met \N{SNOWMAN}")

    async with app:
        task = await fails.enqueue()
        with pytest.raises(
            JobFailed, match=r"fails \(task \d+\) failed after 3 attempts: LookupError: attempt 3"
        ) as answer:
            await task.result(timeout=LIMIT_S)
        info = await task.info()
    assert (info.state, info.attempt) == ("failed", 3)
    assert [error["error"] for error in info.errors] == [f"attempt {number} met \N{SNOWMAN}" for number in (1, 2, 3)]
    assert [error["attempt"] for error in info.errors] == [1, 2, 3]
    assert {error["type"] for error in info.errors} == {"LookupError"}
    assert all("Traceback" in error["traceback"] and "in fails" in error["traceback"] for error in info.errors)
    assert [entry["what"] for entry in info.trail] == ["retry", "retry", "failed"]
    assert answer.value.error is not None
    assert answer.value.error["error"] == "attempt 3 met \N{SNOWMAN}"


async def test_a_job_that_recovers_is_done_and_keeps_the_errors_of_before(app: Everpoll) -> None:
    @app.job(retry=QUICK)
    def recovers(task: Task) -> str:
        if task.attempt < 3:
            raise ValueError("not yet")
        return "at last"

    async with app:
        task = await recovers.enqueue()
        assert await task.result(timeout=LIMIT_S) == "at last"
        info = await task.info()
    assert (info.state, info.attempt, len(info.errors)) == ("done", 3, 2)


async def test_retry_1_never_retries(app: Everpoll) -> None:
    @app.job(retry=Retry(1))
    async def once() -> None:
        raise ValueError("no")

    async with app:
        info = await ended(await once.enqueue())
    assert (info.state, info.attempt) == ("failed", 1)


async def test_a_retry_waits_for_its_backoff(app: Everpoll) -> None:
    @app.job(retry=Retry(2, Backoff("10m", jitter=0)))
    async def fails() -> None:
        raise ValueError("no")

    async with app:
        task = await fails.enqueue()
        async with asyncio.timeout(LIMIT_S):
            while not (info := await task.info()).trail:  # noqa: ASYNC110 - a worker does it
                await asyncio.sleep(0.01)
    assert (info.state, info.attempt) == ("queued", 1)
    assert info.trail[0]["delay_s"] == 600
    assert info.trail[0]["why"] == "attempt 1 of 2 failed: next in 10m"
    assert info.started_at is not None
    assert 599 < (info.due_at - info.started_at).total_seconds() < 600 + LIMIT_S


def test_delays_follow_the_backoff_within_the_jitter() -> None:
    retry = Retry(10, Backoff("1s", factor=2, cap="1m", jitter=0.1))
    rng = Random(1)
    for attempt in range(1, 10):
        base_s = min(2 ** (attempt - 1), 60)
        delays = []
        for _ in range(200):
            settlement = raised(Lease(1, 1, attempt, "f", "q", ""), ValueError("x"), retry, rng)
            assert isinstance(settlement, Again)
            assert not settlement.refund
            assert settlement.delay_s is not None
            delays.append(settlement.delay_s)
        assert base_s * 0.9 <= min(delays) < base_s * 0.92
        assert base_s * 1.08 < max(delays) <= base_s * 1.1
    last = raised(Lease(1, 1, 10, "f", "q", ""), ValueError("x"), retry, rng)
    assert isinstance(last, Ended)
    assert last.state == "failed"


async def test_an_async_job_that_takes_too_long_is_canceled_and_has_failed(app: Everpoll) -> None:
    canceled: list[int] = []

    @app.job(retry=QUICK, timeout="30ms")
    async def slow(task: Task) -> None:
        try:
            await asyncio.sleep(LIMIT_S)
        except asyncio.CancelledError:
            canceled.append(task.attempt)
            raise

    async with app:
        info = await ended(await slow.enqueue())
    assert (info.state, info.attempt, canceled) == ("failed", 3, [1, 2, 3])
    assert {error["type"] for error in info.errors} == {"JobTimeout"}
    assert info.errors[0]["error"] == "took longer than its timeout of 0.03 s"


async def test_a_plain_job_that_takes_too_long_has_failed_and_its_thread_is_left_behind(app: Everpoll) -> None:
    let_go = threading.Event()
    returned = threading.Event()

    @app.job(retry=Retry(1), timeout="30ms")
    def slow() -> str:
        let_go.wait(LIMIT_S)
        returned.set()
        return "too late"

    async with app:
        task = await slow.enqueue()
        info = await ended(task)
        assert not returned.is_set()
        let_go.set()
        assert returned.wait(LIMIT_S)
        assert (await task.info()).result is None
    assert (info.state, info.errors[0]["type"]) == ("failed", "JobTimeout")


async def test_a_job_that_suppresses_its_timeout_has_still_failed(app: Everpoll) -> None:
    @app.job(retry=Retry(1), timeout="20ms")
    async def deaf() -> str:
        try:
            await asyncio.sleep(LIMIT_S)
        except asyncio.CancelledError:
            return "as if nothing had happened"
        return "in time"

    async with app:
        info = await ended(await deaf.enqueue())
    assert (info.state, info.errors[0]["type"]) == ("failed", "JobTimeout")


async def test_a_timeout_error_of_its_own_is_told_apart_from_the_jobs_timeout(app: Everpoll) -> None:
    @app.job(retry=Retry(1), timeout="1h")
    async def raises() -> None:
        raise TimeoutError("the remote did not answer")

    async with app:
        info = await ended(await raises.enqueue())
    assert (info.errors[0]["type"], info.errors[0]["error"]) == ("TimeoutError", "the remote did not answer")


async def test_a_snooze_is_the_same_task_later_and_costs_no_attempt(app: Everpoll) -> None:
    seen: list[tuple[int, int]] = []

    @app.job(retry=Retry(2))
    async def patient(task: Task) -> Snooze | str:
        seen.append((task.id, task.attempt))
        return "ready" if len(seen) == 5 else Snooze("2ms")

    async with app:
        task = await patient.enqueue()
        assert await task.result(timeout=LIMIT_S) == "ready"
        info = await task.info()
    assert seen == [(task.id, 1)] * 5
    assert (info.attempt, info.errors) == (1, ())
    assert [entry["what"] for entry in info.trail] == ["snooze"] * 4


async def test_a_job_that_returns_cancel_ends_as_canceled_with_its_reason(app: Everpoll) -> None:
    @app.job()
    async def unwanted() -> Cancel:
        return Cancel("the page is gone")

    async with app:
        task = await unwanted.enqueue()
        with pytest.raises(JobCanceled, match=r"unwanted \(task \d+\) was canceled: the page is gone"):
            await task.result(timeout=LIMIT_S)
        assert (await task.info()).state == "canceled"


async def test_a_result_that_is_no_json_is_not_kept_and_the_job_is_done_all_the_same(app: Everpoll) -> None:
    @app.job()
    async def odd() -> object:
        return object()

    async with app:
        task = await odd.enqueue()
        assert await task.result(timeout=LIMIT_S) is None
        info = await task.info()
    assert (info.state, info.attempt) == ("done", 1)
    assert info.trail[0]["why"].startswith("its result is not JSON and was not kept: ")


async def test_errors_that_quote_what_no_database_can_hold_are_kept_readable_and_retried(app: Everpoll) -> None:
    @app.job(retry=QUICK)
    async def awkward(task: Task) -> str:
        if task.attempt == 1:
            raise OSError("no such file: caf\udce9.txt")
        if task.attempt == 2:
            raise ValueError("a NUL: \x00!")
        return "nul \x00 and \N{PILE OF POO}"

    async with app:
        task = await awkward.enqueue()
        assert await task.result(timeout=LIMIT_S) == "nul \x00 and \N{PILE OF POO}"
        info = await task.info()
    assert [error["error"] for error in info.errors] == [r"no such file: caf\udce9.txt", r"a NUL: \x00!"]


async def test_an_error_that_cannot_even_be_printed_is_an_error_all_the_same(app: Everpoll) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @app.job(retry=Retry(1))
    async def fails() -> None:
        raise Mute

    async with app:
        info = await ended(await fails.enqueue())
    assert (info.state, info.errors[0]["error"]) == ("failed", "(its text cannot be read)")


async def test_errors_are_kept_to_a_bounded_length(app: Everpoll) -> None:
    @app.job(retry=Retry(1))
    async def fails() -> None:
        raise ValueError("x" * 1_000_000)

    async with app:
        info = await ended(await fails.enqueue())
    assert len(info.errors[0]["error"]) == 2_000
    assert len(info.errors[0]["traceback"]) == 8_000


async def test_a_job_that_exits_the_program_fails_and_the_worker_lives_on(app: Everpoll) -> None:
    @app.job(retry=Retry(1))
    def exits_in_thread() -> None:
        raise SystemExit(3)

    @app.job(retry=Retry(1))
    async def exits() -> None:
        raise SystemExit("usage: …")

    async with app:
        infos = [await ended(await job.enqueue()) for job in (exits_in_thread, exits)]
        assert app.health().healthy
    assert [(info.state, info.errors[0]["type"]) for info in infos] == [("failed", "SystemExit")] * 2


async def test_a_cancellation_of_its_own_making_is_a_failure_and_no_endless_loop(app: Everpoll) -> None:
    """It awaited something that was canceled, but the job was not: it must not be run again for ever."""

    @app.job(retry=QUICK)
    async def trips() -> None:
        inner = asyncio.ensure_future(asyncio.sleep(LIMIT_S))
        inner.cancel()
        await inner

    async with app:
        info = await ended(await trips.enqueue())
    assert (info.state, info.attempt) == ("failed", 3)
    assert {error["type"] for error in info.errors} == {"CancelledError"}


async def test_retry_puts_an_ended_task_back_under_its_own_id_with_fresh_attempts(app: Everpoll) -> None:
    is_mended = False

    @app.job(retry=QUICK)
    async def fragile(task: Task) -> int:
        if not is_mended:
            raise ValueError("broken")
        return task.attempt

    async with app:
        task = await fragile.enqueue(key="k")
        assert (await ended(task)).state == "failed"
        is_mended = True
        assert await task.retry()
        assert await task.result(timeout=LIMIT_S) == 1
        info = await task.info()
        assert await app.task(10**15).retry() is False
    assert (info.state, info.attempt, info.key) == ("done", 1, "k")
    assert [entry["what"] for entry in info.trail] == ["retry", "retry", "failed", "retry"]


async def test_retry_of_a_task_that_has_not_ended_says_no(app: Everpoll) -> None:
    @app.job()
    async def f() -> None: ...

    task = await f.enqueue(delay="1h")
    assert await task.retry() is False
    await app.close()


async def test_the_log_of_the_worker_has_every_failure(caplog: pytest.LogCaptureFixture) -> None:
    app = Everpoll("memory://")

    @app.job(retry=Retry(2, Backoff("1ms", jitter=0)))
    async def f() -> None:
        raise ConnectionError("the mail server does not answer")

    with caplog.at_level("WARNING", logger="everpoll.jobs"):
        async with app:
            task = await f.enqueue()
            await ended(task)
    assert [(one.levelname, one.getMessage()) for one in caplog.records if one.name == "everpoll.jobs"] == [
        ("WARNING", "f#1: attempt 1 of 2 failed: next in 1ms (ConnectionError: the mail server does not answer)"),
        ("ERROR", "f#1: attempt 2 of 2 failed (ConnectionError: the mail server does not answer)"),
    ]


async def test_a_traceback_begins_in_the_users_own_code() -> None:
    app = Everpoll("memory://")

    @app.job(retry=Retry(1))
    async def f() -> None:
        raise ConnectionError("away")

    @app.job(retry=Retry(1), timeout="1ms")
    async def slow() -> None:
        await asyncio.sleep(LIMIT_S)

    async with app:
        own = await ended(await f.enqueue())
        late = await ended(await slow.enqueue())
    lines = own.errors[0]["traceback"].splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert __file__ in lines[1]
    assert lines[-1] == "ConnectionError: away"
    assert "JobTimeout" in late.errors[0]["traceback"]


def test_an_option_that_does_not_exist_is_refused() -> None:
    """A typo would silently mean the default."""
    app = Everpoll("memory://")
    with pytest.raises(BadInput, match="job 'f': que= is not an option; there are name, queue, priority"):

        @app.job(que="mail")  # type: ignore[call-overload, untyped-decorator]  # that is the mistake
        def f() -> None: ...

    @app.job()
    def g() -> None: ...

    with pytest.raises(BadInput, match="job 'g': dely= is not an option; there are delay, priority, key"):
        g.new_task((), {}, dely="5s")  # type: ignore[call-arg]  # that is the mistake
