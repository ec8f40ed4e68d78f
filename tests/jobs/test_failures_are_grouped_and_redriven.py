"""Failed jobs are grouped by cause and put back by filter; errors decide about the next attempt; hooks are called."""

import asyncio
import random
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from everpoll import Backoff, BadInput, Everpoll, Hopeless, Retry, TaskInfo
from everpoll.jobs import hooks
from everpoll.jobs.causes import normalized
from everpoll.jobs.outcome import raised
from everpoll.jobs.verdicts import ErrorRules, Verdict
from everpoll.stores.contract import RESCUE_LIMIT, Again, Ended, Lease, Store, WorkerCard
from everpoll.testing import drain
from jobs.jobs_stage import LIMIT_S, ended, soon

ONCE = Retry(1)
SLOW = Retry(3, Backoff("1h", jitter=0))


class RemoteError(Exception):
    """An error as HTTP clients raise it."""

    def __init__(self, headers: dict[str, str]) -> None:
        super().__init__("429")
        self.headers = headers


def failing(app: Everpoll) -> None:
    """Two jobs that fail in three ways."""

    @app.job(retry=ONCE, queue="mail")
    async def send(to: int) -> None:
        raise ConnectionError(f"host {to} refused, request 0f8fad5b-d9cb-469f-a165-70867728950{to}")

    @app.job(retry=ONCE)
    async def audit(page: str) -> None:
        if page == "key":
            raise KeyError
        raise ValueError(f"page {len(page)}")


async def with_failures(app: Everpoll) -> None:
    failing(app)
    await app.jobs["send"].enqueue_many([(1,), (2,), (3,)])
    await app.jobs["audit"].enqueue_many([("key",), ("a",), ("bb",)])
    await drain(app)


async def test_failed_jobs_are_grouped_by_what_went_wrong(app: Everpoll) -> None:
    await with_failures(app)
    causes = await app.jobs.causes()
    await app.close()
    assert [(one.name, one.type, one.error, one.count) for one in causes] == [
        ("send", "ConnectionError", "host <n> refused, request <uuid>", 3),
        ("audit", "ValueError", "page <n>", 2),
        ("audit", "KeyError", "", 1),
    ]
    assert all(one.first_at <= one.last_at and one.examples == tuple(sorted(one.examples)[::-1]) for one in causes)
    assert len(causes[0].examples) == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no row 17 of 2,000.5", "no row <n> of <n>"),
        ("<object at 0x7f00aa>", "<object at <address>>"),
        ("late since 2030-01-02T03:04:05.678Z", "late since <time>"),
        ("commit 0a1b2c3d4e5f6a7b", "commit <hex>"),
        ("first\nsecond", "first"),
        ("decade of facade", "decade of facade"),
    ],
)
def test_what_varies_between_failures_of_one_cause_does_not_count(text: str, expected: str) -> None:
    assert normalized(text) == expected


async def test_a_redrive_puts_back_what_the_filter_finds_and_a_dry_run_only_counts(app: Everpoll) -> None:
    await with_failures(app)
    dry = await app.jobs.redrive(name="audit", error="ValueError", dry_run=True)
    assert (dry.matched, dry.moved, dry.skipped, dry.dry_run) == (2, 2, 0, True)
    assert sum(one.count for one in await app.jobs.causes()) == 6
    done = await app.jobs.redrive(name="audit", error="ValueError", by="ops")
    assert (done.matched, done.moved, done.skipped) == (2, 2, 0)
    assert [(one.name, one.type, one.count) for one in await app.jobs.causes()] == [
        ("send", "ConnectionError", 3),
        ("audit", "KeyError", 1),
    ]
    assert (await app.jobs.redrive(queue="mail", since="1h")).moved == 3
    assert (await app.jobs.redrive(everything=True)).moved == 1
    assert await app.jobs.causes() == []
    await app.close()


async def test_a_job_whose_key_is_taken_is_skipped_with_the_reason(app: Everpoll) -> None:
    @app.job(retry=ONCE)
    async def fails() -> None:
        raise ValueError("no")

    await fails.enqueue(key="k")
    await drain(app)
    await fails.enqueue(key="k", delay="1h")
    answer = await app.jobs.redrive(name="fails")
    assert (answer.matched, answer.moved, answer.reasons) == (1, 0, {"another task has its key": 1})
    await app.close()


async def test_a_redrive_without_a_filter_or_of_live_jobs_is_refused() -> None:
    jobs = Everpoll("memory://").jobs
    with pytest.raises(BadInput, match="without a filter it would put back all jobs that are failed"):
        await jobs.redrive()
    with pytest.raises(BadInput, match="only ended jobs are put back"):
        await jobs.redrive(name="x", state="running")
    with pytest.raises(BadInput, match="has no time zone"):
        await jobs.redrive(since=datetime(2030, 1, 1))  # noqa: DTZ001 - that is the mistake


