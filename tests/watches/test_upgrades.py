"""Counters, watches that no worker registers, and rows of older and newer code."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from everpoll import BadInput, Budget, Everpoll
from everpoll.stores.contract import NewTask
from everpoll.stores.memory import MemoryStore
from everpoll.watches import Done, Wait
from everpoll.watches.memory import RunMemory, decode, encode
from watches.stage import BUDGET, DOCUMENT, WatchStage


def test_what_happened_is_counted_per_run_and_per_watch(stage: WatchStage) -> None:
    remote = stage.script(status=["running", "complete"], is_running=[ConnectionError("x"), False], rows=[0, 2])

    async def look(_op: Any, w: Any) -> Any:
        running = await w.attempt(remote.is_running)
        w.confirm("not_running", None if running is None else not running, times=1)
        if w.due("probe"):
            w.count("fast path")
        return w.verify("rowset") if await remote.status() == "complete" else Wait()

    watch = stage.watch(look)

    @watch.verify("rowset")
    async def rowset(_op: Any) -> Any:
        return await remote.rows()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await run.result()
        expected = {
            "looks": 3,
            "attempt:is_running": 3,
            "attempt failed:is_running": 1,
            "confirm:not_running": 1,
            "due:probe": 3,
            "fast path": 3,
            "verify:rowset": 2,
            "outcome:ready": 1,
        }
        assert (await run.info()).counters == expected
        assert watch.counters == expected

    stage.play(scene)


def test_a_run_of_a_watch_that_this_worker_does_not_know_waits_for_one_that_does(stage: WatchStage) -> None:
    """An older release beside a newer one must not end, cancel or restart what is in the middle of its life."""
    remote = stage.script(status=["running"])
    clock, store = stage.clock, MemoryStore(stage.clock)
    stage.app = Everpoll(store, clock=clock)
    stranger = Everpoll(store, clock=clock)

    async def look(_op: Any, w: Any) -> None: ...

    stranger.watch(every="10s", budget=Budget("1h"), name="other")(look)
    watch = stage.whole()

    async def scene() -> None:
        async with stage.app:
            run = await watch.begin({}, id="r")
            await asyncio.sleep(10)
        looked = remote.count("status")
        async with stranger:
            await asyncio.sleep(3600)
            info = await run.info()
            assert (info.phase, info.outcome) == ("needs_code", None)
            assert "no watch called 'query' is registered in this worker; registered: other" in str(info.reason)
            assert info.log[-1].rule == "needs_code"
            assert 10 < info.log[-1].times < 30, "ever more rarely"
            await run.cancel("not needed")
            await asyncio.sleep(600)
            assert (await run.info()).outcome is None, "it has not ended"
        assert (remote.count("status"), remote.count("cancel")) == (looked, 0)
        remote._answers["status"] = ["complete"]
        async with stage.app:
            await stage.ended(run)
            info = await run.info()
            assert info.outcome == "canceled"
            assert (remote.count("start"), remote.count("cancel"), remote.count("clean")) == (1, 1, 1)
            phases = [event.phase async for event in run.events()]
            assert phases.count("needs_code") == 1

    stage.play(scene, working=False)


def test_a_run_that_no_worker_knew_for_an_hour_has_its_budget_left(stage: WatchStage) -> None:
    remote = stage.script(status=["running"])
    store = MemoryStore(stage.clock)
    stage.app, stranger = Everpoll(store, clock=stage.clock), Everpoll(store, clock=stage.clock)
    stranger.job()(_nothing)
    watch = stage.whole(budget=Budget("20m"))

    async def scene() -> None:
        async with stage.app:
            run = await watch.begin({}, id="r")
            await asyncio.sleep(10)
        async with stranger:
            await asyncio.sleep(3600)
        remote._answers["status"] = ["complete"]
        async with stage.app:
            assert await run.result() == "id-1"

    stage.play(scene, working=False)


async def _nothing() -> None: ...


def test_a_slot_is_held_only_during_a_look() -> None:
    stage = WatchStage()
    stage.app = Everpoll("memory://", clock=stage.clock, slots=2)
    most = busy = 0

    async def look(_op: Any, w: Any) -> Any:
        nonlocal most, busy
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0.01)
        busy -= 1
        return Done() if w.looks == 3 else Wait()

    watch = stage.watch(look)

    async def scene() -> None:
        runs = [await watch.begin({}, id=f"r{number}") for number in range(100)]
        for run in runs:
            await run.result()
        assert most == 2

    stage.play(scene)


def test_rows_of_an_older_release_are_understood() -> None:
    old = json.dumps({"run_id": "r", "phase": "looking", "handle": "h", "looks": 3})
    memory = decode(old)
    assert (memory.looks, memory.confirms, memory.outcome) == (3, {}, None)
    newer = json.dumps({"run_id": "r", "invented_later": {"a": 1}})
    assert decode(newer).run_id == "r", "a release before the last one ignores what it does not know"


def test_a_row_of_an_older_version_is_migrated_and_goes_on_where_it_was(stage: WatchStage) -> None:
    async def scene() -> None:
        old = stage.app.watch(every=DOCUMENT, budget=BUDGET, name="query")(waiting)
        run = await old.begin({"query": "select 1"}, id="r")
        async with stage.working():
            await asyncio.sleep(31)
        looks = (await run.info()).looks
        newer = Everpoll(await stage.app.store(), clock=stage.clock)

        @newer.watch(every=DOCUMENT, budget=BUDGET, name="query", version=3)
        async def look(op: dict[str, Any], w: Any) -> Any:
            return Done([op, w.memory, w.looks])

        @look.migrate(1, 2)
        def one(op: Any, memory: dict[str, Any]) -> Any:
            return {"sql": op["query"]}, memory | {"from": 1}

        @look.migrate(2, 3)
        def two(_op: Any, memory: dict[str, Any]) -> None:
            memory["to"] = 3

        async with newer.working():
            found = await newer.watches.run("query", "r")
            assert await found.result() == [{"sql": "select 1"}, {"from": 1, "to": 3}, looks + 1]

    stage.play(scene, working=False)


def test_without_a_migration_it_is_parked_with_a_message_and_never_restarted(stage: WatchStage) -> None:
    async def scene() -> None:
        remote = stage.script(status=["complete"])
        old = stage.with_start(stage.watch(waiting))
        run = await old.begin({}, id="r")
        async with stage.working():
            await asyncio.sleep(20)
        newer = Everpoll(await stage.app.store(), clock=stage.clock)
        newest = newer.watch(every=DOCUMENT, budget=BUDGET, name="query", version=2)(stage.plain_look)

        @newest.start
        async def start(_op: Any, key: str) -> Any:
            return await remote.start(key)

        async with newer.working():
            await asyncio.sleep(3 * 3600)
            info = await run.info()
            assert info.phase == "needs_code"
            assert "it was written by version 1, this is version 2: write @query.migrate(1, …)" in str(info.reason)

        @newest.migrate(1, 2)
        def migrate(_op: Any, _memory: dict[str, Any]) -> None: ...

        async with newer.working():
            assert await run.result() == "id-1", "parked time does not count"
        assert remote.count("start") == 1

    stage.play(scene, working=False)


def test_an_operation_that_does_not_fit_parks_as_well(stage: WatchStage) -> None:
    class Order(msgspec.Struct):
        sku: str

    async def look(_op: Order, _w: Any) -> Any:
        return Done()

    watch = stage.watch(look)
    watch.op_type._type = Order

    async def scene() -> None:
        store = await stage.app.store()
        memory = encode(RunMemory("r", phase="looking"))
        await store.enqueue(
            [NewTask(name="query", kind="watch", indexed=True, key="query:r", args="{}", memory=memory, once=True)]
        )
        await asyncio.sleep(5)
        info = await (await stage.app.watches.run("query", "r")).info()
        assert info.phase == "needs_code"
        assert "does not fit query" in str(info.reason)

    stage.play(scene)


def test_a_memory_that_cannot_be_read_fails_the_run_and_no_other(stage: WatchStage) -> None:
    stage.script(status=["complete"])
    watch = stage.whole()

    async def scene() -> None:
        store = await stage.app.store()
        bad = NewTask(
            name="query", kind="watch", indexed=True, key="query:bad", args="{}", memory='{"run_id": 7}', once=True
        )
        [task] = await store.enqueue([bad])
        assert await (await watch.begin({}, id="good")).result() == "id-1"
        info = (await store.info([task.id]))[task.id]
        assert info.state == "failed"
        assert "its memory cannot be read" in str(info.trail[-1]["error"])

    stage.play(scene)


async def waiting(_op: Any, _w: Any) -> Wait:
    return Wait()


@pytest.mark.parametrize("number", [0, 1])
def test_a_migration_goes_up(stage: WatchStage, number: int) -> None:
    watch = stage.watch()
    with pytest.raises(ValueError, match="one migration for each old version"):
        watch.migrate(1, number)(lambda _op, _memory: None)


def test_a_migration_that_fails_half_way_leaves_nothing_of_itself_behind(stage: WatchStage) -> None:
    """Else its first half would be done again to what it has done already, at every try."""
    is_mended = False

    async def look(op: Any, w: Any) -> Any:
        return Done([op, w.memory]) if w.elapsed >= 900 else Wait()

    async def scene() -> None:
        old = stage.app.watch(every=DOCUMENT, budget=BUDGET, name="query")(waiting)
        run = await old.begin({"steps": []}, id="r")
        async with stage.working():
            await asyncio.sleep(1)
        newer = Everpoll(await stage.app.store(), clock=stage.clock)
        watch = newer.watch(every=DOCUMENT, budget=BUDGET, name="query", version=3)(look)

        @watch.migrate(1, 2)
        def one(op: Any, memory: dict[str, Any]) -> None:
            op["steps"].append(1)
            memory["one"] = memory.get("one", 0) + 1

        @watch.migrate(2, 3)
        def two(op: Any, memory: dict[str, Any]) -> Any:
            return (op, memory) if is_mended else {"op": op}

        async with newer.working():
            await asyncio.sleep(1000)
            info = await run.info()
            assert (info.phase, info.memory, info.op) == ("needs_code", {}, {"steps": []})
            nonlocal is_mended
            is_mended = True
            await asyncio.sleep(301)
            info = await run.info()
            assert (info.phase, info.reason) == ("looking", None), "it is not parked any more"
            assert await run.result() == [{"steps": [1]}, {"one": 1}]

    stage.play(scene, working=False)


@pytest.mark.parametrize("answer", [({}, []), (object(), {}), ({}, {"x": object()}), 7])
def test_a_migration_that_returns_what_cannot_be_stored_parks(stage: WatchStage, answer: Any) -> None:
    async def scene() -> None:
        old = stage.app.watch(every=DOCUMENT, budget=BUDGET, name="query")(waiting)
        run = await old.begin({}, id="r")
        async with stage.working():
            await asyncio.sleep(1)
        newer = Everpoll(await stage.app.store(), clock=stage.clock)
        watch = newer.watch(every=DOCUMENT, budget=BUDGET, name="query", version=2)(waiting)
        watch.migrate(1, 2)(lambda _op, _memory: answer)
        async with newer.working():
            await asyncio.sleep(1000)
            assert (await run.info()).phase == "needs_code"

    stage.play(scene, working=False)


def test_a_migration_of_the_memory_outlives_a_look_that_fails(stage: WatchStage) -> None:
    """A look that raises has seen nothing; what was migrated before it stays migrated."""
    seen: list[dict[str, Any]] = []

    async def look(_op: Any, w: Any) -> Any:
        seen.append(dict(w.memory))
        if len(seen) == 1:
            w.memory["half"] = True
            raise ConnectionError("down")
        return Done()

    watch = stage.watch(look, version=2)

    @watch.migrate(1, 2)
    def migrate(op: Any, memory: dict[str, Any]) -> Any:
        return op, {"cursor": f"p{memory['page']}"}

    async def scene() -> None:
        store = await stage.app.store()
        memory = RunMemory("r", phase="looking", user={"page": 4}, version=1)
        await store.enqueue(
            [NewTask(name="query", kind="watch", indexed=True, key="query:r", memory=encode(memory), once=True)]
        )
        run = await stage.app.watches.run("query", "r")
        await run.result()
        assert seen == [{"cursor": "p4"}, {"cursor": "p4"}]

    stage.play(scene)


def test_a_migration_that_exits_parks_its_run_and_an_async_one_is_refused(stage: WatchStage) -> None:
    watch = stage.watch(version=2)

    @watch.migrate(1, 2)
    def migrate(_op: Any, _memory: dict[str, Any]) -> Any:
        raise SystemExit(3)

    with pytest.raises(BadInput, match=r"migrate\(2, 3\) must be a plain function"):
        watch.migrate(2, 3)(_nothing)  # type: ignore[arg-type]  # that is the point

    async def scene() -> None:
        store = await stage.app.store()
        memory = RunMemory("r", phase="looking", version=1)
        await store.enqueue(
            [NewTask(name="query", kind="watch", indexed=True, key="query:r", memory=encode(memory), once=True)]
        )
        await asyncio.sleep(1)
        info = await (await stage.app.watches.run("query", "r")).info()
        assert (info.phase, info.outcome) == ("needs_code", None)

    stage.play(scene)
