"""However large tasks are, one look hands out a bounded amount, in their order, and what is behind them runs too.

The bounds are made small here, or hundreds of megabytes would go back and forth.
"""

import pytest

from everpoll.stores import limits
from everpoll.stores.contract import NewTask, TaskFilter
from everpoll.stores.limits import in_portions, size_of
from stores.stage import Stage, again, done, json

LOOK_BYTES = 400_000
QUARTER = json("é" * (LOOK_BYTES // 8 - 500))
"""Four of these fit into one look: bytes, not characters."""


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LEASE_BYTES", LOOK_BYTES)
    monkeypatch.setattr(limits, "STATEMENT_BYTES", LOOK_BYTES)
    monkeypatch.setattr(limits, "READ_BYTES", LOOK_BYTES)


def weight(texts: list[str]) -> int:
    return sum(map(size_of, texts))


@pytest.mark.parametrize("queues", [("default",), ("default", "other")], ids=["one queue", "two queues"])
async def test_a_look_hands_out_no_more_than_it_can_carry(stage: Stage, queues: tuple[str, ...]) -> None:
    worker = await stage.worker()
    large = [NewTask(name="large", args=QUARTER, queue=queues[number % len(queues)]) for number in range(6)]
    ids = [(await stage.store.enqueue([task]))[0].id for task in large]
    ids += await stage.put(3, name="innocent")
    rooms = dict.fromkeys(queues, 500)
    taken: list[int] = []
    looks = 0
    while len(taken) < len(ids):
        looked = await stage.store.lease(worker, rooms, 500)
        assert looked.leases, "no look is empty while something is due"
        assert weight([lease.args for lease in looked.leases]) <= LOOK_BYTES
        taken += [lease.id for lease in looked.leases]
        looks += 1
        assert looked.is_all == (len(taken) == len(ids)), "a look that left something behind says so"
        for lease in looked.leases:
            assert lease.args == (QUARTER if lease.name == "large" else "null")
        assert await stage.store.settle(worker, [done(lease) for lease in looked.leases]) == set()
    assert taken == ids, "in the order of work"
    assert looks == 2


async def test_what_a_task_remembers_counts_too(stage: Stage) -> None:
    worker = await stage.worker()
    ids = [await stage.put_one(memory=QUARTER) for _ in range(5)]
    first = await stage.take(worker)
    assert [lease.id for lease in first] == ids[:4]
    assert await stage.store.settle(worker, [again(lease, 3600.0) for lease in first]) == set()
    assert [lease.id for lease in await stage.take(worker)] == ids[4:]


async def test_light_looks_follow_heavy_ones(stage: Stage) -> None:
    worker = await stage.worker()
    for _ in range(5):
        await stage.put_one(args=QUARTER)
    await stage.take(worker)
    light = await stage.put(10)
    assert [lease.id for lease in await stage.take(worker)][1:] == light
    later = await stage.put(10)
    looked = await stage.store.lease(worker, {"default": 500}, 500)
    assert [lease.id for lease in looked.leases] == later
    assert looked.is_all


async def test_a_call_with_more_than_one_statement_carries_is_stored_whole(stage: Stage) -> None:
    """And wakes, keys and order are the same as in a small one."""
    size = LOOK_BYTES // 3
    tasks = [NewTask(name=f"n{number}", args=json("x" * size), key=f"k{number % 7}") for number in range(8)]
    answers = await stage.store.enqueue(tasks)
    assert [answer.is_new for answer in answers] == [True] * 7 + [False]
    assert answers[7].id == answers[0].id
    ids = [answer.id for answer in answers[:7]]
    assert ids == sorted(set(ids))
    shown = await stage.store.info(ids)
    assert [shown[one].name for one in ids] == [f"n{number}" for number in range(7)]


async def test_a_look_at_results_brings_no_more_than_fit(stage: Stage) -> None:
    """Callers are read first about some, and hear that the others have ended, too."""
    worker = await stage.worker()
    waiting = await stage.put_one()
    leases = await stage.take(worker)
    ids = [await stage.put_one(args=QUARTER, memory=QUARTER) for _ in range(10)]
    leases = [*leases, *await stage.take(worker), *await stage.take(worker), *await stage.take(worker)]
    leases += [*await stage.take(worker), *await stage.take(worker)]
    ends = [done(lease, "é" * (LOOK_BYTES // 8 - 500)) for lease in leases if lease.id != waiting]
    assert await stage.store.settle(worker, ends) == set()
    looks, left = 0, [waiting, *ids]
    while (found := await stage.store.ended(left)) and looks < 10:
        read = {task_id: task for task_id, task in found.items() if task is not None}
        assert len(read) in (2, 4)
        assert {(task.state, json(task.result), task.args, task.memory) for task in read.values()} == {
            ("done", QUARTER, None, None)
        }
        assert list(found) == [task_id for task_id in left if task_id != waiting]
        left = [task_id for task_id in left if task_id not in read]
        looks += 1
    assert (left, looks) == ([waiting], 3)


async def test_a_result_too_large_for_every_answer_comes_alone(stage: Stage) -> None:
    worker = await stage.worker()
    large, small = await stage.running(worker), await stage.running(worker)
    await stage.store.settle(worker, [done(large, "x" * 2 * LOOK_BYTES), done(small, "y")])
    found = await stage.store.ended([large.id, small.id])
    first = found[large.id]
    assert first is not None
    assert len(first.result) == 2 * LOOK_BYTES
    assert found[small.id] is None
    assert list(await stage.store.ended([small.id])) == [small.id]


async def test_sizes_are_told_without_the_payloads(stage: Stage) -> None:
    """Of live and of ended tasks, in bytes; a task that is not there has none."""
    worker = await stage.worker()
    ended = await stage.running(worker, args=json("é" * 500))
    await stage.store.settle(worker, [done(ended, "é" * 250)])
    live = await stage.put_one(args=json("x" * 100), memory=json("é" * 100))
    sizes = await stage.store.sizes([live, ended.id, live + 1_000])
    assert sorted(sizes) == sorted([live, ended.id])
    assert 1_500 <= sizes[ended.id] <= 2_000
    assert 300 <= sizes[live] <= 500


async def test_what_has_failed_is_told_with_its_reasons(stage: Stage) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker, args=QUARTER)
    note = json({"what": "failed", "error": "no"})
    await stage.store.settle(worker, [done(lease, state="failed", note=note)])
    found = (await stage.store.ended([lease.id]))[lease.id]
    assert found is not None
    assert (found.state, found.args, [one["error"] for one in found.errors]) == ("failed", None, ["no"])


async def test_a_page_of_large_tasks_is_shorter(stage: Stage) -> None:
    """And the next one goes on from there, until nothing is left out."""
    worker = await stage.worker()
    ids = [await stage.put_one(args=QUARTER) for _ in range(4)]
    await stage.store.settle(worker, [done(lease) for lease in await stage.take(worker)])
    ids += [await stage.put_one(args=QUARTER) for _ in range(5)]
    pages: list[list[int]] = []
    after: int | None = None
    while not pages or after is not None:
        page = await stage.store.tasks(TaskFilter(name="job"), 50, after)
        pages.append([one.id for one in page.tasks])
        after = page.after
    assert [task_id for page in pages for task_id in page] == ids[::-1]
    assert list(map(len, pages)) == [4, 4, 1]


def test_portions_are_bounded_by_number_and_by_bytes() -> None:
    half = LOOK_BYTES // 2
    sizes = [half, half, half, 3 * half, 1, 1, 1, half]
    assert [list(one) for one in in_portions(range(8), sizes, 3)] == [[0, 1], [2], [3], [4, 5, 6], [7]]
    assert list(in_portions([], [], 3)) == []