def settled(error: BaseException, **rules: Any) -> Again | Ended:
    verdict = ErrorRules("job 'f'", rules.get("fatal", ()), rules.get("classify")).judge(error)
    return raised(Lease(1, 1, 1, "f", "q", ""), error, SLOW, random.Random(1), verdict)


@pytest.mark.parametrize(
    ("error", "rules", "delay_s"),
    [
        (KeyError("x"), {"fatal": (LookupError,)}, None),
        (Hopeless("never"), {}, None),
        (ValueError("x"), {"classify": lambda _: "fatal"}, None),
        (KeyError("x"), {"fatal": KeyError, "classify": lambda _: "transient"}, 3600.0),
        (ValueError("x"), {"classify": lambda _: "5s"}, 5.0),
        (ValueError("x"), {"classify": lambda _: 0}, 0.0),
        (ValueError("x"), {"classify": lambda _: None}, 3600.0),
        (ValueError("x"), {"classify": lambda _: 1 / 0}, 3600.0),
        (ValueError("x"), {"classify": lambda _: "soon"}, 3600.0),
        (RemoteError({"Retry-After": "7200"}), {}, 7200.0),
        (RemoteError({"Retry-After": "5"}), {}, 3600.0),
        (RemoteError({"Retry-After": "7200"}), {"classify": lambda _: "transient"}, 7200.0),
    ],
)
def test_what_an_error_means_for_the_next_attempt(error: BaseException, rules: Any, delay_s: float | None) -> None:
    settlement = settled(error, **rules)
    if delay_s is None:
        assert isinstance(settlement, Ended)
        assert settlement.state == "failed"
    else:
        assert isinstance(settlement, Again)
        assert settlement.delay_s == delay_s


def test_the_trail_says_why_an_attempt_was_the_last_or_waits_longer() -> None:
    assert "(KeyError is fatal)" in str(settled(KeyError("x"), fatal=KeyError).note)
    assert "(the remote asks for 2h)" in str(settled(RemoteError({"Retry-After": "7200"})).note)
    assert "classify= decided nothing: ZeroDivisionError" in str(settled(ValueError(), classify=lambda _: 1 / 0).note)
    assert ErrorRules("f", (), None).judge(ValueError()) == Verdict()


@pytest.mark.parametrize("options", [{"fatal": "KeyError"}, {"fatal": (3,)}, {"fatal": int}, {"classify": "fatal"}])
def test_rules_that_mean_nothing_are_refused_at_registration(options: Any) -> None:
    with pytest.raises(BadInput, match=r"job 'f': (fatal|classify)="):
        Everpoll("memory://").job(name="f", **options)(lambda: None)


async def test_a_fatal_error_uses_one_attempt_on_every_store(app: Everpoll) -> None:
    @app.job(fatal=(KeyError,))
    async def lookup() -> None:
        raise KeyError("x")

    async with app:
        info = await ended(await lookup.enqueue())
    assert (info.state, info.attempt) == ("failed", 1)


async def test_hooks_hear_of_ends_after_the_commit(app: Everpoll) -> None:
    heard: list[tuple[str, str, str]] = []
    all_heard = asyncio.Event()

    def hear(who: str) -> Callable[[TaskInfo], None]:
        def hook(info: TaskInfo) -> None:
            heard.append((who, info.name, info.state))

        return hook

    @app.job()
    async def works() -> int:
        return 7

    @app.job(retry=ONCE)
    async def breaks() -> None:
        raise ValueError("no")

    app.on_done(hear("any done"))
    app.on_failed(hear("any failed"))
    breaks.on_failed(hear("its failed"))

    @app.on_failed
    async def broken(_: TaskInfo) -> None:
        raise RuntimeError("a hook that fails changes nothing")

    @app.on_failed
    async def last(info: TaskInfo) -> None:
        assert (await app.task(info.id).info()).state == "failed"
        all_heard.set()

    async with app:
        first = await works.enqueue()
        await first.result(timeout=LIMIT_S)
        await breaks.enqueue()
        await soon(all_heard)
    failed = [("any failed", "breaks", "failed"), ("its failed", "breaks", "failed")]
    assert heard == [("any done", "works", "done"), *failed]


async def test_whatever_a_hook_raises_the_others_are_called_and_the_worker_goes_on(app: Everpoll) -> None:
    heard: list[int] = []
    all_heard = asyncio.Event()

    @app.job()
    async def works(number: int) -> int:
        return number

    @app.on_done
    def exits(_: TaskInfo) -> None:
        raise SystemExit(3)

    @app.on_done
    async def cancels(_: TaskInfo) -> None:
        raise asyncio.CancelledError

    class Listener:
        async def __call__(self, info: TaskInfo) -> None:
            heard.append(info.result)
            if len(heard) == 3:
                all_heard.set()

    app.on_done(Listener())
    async with app:
        for number in range(3):
            assert await (await works.enqueue(number)).result(timeout=LIMIT_S) == number
        await soon(all_heard)
    assert heard == [0, 1, 2]


