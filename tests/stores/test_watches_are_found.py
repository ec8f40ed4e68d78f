"""A watch is found by its key and by its kind, and the results of the last ones by their name, among many jobs."""

from everpoll.stores.contract import EndState, LiveTask
from stores.stage import HOUR_S, NOTE, WATCH, Stage, done
from stores.test_history_and_paging import listed


async def found(stage: Stage, kind: str = "watch", key: str = "k") -> tuple[int, str] | None:
    info = await stage.store.find(kind, key)
    return None if info is None else (info.id, info.state)


async def test_the_live_one_then_the_newest_ended_one(stage: Stage) -> None:
    worker = await stage.worker()
    assert await found(stage) is None
    first = await stage.running(worker, **WATCH, key="k", memory='{"a":1}')
    assert await found(stage) == (first.id, "running")
    await stage.store.settle(worker, [done(first, 1)])
    assert await found(stage) == (first.id, "done")
    second = await stage.running(worker, **WATCH, key="k")
    assert await found(stage) == (second.id, "running")
    await stage.store.settle(worker, [done(second, 2, "failed")])
    assert await found(stage) == (second.id, "failed")
    shown = await stage.store.find("watch", "k")
    assert shown == await stage.show(second.id)
    await stage.store.retry(first.id, NOTE)
    assert await found(stage) == (first.id, "queued")


async def test_only_of_that_kind_and_key(stage: Stage) -> None:
    worker = await stage.worker()
    job = await stage.put_one(key="k")
    assert await found(stage) is None
    assert await found(stage, "job") == (job, "queued")
    await stage.store.settle(worker, [done(await stage.take_one(worker))])
    assert await found(stage, "job") is None, "an ended task that is not indexed is not looked for"
    watch = await stage.ended(worker, **WATCH, key="k")
    assert await found(stage) == (watch, "done")
    assert await found(stage, key="K") is None
    assert await found(stage, key="") is None


async def test_what_is_forgotten_is_not_found(stage: Stage) -> None:
    await stage.ended(await stage.worker(), **WATCH, key="k")
    await stage.pass_time(HOUR_S)
    await stage.store.prune(60.0)
    assert await found(stage) is None


async def test_last_results_newest_first(stage: Stage) -> None:
    """Of every end that brought one; what brought none is passed over, and so are other names and kinds."""
    worker = await stage.worker()
    ends: list[tuple[EndState, object]] = [("done", 1), ("failed", {"s": 2.5}), ("canceled", [3]), ("done", None)]
    for state, result in ends:
        lease = await stage.running(worker, **WATCH, name="w")
        await stage.store.settle(worker, [done(lease, result, state)])
    for fields in ({"kind": "job", "name": "w"}, {**WATCH, "name": "v"}):
        await stage.store.settle(worker, [done(await stage.running(worker, **fields), "other")])
    await stage.running(worker, **WATCH, name="w")
    assert await stage.store.last_results("watch", "w") == [[3], {"s": 2.5}, 1]
    assert await stage.store.last_results("watch", "w", 2) == [[3], {"s": 2.5}]
    assert await stage.store.last_results("watch", "none") == []
    assert await stage.store.last_results("job", "w") == [], "tasks that are not indexed are not looked for"


async def test_results_are_in_the_order_of_their_ends(stage: Stage) -> None:
    worker = await stage.worker()
    ids = await stage.put(5, **WATCH, name="w")
    leases = {one.id: one for one in await stage.take(worker)}
    for place in (3, 0, 4, 1, 2):
        await stage.store.settle(worker, [done(leases[ids[place]], place)])
        await stage.pass_time(1.0)
    assert await stage.store.last_results("watch", "w") == [2, 1, 4, 0, 3]


async def test_watches_are_listed_among_jobs(stage: Stage) -> None:
    """In pages, and with every other wish."""
    worker = await stage.worker()
    watches = []
    for number in range(6):
        await stage.put(20)
        watches.append(await stage.put_one(**WATCH, name="even" if number % 2 == 0 else "odd"))
    ended = [one for one in await stage.take(worker, 200) if one.id not in watches[4:]]
    await stage.store.settle(worker, [done(one, None, "failed" if one.id in watches else "done") for one in ended])
    for limit in (1, 2, 4, 6, 7):
        assert await listed(stage, limit, kind="watch", indexed=True) == watches[::-1]
    assert await listed(stage, kind="watch", indexed=True, state="failed") == watches[3::-1]
    assert await listed(stage, kind="watch", indexed=True, state="running") == watches[:3:-1]
    assert await listed(stage, kind="watch", indexed=True, state="done") == []
    assert await listed(stage, kind="watch", indexed=True, name="even") == watches[::2][::-1]


async def test_live_ones_are_read_as_they_are_written(stage: Stage) -> None:
    """In pages, newest first, without other kinds, tasks that are not indexed, and those that have ended."""
    worker = await stage.worker()
    await stage.ended(worker, **WATCH, key="ended")
    running = await stage.running(worker, **WATCH, key="running", args='{"a":1}', memory='{"b":2}')
    ids = [await stage.put_one(**WATCH, key=f"k{number}", delay_s=HOUR_S) for number in range(3)]
    await stage.put_one(key="job")
    await stage.store.cancel(running.id, NOTE)
    found = await stage.store.live("watch")
    assert [one.id for one in found] == [*reversed(ids), running.id]
    assert found[-1] == LiveTask(running.id, "running", True, '{"a":1}', '{"b":2}')
    first = await stage.store.live("watch", 2)
    assert [one.key for one in first] == ["k2", "k1"]
    assert [one.key for one in await stage.store.live("watch", 2, first[-1].id)] == ["k0", "running"]
    assert await stage.store.live("nothing") == []
