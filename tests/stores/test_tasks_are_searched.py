"""Tasks are found by the class of their last error, by a text in their arguments and by when they were enqueued."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everpoll.errors import BadInput
from everpoll.stores.contract import Again, Ended, Lease, Settlement, TaskFilter
from everpoll.stores.task_search import error_class, is_found, needles
from stores.stage import HOUR_S, WATCH, Stage, done, json

NOTE = json({"what": "test"})


def failing(lease: Lease, error: str, *, is_last: bool = False) -> Settlement:
    note = json({"what": "failed", "type": error, "error": f'it said "type":"{error}x"', "traceback": "…"})
    if is_last:
        return Ended(lease.id, lease.sequence, "failed", None, note)
    return Again(lease.id, lease.sequence, HOUR_S, note=note)


async def found(stage: Stage, limit: int = 50, **wanted: Any) -> list[int]:
    """The ids on all pages, newest first."""
    ids: list[int] = []
    after = None
    while True:
        page = await stage.store.tasks(TaskFilter(**wanted), limit, after)
        ids += [one.id for one in page.tasks]
        if page.after is None:
            return ids
        after = page.after


async def test_by_the_class_of_the_last_error(stage: Stage) -> None:
    worker = await stage.worker()
    leases = [await stage.running(worker, name=f"job{number}") for number in range(5)]
    await stage.store.settle(
        worker,
        [
            failing(leases[0], "ValueError"),
            failing(leases[1], "KeyError", is_last=True),
            failing(leases[2], "ValueError", is_last=True),
            done(leases[3]),
        ],
    )
    retrying, key_error, value_error, _, running = [lease.id for lease in leases]
    for limit in (1, 50):
        assert await found(stage, limit, error="ValueError") == [value_error, retrying]
        assert await found(stage, limit, error="KeyError") == [key_error]
        assert await found(stage, limit, error="ValueError", state="failed") == [value_error]
        assert await found(stage, limit, error="ValueError", state="queued") == [retrying]
        assert await found(stage, limit, error="ValueError", name="job2") == [value_error]
        assert await found(stage, limit, error="ValueErrorx") == await found(stage, limit, error="Error") == []
        assert await found(stage, limit, is_retrying=True) == [retrying]
        assert await found(stage, limit, is_retrying=True, error="KeyError") == []
        assert await found(stage, limit, is_retrying=True, error="ValueError") == [retrying]
        assert await found(stage, limit, is_retrying=True, state="failed") == []
    assert running not in await found(stage, is_retrying=True)


async def test_a_later_error_takes_the_place_and_a_good_end_keeps_it(stage: Stage) -> None:
    worker = await stage.worker()
    first = await stage.running(worker)
    await stage.store.settle(worker, [failing(first, "ValueError")])
    await stage.pass_time(HOUR_S + 1)
    second = await stage.take_one(worker)
    assert await found(stage, is_retrying=True) == [], "it runs"
    await stage.store.settle(worker, [failing(second, "OSError")])
    assert await found(stage, error="OSError") == [first.id]
    assert await found(stage, error="ValueError") == []
    await stage.pass_time(HOUR_S + 1)
    third = await stage.take_one(worker)
    await stage.store.settle(worker, [done(third)])
    assert await found(stage, error="OSError", state="done") == [first.id]


async def test_a_task_that_was_retried_by_hand_begins_without_an_error(stage: Stage) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker)
    await stage.store.settle(worker, [failing(lease, "ValueError", is_last=True)])
    assert await stage.store.retry(lease.id, NOTE)
    assert await found(stage, error="ValueError") == await found(stage, is_retrying=True) == []


async def test_watches_with_an_error(stage: Stage) -> None:
    worker = await stage.worker()
    watch, job = await stage.running(worker, **WATCH, key="k"), await stage.running(worker)
    await stage.store.settle(worker, [failing(watch, "ValueError"), failing(job, "ValueError")])
    assert await found(stage, error="ValueError", indexed=True) == [watch.id]
    assert await found(stage, is_retrying=True, kind="watch", indexed=True) == [watch.id]


ARGUMENTS: list[Any] = [
    {"args": ["https://example.com/ü"], "kwargs": {"user": 7, "deep": {"order": {"id": 12}}}},
    {"args": [{"user": "7"}], "kwargs": {"name": 'says "hi"', "ok": True}},
    {"args": [], "kwargs": {"user": 77, "order": 12, "note": "invoice:42"}},
    {"args": [{"id": 12, "user": None}], "kwargs": {"user": 7.5}},
]
SEARCHES: dict[str, list[int]] = {
    "example.com": [0],
    "https://example.com/ü": [0],
    "Example": [],
    "user:7": [0, 1],
    "user:77": [2],
    "user:7.5": [3],
    "user:null": [3],
    "ok:true": [1],
    "args.user:7": [0, 1],
    "order.id:12": [0],
    "deep.order.id:12": [0],
    "order:12": [2],
    "id:12": [0, 3],
    "id:1": [],
    'says "hi"': [1],
    'name:says "hi"': [1],
    "invoice:42": [2],
    "%": [],
    "_": [],
    "*": [],
}


async def test_by_a_text_in_the_arguments(stage: Stage) -> None:
    """Live and ended, in pages of any size, whatever the text has that a database takes for a pattern."""
    worker = await stage.worker()
    ids: dict[int, list[int]] = {}
    for number, arguments in enumerate(ARGUMENTS):
        ended = await stage.ended(worker, args=json(arguments))
        ids[number] = [ended, await stage.put_one(args=json(arguments), delay_s=HOUR_S)]
    for q, numbers in SEARCHES.items():
        expected = sorted((one for number in numbers for one in ids[number]), reverse=True)
        for limit in (1, 50):
            assert await found(stage, limit, q=q) == expected, q
    assert await found(stage, q="user:7", state="queued") == [ids[1][1], ids[0][1]]
    assert await found(stage, q="user:7", name="other") == []


async def test_a_text_search_is_bounded_and_goes_on(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everpoll.stores.task_search.TEXT_SEARCH_LIMIT", 10)
    wanted = [await stage.put_one(args='{"args":["rare"],"kwargs":{}}')]
    await stage.put(30)
    wanted.append(await stage.put_one(args='{"args":["rare"],"kwargs":{}}'))
    await stage.put(30)
    assert await found(stage, q="rare") == wanted[::-1]


async def test_tasks_of_a_time_are_found_where_most_came_at_once(stage: Stage) -> None:
    """Hundreds of tasks in one moment, few in the hours before and after: ids do not grow evenly with time."""
    few = [await stage.put(2, delay_s=1000 * HOUR_S)]
    for number in (400, 3, 250, 1):
        await stage.pass_time(HOUR_S)
        few.append(await stage.put(number, delay_s=1000 * HOUR_S))
    begins = [(await stage.show(ids[0])).created_at - timedelta(minutes=30) for ids in few]
    for place, ids in enumerate(few):
        until = begins[place + 1] if place + 1 < len(few) else None
        assert sorted(await found(stage, since=begins[place], until=until)) == ids
    assert await found(stage, until=begins[0]) == []


async def test_by_the_time_of_the_enqueue(stage: Stage) -> None:
    worker = await stage.worker(lease_s=100 * HOUR_S)
    by_hour: list[list[int]] = []
    for hour in range(6):
        live = await stage.put(2 + hour, delay_s=1000 * HOUR_S)
        by_hour.append([*live, *[await stage.ended(worker) for _ in range(3)]])
        await stage.pass_time(HOUR_S)
    # The middle of the last hour of each group.
    begins = [(await stage.show(ids[0])).created_at - timedelta(minutes=30) for ids in by_hour]
    for first in range(6):
        for last in range(first, 6):
            expected = sorted((one for ids in by_hour[first:last] for one in ids), reverse=True)
            assert await found(stage, 4, since=begins[first], until=begins[last]) == expected
    everything = sorted((one for ids in by_hour for one in ids), reverse=True)
    assert (
        await found(stage, since=begins[0]) == await found(stage, until=datetime.max.replace(tzinfo=UTC)) == everything
    )
    assert await found(stage, since=begins[3], state="done") == sorted(
        (one for ids in by_hour[3:] for one in ids[-3:]), reverse=True
    )
    assert await found(stage, until=datetime.min.replace(tzinfo=UTC)) == []


async def test_by_the_time_of_the_end(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was enqueued long before its end is found by the end; a live task has none."""
    worker = await stage.worker(lease_s=100 * HOUR_S)
    live = await stage.put_one(delay_s=1000 * HOUR_S)
    old = await stage.running(worker)
    await stage.pass_time(2 * HOUR_S)
    young = await stage.running(worker)
    await stage.store.settle(worker, [failing(young, "ValueError", is_last=True)])
    await stage.pass_time(HOUR_S)
    await stage.store.settle(worker, [failing(old, "ValueError", is_last=True)])
    ends = [(await stage.show(one.id)).ended_at for one in (young, old)]
    assert ends[0] is not None
    assert ends[1] is not None
    for limit in (1, 50):
        for error in (None, "ValueError"):
            assert await found(stage, limit, error=error, ended_since=ends[1]) == [old.id]
            assert await found(stage, limit, error=error, ended_until=ends[1]) == [young.id]
            assert await found(stage, limit, error=error, ended_since=ends[0], state="failed") == [young.id, old.id]
        assert await found(stage, limit, ended_since=ends[0], ended_until=ends[0]) == []
        assert await found(stage, limit, ended_since=ends[0], state="done") == []
        assert await found(stage, limit, ended_since=ends[0], state="queued") == []
        assert await found(stage, limit, ended_since=ends[0], is_retrying=True) == []
    assert live in await found(stage)
    monkeypatch.setattr("everpoll.stores.task_search.SEARCH_LIMIT", 1)
    assert await found(stage, ended_since=ends[1]) == [old.id], "page after page"