async def test_a_hook_that_hangs_costs_bounded_memory_and_no_shutdown(
    app: Everpoll, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hooks, "CLOSE_S", 0.01)
    monkeypatch.setattr(hooks, "WAITING_LIMIT", 5)
    hangs, has_begun = threading.Event(), threading.Event()

    @app.job()
    async def works() -> None: ...

    @app.on_done
    def hook(_: TaskInfo) -> None:
        has_begun.set()
        hangs.wait()

    async with app:
        await (await works.enqueue()).result(timeout=LIMIT_S)
        await asyncio.to_thread(has_begun.wait, LIMIT_S)
        for task in await works.enqueue_many([()] * 20):
            await task.result(timeout=LIMIT_S)
        assert len(app.jobs.hooks._waiting) == 5
    assert "hooks are slower than jobs" in caplog.text
    own = [one for one in threading.enumerate() if one.name.startswith("everpoll-hook")]
    assert all(one.daemon for one in own)
    assert own
    hangs.set()


async def test_a_hook_hears_once_of_a_job_that_lost_its_workers(another_store: Callable[[], Store]) -> None:
    """The rescue ends it: the worker that rescues calls its hooks, and no other worker does."""
    heard: list[tuple[str, str, int]] = []
    has_heard = asyncio.Event()

    def worker(label: str) -> Everpoll:
        app = Everpoll(another_store(), lease="30s")

        @app.job()
        async def poison() -> None: ...

        @app.on_failed
        async def hook(info: TaskInfo) -> None:
            heard.append((label, info.state, info.rescues))
            has_heard.set()

        return app

    first, second = worker("first"), worker("second")
    task = await first.jobs["poison"].enqueue()
    for incarnation in range(1, RESCUE_LIMIT + 1):
        await lose_a_worker(await first.store(), incarnation, is_last=incarnation == RESCUE_LIMIT)
    async with first, second:
        await soon(has_heard)
        assert (await ended(task)).state == "failed"
    assert [one[1:] for one in heard] == [("failed", RESCUE_LIMIT)]


async def test_a_hook_hears_once_of_a_job_that_was_retried_before(app: Everpoll) -> None:
    """Also if hooks are late, and find the job ended when its first attempt comes up."""
    heard: list[tuple[str, int]] = []
    goes_on, all_heard = asyncio.Event(), asyncio.Event()

    @app.job()
    async def first() -> None: ...

    @app.job()
    async def last() -> None: ...

    @app.job(retry=Retry(3, Backoff("1ms")))
    async def breaks() -> None:
        raise ValueError("no")

    @app.on_done
    async def late(info: TaskInfo) -> None:
        if info.name == "last":
            all_heard.set()
        else:
            await soon(goes_on)

    @app.on_failed
    async def hook(info: TaskInfo) -> None:
        heard.append((info.name, info.attempt))

    async with app:
        await (await first.enqueue()).result(timeout=LIMIT_S)
        assert (await ended(await breaks.enqueue())).state == "failed"
        await (await last.enqueue()).result(timeout=LIMIT_S)
        goes_on.set()
        await soon(all_heard)
    assert heard == [("breaks", 3)]


async def lose_a_worker(store: Store, incarnation: int, *, is_last: bool) -> None:
    """Lease what is due, and sign off without having settled it; the last worker leaves the rescue to others."""
    card = WorkerCard(incarnation=incarnation, label="w", host="h", pid=1, queues=("default",), slots=9, version="0")
    await store.sign_on(card, 30.0)
    assert len((await store.lease(incarnation, {"default": 9}, 9)).leases) == 1
    await store.sign_off(incarnation)

    def rescue() -> None:
        heartbeat = store.heartbeat_connection()
        assert heartbeat.rescue(99, [], []).tasks == 1
        heartbeat.close()

    if not is_last:
        await asyncio.to_thread(rescue)


async def test_a_closing_app_lets_its_hooks_hear_the_last_jobs(app: Everpoll) -> None:
    heard: list[int] = []

    @app.on_done
    async def hook(info: TaskInfo) -> None:
        await asyncio.sleep(0)
        heard.append(info.id)

    @app.job()
    async def works() -> None: ...

    async with app:
        tasks = await works.enqueue_many([()] * 20)
        for task in tasks:
            await task.result(timeout=LIMIT_S)
    assert sorted(heard) == sorted(task.id for task in tasks)
