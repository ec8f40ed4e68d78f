"""Whatever is enqueued comes back as it was: by itself, among its like, or in a mixed crowd."""

from collections.abc import Callable

import pytest

from everpoll.stores.contract import Ended, Enqueued, NewTask, TaskFilter, WorkerCard, encode
from everpoll.stores.sqlite import SqliteStore, leasing, retention
from stores.backends import SteppedClock

CARD = WorkerCard(incarnation=5, label="w", host="h", pid=1, queues=("q", "default"), slots=1, version="0")
TEXTS = ["", "plain", 'with "quotes" and \\', "tab\tnewline\n\x01\x1f\x7f", "✓ 💥 \u2028", "'; drop --"]
NAMES = [text for text in TEXTS if "\0" not in text]
"""Every store refuses a NUL in a name, a queue or a key. In arguments and results it is an escape of JSON."""


def _alone(task: NewTask) -> list[NewTask]:
    return [task]


def _among_its_like(task: NewTask) -> list[NewTask]:
    return [
        task,
        NewTask(**{name: getattr(task, name) for name in task.__struct_fields__} | {"key": "other", "args": "0"}),
    ]


def _in_a_crowd(task: NewTask) -> list[NewTask]:
    return [task, NewTask(name="other", priority=-1, queue="elsewhere", timeout_s=3.5)]


@pytest.mark.parametrize("company", [_alone, _among_its_like, _in_a_crowd])
@pytest.mark.parametrize("text", NAMES)
async def test_texts_come_back(store: SqliteStore, text: str, company: Callable[[NewTask], list[NewTask]]) -> None:
    await store.sign_on(CARD, 600)
    task = NewTask(name=text, queue=text, key=text, kind=text, args=encode([text]), memory=encode({"m": text}))
    [enqueued, *_] = await store.enqueue(company(task))
    assert enqueued.is_new
    assert (await store.enqueue(company(task)))[0] == Enqueued(enqueued.id, is_new=False)
    shown = (await store.info([enqueued.id]))[enqueued.id]
    assert (shown.name, shown.queue, shown.key, shown.kind) == (text,) * 4
    assert (shown.args, shown.memory) == ([text], {"m": text})
    lease = (await store.lease(5, {text: 1}, 1)).leases[0]
    assert (lease.name, lease.queue, lease.key, lease.args) == (text, text, text, task.args)
    note = encode({"what": text})
    assert await store.settle(5, [Ended(lease.id, lease.sequence, "failed", encode(text), note)]) == set()
    shown = (await store.info([lease.id]))[lease.id]
    assert (shown.result, shown.trail[0]["what"]) == (text, text)


@pytest.mark.parametrize("queue", NAMES)
async def test_a_queue_of_any_name_falls_due(url: str, queue: str) -> None:
    clock = SteppedClock()
    store = SqliteStore(url, clock=clock)
    await store.open()
    await store.sign_on(CARD, 600)
    [task] = await store.enqueue([NewTask(name="job", queue=queue, delay_s=60)])
    looked = await store.lease(5, {queue: 1, "other": 1}, 2)
    assert looked.leases == []
    assert looked.next_due_s == pytest.approx(60, abs=1)
    assert [(one.queue, one.waiting) for one in await store.queues()] == [(queue, 1)]
    clock.step(61)
    assert [one.id for one in (await store.lease(5, {queue: 1, "other": 1}, 2)).leases] == [task.id]
    await store.close()


async def test_the_results_of_a_batch_come_back(store: SqliteStore) -> None:
    await store.sign_on(CARD, 600)
    await store.enqueue([NewTask(name="job")] * len(TEXTS))
    leases = (await store.lease(5, {"default": 50}, 50)).leases
    pairs = list(zip(leases, TEXTS, strict=True))
    assert await store.settle(5, [Ended(one.id, one.sequence, "done", encode(text)) for one, text in pairs]) == set()
    found = await store.info([one.id for one in leases])
    assert [one.result for one in found.values()] == TEXTS


async def test_a_large_task(store: SqliteStore) -> None:
    await store.sign_on(CARD, 600)
    args = encode("x" * 3_000_000)
    await store.enqueue([NewTask(name="job", args=args)] * 2)
    assert [one.args for one in (await store.lease(5, {"default": 2}, 2)).leases] == [args] * 2


async def test_history_is_pruned_slice_by_slice(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too young, or was put back, stays wherever the slices end."""
    monkeypatch.setattr(retention, "SLICE", 7)
    await store.sign_on(CARD, 600)
    ids = [one.id for one in await store.enqueue([NewTask(name="job")] * 100)]
    leases = (await store.lease(5, {"default": 100}, 100)).leases
    await store.settle(5, [Ended(one.id, one.sequence) for one in leases])
    kept = set(ids[::5])
    for task_id in kept:
        assert await store.retry(task_id, "{}")
    await store.note_loss(ids[1], '{"what":"loss"}')
    await store.note_loss(ids[0], '{"what":"loss"}')
    assert await store.prune(3600) == 0
    assert await store.prune(-1) == 80
    assert (await store.info(ids)).keys() == kept
    assert (await store.losses(ids[1]), len(await store.losses(ids[0]))) == ([], 1)
    assert len((await store.tasks(TaskFilter())).tasks) == 20


async def test_more_fall_due_than_one_look_promotes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is forgotten, and the look says that there is more."""
    monkeypatch.setattr(leasing, "PROMOTE_LIMIT", 10)
    clock = SteppedClock()
    store = SqliteStore(url, clock=clock)
    await store.open()
    await store.sign_on(CARD, 600)
    tasks = await store.enqueue([NewTask(name="job", delay_s=60)] * 25)
    clock.step(61)
    looks = [await store.lease(5, {"default": 50}, 50) for _ in range(4)]
    assert [len(look.leases) for look in looks] == [10, 10, 5, 0]
    assert [one.id for look in looks for one in look.leases] == [task.id for task in tasks]
    assert [look.next_due_s is not None and look.next_due_s <= 0 for look in looks] == [True, True, False, False]
    await store.close()


async def test_ids_that_sqlite_cannot_have_are_unknown(store: SqliteStore) -> None:
    for task_id in (0, -1, 2**63, 2**70):
        assert await store.info([task_id]) == {}
        assert await store.ended([task_id]) == {}
        assert await store.cancel(task_id, "{}") is None
        assert await store.retry(task_id, "{}") is False
        assert await store.losses(task_id) == []