async def test_the_bounds_are_exact(stage: Stage) -> None:
    """From an instant on, and before an instant."""
    first, second = await stage.put_one(), await stage.put_one()
    at = (await stage.show(second)).created_at
    assert await found(stage, since=at) == [second]
    assert await found(stage, until=at) == [first]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"q": ""}, "q='' is empty"),
        ({"q": "x" * 201}, "has 201 characters"),
        ({"q": "a\0b"}, "NUL"),
        ({"error": ""}, "error='' is empty"),
        ({"since": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 - the mistake
    ],
)
async def test_what_cannot_be_searched_is_refused(stage: Stage, wanted: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        await stage.store.tasks(TaskFilter(**wanted))


@given(st.text(max_size=50), st.text(min_size=1, max_size=10))
def test_a_text_that_is_there_is_found(around: str, wanted: str) -> None:
    text = json({"args": [around + wanted + around]})
    assert is_found(needles(wanted), text)


@given(st.dictionaries(st.sampled_from(["a", "b", "user"]), st.integers() | st.booleans() | st.none() | st.text()))
def test_every_member_is_found_by_its_name_and_value(arguments: dict[str, Any]) -> None:
    for name, value in arguments.items():
        if value == "" or (isinstance(value, str) and value.startswith("//")):
            continue
        shown = value if isinstance(value, str) else json(value)
        assert is_found(needles(f"{name}:{shown}"), json({"args": [], "kwargs": arguments}))


@given(st.text(), st.sampled_from(["ValueError", "a.B", "_X1"]))
def test_the_class_of_an_error_is_read_from_its_note_whatever_the_error_says(said: str, name: str) -> None:
    for error in (said, '"type":"Other"', '\\"type":"Other"'):
        assert error_class(json({"error": error, "type": name, "traceback": error})) == name
        assert error_class(json({"error": error})) is None
    assert error_class(None) is None
