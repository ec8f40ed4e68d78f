"""Runs on real databases, in real time: from begin to cleanup, canceled, begun twice, followed by several readers."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everpoll import Backoff, Budget, Everpoll, RunCanceled
from everpoll.watches import Done, Wait, Watch
from everpoll.watches.rounds import sweep

QUICK = Backoff("20ms", factor=1.5, cap="100ms", jitter=0.2)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'watches.db'}"
    else:
        yield request.getfixturevalue("postgres_url")


class Remote:
    """Counts what is done to it, by key."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.is_broken = False

    def watch(self, app: Everpoll, looks: int = 5) -> Watch[Any]:
        @app.watch(every=QUICK, budget=Budget("5m"), cleanup_every=QUICK, cleanup_budget="200ms")
        async def query(op: dict[str, Any], w: Any) -> Any:
            w.status("Running" if w.looks < looks else "Complete")
            w.memory["looks"] = w.looks
            if w.is_canceling:
                return Done()
            return w.verify("rows") if w.looks >= op.get("looks", looks) else Wait()

        @query.start
        async def start(_op: Any, key: str) -> dict[str, str]:
            self.done.append(("start", key))
            return {"id": key}

        @query.verify("rows", tries=3, every=QUICK)
        async def rows(_op: Any, w: Any) -> Any:
            return {"rows": 3, "handle": w.handle} if w.looks > looks else None

        @query.cancel
        async def cancel(_op: Any, key: str) -> None:
            self.done.append(("cancel", key))

        @query.cleanup
        async def cleanup(_op: Any, key: str) -> None:
            if self.is_broken:
                raise ConnectionError("gone")
            self.done.append(("clean", key))

        return query


async def test_a_run_from_its_begin_to_its_cleanup_with_every_event_once(url: str) -> None:
    remote, app = Remote(), Everpoll(url)
    watch = remote.watch(app)
    async with app:
        run = await watch.begin({"sql": "select 'ä'"}, id="r1")
        again = await watch.begin({"sql": "other"}, id="r1")
        assert (again.task_id, again.is_new) == (run.task_id, False)
        assert await run.result("30s") == {"rows": 3, "handle": {"id": "query:r1"}}
        events = [event async for event in run.events()]
        assert [event.seq for event in events[1:]] == list(range(1, len(events)))
        assert events[-1].phase == "ended"
        info = await run.info()
        assert (info.outcome, info.cleaned, info.status, info.memory) == ("ready", True, "complete", {"looks": 6})
        assert remote.done == [("start", "query:r1"), ("clean", "query:r1")]
        later = await watch.begin({}, id="r1")
        assert (later.task_id, later.is_new) == (run.task_id, False)
        store = await app.store()
        assert [one["outcome"] for one in await store.last_results("watch", "query")] == ["ready"]


async def test_a_cancel_reaches_the_remote_within_a_moment_although_the_next_look_is_far(url: str) -> None:
    remote, app = Remote(), Everpoll(url)
    watch = remote.watch(app)
    async with app:
        run = await watch.begin({"looks": 10_000}, id="r1")
        far = await watch.begin({}, id="r2", delay="1h")
        await asyncio.sleep(0.1)
        assert await run.cancel("not needed")
        assert await far.cancel()
        for one in (run, far):
            with pytest.raises(RunCanceled):
                await one.result("20s")
        async for _ in run.events():
            pass
        assert remote.done == [("start", "query:r1"), ("cancel", "query:r1"), ("clean", "query:r1")]


async def test_a_caller_that_waits_elsewhere_hears_of_the_outcome(url: str) -> None:
    remote, app, elsewhere = Remote(), Everpoll(url), Everpoll(url)
    watch = remote.watch(app)
    remote.watch(elsewhere)
    async with app:
        run = await watch.begin({}, id="r1")
        other = await elsewhere.watches.run("query", "r1")
        assert await other.result("30s") == await run.result()
        await elsewhere.close()


