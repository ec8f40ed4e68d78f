"""`concurrency=`, `rate=` and `per=`: what they accept, and that they hold while jobs run."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

from everpoll import BadInput, Everpoll, Rate, Task
from everpoll.stores.contract import Limit
from jobs.jobs_stage import LIMIT_S, ended, soon


async def run_all(app: Everpoll, tasks: Sequence[Task]) -> None:
    async with app, asyncio.timeout(LIMIT_S * 2):
        for task in tasks:
            await task.result()


async def test_no_more_run_at_a_time_than_allowed(app: Everpoll) -> None:
    """Of each key; and both functions, in threads and on the event loop, count the same way."""
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()

    @app.job(concurrency=2, per="tenant")
    async def work(tenant: str) -> None:
        running[tenant] += 1
        most[tenant] = max(most[tenant], running[tenant])
        await asyncio.sleep(0.005)
        running[tenant] -= 1

    tasks = await work.enqueue_many([(tenant,) for tenant in "abc" for _ in range(8)])
    await run_all(app, tasks)
    assert most == {"a": 2, "b": 2, "c": 2}


async def test_no_more_start_in_a_stretch_than_allowed(app: Everpoll) -> None:
    @app.job(rate=Rate(3, per="300ms"))
    async def call() -> None: ...

    began = time.monotonic()
    tasks = await call.enqueue_many([()] * 9)
    await run_all(app, tasks)
    infos = [await ended(task) for task in tasks]
    starts = sorted(info.started_at.timestamp() for info in infos if info.started_at)
    assert all(later - first >= 0.299 for first, later in zip(starts, starts[3:], strict=False))
    assert time.monotonic() - began >= 0.6
    await app.close()


async def test_a_key_may_be_a_function_of_the_arguments(app: Everpoll) -> None:
    """None counts for no limit."""

    @app.job(concurrency=1, per=lambda host, **_: None if host == "free" else host.lower())
    async def fetch(host: str, *, page: int = 1) -> None: ...

    assert (await (await fetch.enqueue("A", page=2)).info()).limit == Limit("fetch/a", 1)
    assert (await (await fetch.enqueue("free")).info()).limit is None
    await app.close()


async def test_a_parameter_that_was_not_passed_counts_with_its_default(app: Everpoll) -> None:
    @app.job(rate=Rate(5, per="1m"), per="tenant", concurrency=2)
    async def send(task: Task, to: str, tenant: str | None = "none") -> None: ...

    assert (await (await send.enqueue("x")).info()).limit == Limit("send/none", 2, 5, 60.0)
    assert (await (await send.enqueue("x", tenant="t", delay="1h", priority=3, key="k")).info()).limit == Limit(
        "send/t", 2, 5, 60.0
    )
    assert (await (await send.enqueue("x", tenant=None)).info()).limit is None
    await app.close()


async def test_keys_of_different_jobs_never_meet(app: Everpoll) -> None:
    async def work(which: str) -> None: ...

    names = ["a", "a/b", "a%2Fb"]
    jobs = [app.job(name=name, concurrency=1, per="which")(work) for name in names]
    keys = set()
    for job in jobs:
        for which in ("b/c", "c"):
            info = await (await job.enqueue(which)).info()
            assert info.limit is not None
            keys.add(info.limit.key)
    assert len(keys) == 6
    long = await (await jobs[0].enqueue("x" * 100_000)).info()
    longer = await (await jobs[0].enqueue("x" * 100_001)).info()
    assert long.limit is not None
    assert longer.limit is not None
    assert long.limit.key != longer.limit.key
    await app.close()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"concurrency": 0}, "concurrency=0"),
        ({"concurrency": True}, "concurrency=True"),
        ({"concurrency": 1.5}, "concurrency=1.5"),
        ({"concurrency": 2**40}, "write at most"),
        ({"rate": 5}, "write Rate"),
        ({"rate": True}, "write Rate"),
        ({"concurrency": 1, "per": "tenant"}, "'tenant' is not a parameter of it; there are host"),
        ({"concurrency": 1, "per": "task"}, "'task' is not a parameter"),
        ({"concurrency": 1, "per": 7}, "write a parameter's name"),
        ({"concurrency": 1, "per": asyncio.sleep}, "is async: write a plain function of the arguments"),
        ({"per": "host"}, "needs concurrency= or rate="),
    ],
)
def test_what_limits_nothing_is_refused(options: dict[str, Any], says: str) -> None:
    async def fetch(host: str, task: Task) -> None: ...

    with pytest.raises(BadInput, match="job 'fetch'") as refused:
        Everpoll("memory://").job(**options)(fetch)
    assert says in str(refused.value)


async def test_a_key_that_cannot_be_made_is_refused_at_enqueue(app: Everpoll) -> None:
    @app.job(concurrency=1, per=lambda order: order["tenant"])
    async def ship(order: dict[str, str]) -> None: ...

    with pytest.raises(BadInput, match="job 'ship': per= raised KeyError: 'tenant'"):
        await ship.enqueue({})
    with pytest.raises(BadInput, match="per= gave a key that has"):
        await ship.enqueue({"tenant": "a\0b"})
    await app.close()


async def test_a_changed_limit_holds_for_what_waits(app: Everpoll) -> None:
    """The worker's own code decides, not the task that was enqueued before."""
    other = Everpoll(app._store)

    @app.job(name="work", concurrency=5)
    async def before() -> None: ...

    tasks = await before.enqueue_many([()] * 6)
    most = running = 0

    @other.job(name="work", concurrency=1)
    async def after() -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1

    await run_all(other, [other.jobs.task(task.id) for task in tasks])
    assert most == 1
    await app.close()


async def test_a_slot_passes_to_the_next_at_once(app: Everpoll) -> None:
    """No look is waited for: the end of one task starts the next one of its key."""
    order: list[int] = []

    @app.job(concurrency=1)
    async def work(number: int) -> None:
        order.append(number)

    tasks = await work.enqueue_many([(number,) for number in range(20)])
    began = time.monotonic()
    await run_all(app, tasks)
    assert order == list(range(20))
    assert time.monotonic() - began < LIMIT_S


async def test_jobs_without_limits_pass_by(app: Everpoll) -> None:
    """A key whose only slot is taken for long holds up nothing else."""
    release, begun = asyncio.Event(), asyncio.Event()
    done: defaultdict[str, int] = defaultdict(int)

    @app.job(concurrency=1)
    async def stuck() -> None:
        begun.set()
        await release.wait()

    @app.job
    async def free() -> None:
        done["free"] += 1

    waiting = await stuck.enqueue_many([()] * 50)
    async with app:
        await soon(begun)
        for task in await free.enqueue_many([()] * 20):
            await task.result(timeout=LIMIT_S)
        assert (await waiting[1].info()).state == "queued"
        [queue] = await (await app.store()).queues()
        assert (queue.limited, queue.running) == (49, 1)
        release.set()
        await waiting[-1].result(timeout=LIMIT_S)


async def test_priorities_age(app: Everpoll) -> None:
    """A task that has waited for longer than `aging=` goes first."""
    old = Everpoll(app._store, slots=1, aging="50ms")
    order: list[str] = []

    @old.job
    async def work(name: str) -> None:
        order.append(name)

    low = await work.enqueue("low", priority=-10)
    await asyncio.sleep(0.06)
    high = await work.enqueue_many([("high",)] * 3, priority=10)
    await run_all(old, [low, *high])
    assert order[0] == "low"
    with pytest.raises(BadInput, match="aging"):
        Everpoll("memory://", aging=0)
