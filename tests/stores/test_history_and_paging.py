"""Every task is found, live or ended, exactly once, whatever moves meanwhile; old history goes."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from everpoll.stores.contract import NewTask, TaskFilter, TaskInfo
from stores.stage import HOUR_S, WATCH, Stage, again, done, json

DAY_S = 86_400.0
NOTE = json({"what": "test"})


async def pages(stage: Stage, wanted: TaskFilter, limit: int) -> AsyncIterator[tuple[TaskInfo, ...]]:
    after = None
    while True:
        page = await stage.store.tasks(wanted, limit, after)
        yield page.tasks
        if page.after is None:
            return
        assert after is None or page.after < after, "a list that does not move on never ends"
        after = page.after


async def listed(stage: Stage, limit: int = 50, **wanted: object) -> list[int]:
    return [one.id async for page in pages(stage, TaskFilter(**wanted), limit) for one in page]  # type: ignore[arg-type]


async def mixed(stage: Stage) -> dict[str, list[int]]:
    """Some tasks of every state, whose ids interleave."""
    worker = await stage.worker()
    found: dict[str, list[int]] = {state: [] for state in ("queued", "running", "done", "failed", "canceled")}
    for number in range(4):
        for state in ("done", "failed", "canceled"):
            found[state].append(await stage.ended(worker, state, **(WATCH if number % 2 else {})))
        found["running"].append((await stage.running(worker, name="run", queue="a")).id)
        found["queued"].append(await stage.put_one(delay_s=HOUR_S, queue="b", name="send"))
    return found


async def test_newest_first_in_pages_of_any_size(stage: Stage) -> None:
    """The list ends with None, also where the last page is exactly full."""
    ids = sorted((task_id for some in (await mixed(stage)).values() for task_id in some), reverse=True)
    for limit in (1, 3, 5, 19, 20, 21, 50):
        found = [[one.id for one in page] async for page in pages(stage, TaskFilter(), limit)]
        assert [task_id for page in found for task_id in page] == ids
        assert len(found) == -(-len(ids) // limit)


async def test_no_tasks_are_one_empty_page(stage: Stage) -> None:
    page = await stage.store.tasks(TaskFilter())
    assert (page.tasks, page.after) == ((), None)


async def test_filters(stage: Stage) -> None:
    by_state = await mixed(stage)
    for state, ids in by_state.items():
        for limit in (1, 2, 50):
            assert await listed(stage, limit, state=state) == ids[::-1]
    assert await listed(stage, 3, queue="a") == await listed(stage, 3, name="run") == by_state["running"][::-1]
    assert await listed(stage, 3, queue="b", name="send", state="queued", kind="job") == by_state["queued"][::-1]
    assert await listed(stage, queue="a", name="send") == []
    ended = by_state["done"] + by_state["failed"] + by_state["canceled"]
    watches = sorted((one.id for one in (await stage.store.info(ended)).values() if one.kind == "watch"), reverse=True)
    assert len(watches) == 6
    assert await listed(stage, 2, kind="watch", indexed=True) == watches
    assert await listed(stage, 2, kind="watch", indexed=True, state="done") == [
        one for one in watches if one in by_state["done"]
    ]
    assert await listed(stage, queue="nowhere") == []


async def test_the_list_shows_what_info_shows(stage: Stage) -> None:
    await mixed(stage)
    page = await stage.store.tasks(TaskFilter())
    assert {one.id: one for one in page.tasks} == await stage.store.info([one.id for one in page.tasks])


async def test_pages_are_complete_while_tasks_come_and_end(stage: Stage) -> None:
    """Between two pages tasks are added, leased, ended and retried: each of the first ones is seen once."""
    worker = await stage.worker()
    ids = await stage.put(40)
    seen: list[int] = []
    async for page in pages(stage, TaskFilter(), 7):
        seen += [one.id for one in page]
        await stage.put(2)
        leases = await stage.take(worker, 6)
        await stage.store.settle(worker, [done(one) for one in leases[::2]])
        await stage.store.settle(worker, [again(one, None) for one in leases[1::4]])
        await stage.store.retry(leases[0].id, NOTE)
    assert seen == ids[::-1]


async def test_info_knows_live_and_ended_and_leaves_out_the_rest(stage: Stage) -> None:
    worker = await stage.worker()
    ended, queued = await stage.ended(worker), await stage.put_one(delay_s=HOUR_S)
    running = await stage.running(worker)
    found = await stage.store.info([4711, running.id, ended, queued, ended, -1])
    assert {task_id: one.state for task_id, one in found.items()} == {
        running.id: "running",
        ended: "done",
        queued: "queued",
    }
    assert await stage.store.info([]) == {}


async def test_ended_knows_ended_ones_only(stage: Stage) -> None:
    worker = await stage.worker()
    done_one, failed = await stage.ended(worker), await stage.ended(worker, "failed")
    running = await stage.running(worker)
    queued = await stage.put_one()
    found = await stage.store.ended([queued, failed, 4711, running.id, done_one])
    assert {task_id: one and one.state for task_id, one in found.items()} == {failed: "failed", done_one: "done"}
    assert await stage.store.ended([]) == {}


async def test_info_of_many(stage: Stage) -> None:
    ids = await stage.put(3000)
    assert set(await stage.store.info(ids)) == set(ids)


async def test_info_is_one_snapshot(stage: Stage) -> None:
    """A task on its way to history or back is never in neither place, and never in both."""
    worker, reader = await stage.worker(), await stage.another_store()
    ids = await stage.put(20)
    gone = False

    async def move() -> None:
        nonlocal gone
        for _ in range(15):
            leases = await stage.take(worker)
            await stage.store.settle(worker, [done(one) for one in leases])
            await asyncio.gather(*(stage.store.retry(one.id, NOTE) for one in leases))
        gone = True

    async def read() -> None:
        while not gone:
            assert set(await reader.info(ids)) == set(ids)
            assert [one.id for one in (await reader.tasks(TaskFilter())).tasks] == ids[::-1]
            await asyncio.sleep(0)

    await asyncio.gather(move(), read())


async def test_prune_drops_old_history_only(stage: Stage) -> None:
    worker = await stage.worker(lease_s=100 * DAY_S)
    old = [await stage.ended(worker, state) for state in ("done", "failed", "canceled")]
    live = await stage.put_one(delay_s=100 * DAY_S)
    await stage.store.note_loss(old[0], NOTE)
    await stage.pass_time(40 * DAY_S)
    young = await stage.ended(worker)
    await stage.store.note_loss(young, NOTE)
    assert await stage.store.prune(30 * DAY_S) >= 1
    assert set(await stage.store.info([*old, live, young])) == {live, young}
    assert await stage.store.losses(old[0]) == []
    assert len(await stage.store.losses(young)) == 1
    assert await stage.store.prune(30 * DAY_S) == 0
    assert not await stage.store.retry(old[0], NOTE)


async def test_prune_of_everything(stage: Stage) -> None:
    """Zero: all that has ended, at least of earlier days."""
    worker = await stage.worker(lease_s=100 * DAY_S)
    ended = [await stage.ended(worker) for _ in range(5)]
    live = await stage.put_one(delay_s=HOUR_S)
    await stage.pass_time(3 * DAY_S)
    await stage.store.prune(DAY_S)
    assert set(await stage.store.info([*ended, live])) == {live}


async def test_ids_are_never_used_twice(stage: Stage) -> None:
    """Also when everything has ended and is forgotten: tokens and links refer to ids."""
    worker = await stage.worker(lease_s=100 * DAY_S)
    ids = [await stage.ended(worker) for _ in range(3)]
    await stage.pass_time(40 * DAY_S)
    await stage.store.prune(DAY_S)
    [answer] = await stage.store.enqueue([NewTask(name="job")])
    assert answer.id > max(ids)


async def test_a_search_without_an_index_is_bounded_and_says_how_far_back_it_looked(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list goes on behind that, and finds everything in the end, live and ended, in order."""
    monkeypatch.setattr("everpoll.stores.task_search.SEARCH_LIMIT", 10)
    worker = await stage.worker()
    rare = []
    for number in range(6):
        rare.append(await stage.put_one(name="rare"))
        await stage.put(12)
        if number % 2:
            leases = await stage.take(worker, 100)
            await stage.store.settle(worker, [done(one) for one in leases])
    assert await listed(stage, name="rare") == rare[::-1]
    page = await stage.store.tasks(TaskFilter(name="not there"))
    assert page.tasks == ()
    if stage.backend.name != "memory":
        assert page.after is not None
        assert page.searched_back_to is not None
    assert (await stage.store.tasks(TaskFilter())).searched_back_to is None


async def test_tasks_are_listed_by_what_their_keys_begin_with(stage: Stage) -> None:
    worker = await stage.worker()
    keys = ["a:1", "a:2", "A:3", "a%:4", "b:5"]
    ids = {key: await stage.put_one(key=key, kind="incident", indexed=True) for key in keys}
    await stage.put_one()
    await stage.store.settle(worker, [done(one) for one in await stage.take(worker, 2)])
    assert await listed(stage, key_start="a:") == [ids["a:2"], ids["a:1"]]
    assert await listed(stage, key_start="a%", kind="incident", indexed=True) == [ids["a%:4"]]
    assert await listed(stage, key_start="a:", kind="incident", indexed=True, state="done") == [ids["a:2"], ids["a:1"]]
    assert await listed(stage, key_start="c") == []