async def test_what_leaked_is_put_back_once_and_cleaned_up(url: str) -> None:
    remote, app = Remote(), Everpoll(url)
    watch = remote.watch(app)
    remote.is_broken = True
    async with app:
        run = await watch.begin({}, id="r1")
        async for _ in run.events():
            pass
        assert (await run.info()).cleaned is False
        remote.is_broken = False
        assert await sweep(app.watches, "query") == 1
        async with asyncio.timeout(20):
            while (await run.info()).cleaned is not True:  # noqa: ASYNC110 - a worker does it
                await asyncio.sleep(0.02)
        info = await run.info()
        assert (info.outcome, info.phase) == ("ready", "ended")
        assert await sweep(app.watches, "query") == 0


async def test_many_runs_at_once_each_end_with_their_own_value(url: str) -> None:
    app = Everpoll(url, slots=8)

    @app.watch(every=QUICK, budget=Budget("5m"))
    async def count(op: int, w: Any) -> Any:
        return Done(op * 2) if w.looks > op % 4 else Wait()

    async with app:
        runs = await asyncio.gather(*(count.begin(number, id=f"r{number}") for number in range(300)))
        assert await asyncio.gather(*(run.result("60s") for run in runs)) == [number * 2 for number in range(300)]


async def test_odd_characters_come_back_as_they_were_and_harm_nothing(url: str) -> None:
    odd = "nul \x00, emoji 💥, quote ' \" \\ %s {}"
    app = Everpoll(url)

    @app.watch(every=QUICK, budget=Budget("5m"))
    async def query(op: dict[str, str], w: Any) -> Any:
        w.memory["odd"] = op["odd"]
        w.status(f"STATUS {odd}")
        w.progress(f"half \ud800 {odd}")
        w.count(odd)
        if w.looks == 1:
            raise ConnectionError(f"half \ud800 {odd}")
        return Done({"op": op["odd"], "memory": w.memory["odd"], "handle": w.handle}, why=f"half \ud800 {odd}")

    async with app:
        run = await query.begin({"odd": odd}, id="emoji 💥 ' %s", handle=odd)
        assert await run.result("30s") == {"op": odd, "memory": odd, "handle": odd}
        info = await run.info()
        assert info.status == "status nul \\x00, emoji 💥, quote ' \" \\ %s {}"
        assert info.progress is not None
        assert info.progress.startswith("half \\ud800 nul \\x00")
        assert [event.outcome async for event in run.events()][-1] == "ready"
        assert (await app.watches.run("query", "emoji 💥 ' %s")).task_id == run.task_id
        far = await query.begin({"odd": odd}, id="far", delay="1h")
        await far.cancel(f"half \ud800 {odd}")
        with pytest.raises(RunCanceled):
            await far.result("20s")


async def test_a_cancel_that_races_with_many_looks_never_ends_a_run_by_itself(url: str) -> None:
    """Requests come while runs are looked at, wait for a slot, start or are settled: each remote hears of its own."""
    remote, app = Remote(), Everpoll(url, slots=4)
    watch = remote.watch(app, looks=1_000_000)
    async with app:
        runs = await asyncio.gather(*(watch.begin({}, id=f"r{number}") for number in range(60)))
        for number, run in enumerate(runs):
            await run.cancel()
            if number % 7 == 0:
                await asyncio.sleep(0.01)
        for run in runs:
            with pytest.raises(RunCanceled):
                await run.result("60s")
            async for _ in run.events():
                pass
        for run in runs:
            started = ("start", f"query:{run.id}") in remote.done
            info = await run.info()
            assert (info.outcome, info.phase) == ("canceled", "ended")
            assert (("clean", f"query:{run.id}") in remote.done) == (info.cleaned is True)
            if started:
                assert ("cancel", f"query:{run.id}") in remote.done
                assert info.cleaned is True
