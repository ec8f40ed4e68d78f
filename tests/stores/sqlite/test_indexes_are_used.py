"""What runs all the time goes through an index, whatever else is in the table."""

# ruff: noqa: S608 - the conditions of the store's own modules are put into SQL

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from everpoll.drivers.sqlite.bulk import ROWS
from everpoll.drivers.sqlite.lane import Op
from everpoll.stores.contract import NewTask, TaskFilter
from everpoll.stores.sqlite import (
    SqliteStore,
    enqueueing,
    feed,
    figures,
    health,
    leasing,
    limited,
    listing,
    moves,
    reading,
    rescue,
    settling,
    steering,
    unique,
)
from everpoll.stores.sqlite.new_rows import Row

FUTURE = 100_000
READY, WAITING = "everpoll_tasks_ready", "everpoll_tasks_waiting"
LIMITED = "everpoll_tasks_limited"
LEASED, CANCELS, KEY = "everpoll_tasks_leased", "everpoll_tasks_cancels", "everpoll_tasks_key"
BEST = {"queue": "default", "limit": 10}
BY_ID = "USING INTEGER PRIMARY KEY"
STATEMENTS: list[tuple[str, str]] = [
    (leasing.BEST, READY),
    (leasing.LINE, READY),
    (leasing.IS_READY, READY),
    (leasing.NEXT_DUE, WAITING),
    (leasing.PROMOTE, WAITING),
    (leasing.PICK, BY_ID),
    (leasing.HOLD_THESE, BY_ID),
    (leasing.POLL, READY),
    (leasing.POLL, WAITING),
    (leasing.HOLD_BEST, READY),
    (leasing.HOLD_BEST, BY_ID),
    (settling.DONE, BY_ID),
    (settling.DONE_WITH_RESULT, BY_ID),
    (settling.HELD, BY_ID),
    (moves.END, BY_ID),
    (moves.DROP, BY_ID),
    (moves.REQUEUE.replace(ROWS, f"({', '.join('?' * 9)})"), BY_ID),
    (rescue.LOST, LEASED),
    (rescue.CANCELS, CANCELS),
    (leasing.IS_ASKED, CANCELS),
    (leasing.ASKED, BY_ID),
    (enqueueing.LIVE, KEY),
    (unique.ENDED, "everpoll_history_key"),
    (unique.OF_KEY, KEY),
    (unique.REPLACE, BY_ID),
    (feed.ADD, BY_ID),
    (feed.OF_TASK, "sqlite_autoindex_everpoll_events"),
    (feed.ACTIONS, "sqlite_autoindex_everpoll_events"),
    (feed.BEHIND, BY_ID),
    (leasing.POLL, "sqlite_autoindex_everpoll_pauses"),
    (leasing.IS_PAUSED, "sqlite_autoindex_everpoll_pauses"),
    (reading.FIRST_READY, READY),
    (reading.FIRST_WAITING, WAITING),
    (steering.OF_ID, BY_ID),
    (steering.OF_ENDED, BY_ID),
    (steering.FORGET, BY_ID),
    (reading.FOUND, KEY),
    (reading.FOUND, "everpoll_history_key"),
    (reading.RESULTS, "everpoll_history_name"),
    (rescue.HAS_LEFTOVERS, LEASED),
    (figures.OF_QUEUE, "PRIMARY KEY (span_s=? AND kind=? AND name=? AND queue=? AND began>? AND began<?)"),
    (figures.OF_NAME, "PRIMARY KEY (span_s=? AND kind=? AND name=?)"),
    (figures.DROP, "everpoll_figures_age (span_s=? AND began<?)"),
    (reading.WORKERS, LEASED),
    (leasing.POLL, f"{LIMITED} (queue=?)"),
    (leasing.NEXT_RANK, f"{READY} (queue=? AND rank>?)"),
    (leasing.AGED_OF_RANK, f"{READY} (queue=? AND rank=? AND due_at<?)"),
    (limited.HAS_LIMITED, f"{LIMITED} (queue=?)"),
    (limited.NEXT_QUEUE, f"{LIMITED} (queue>?)"),
    (limited.NEXT_RANK, f"{LIMITED} (queue=? AND rank>?)"),
    (limited.NEXT_KEY, f"{LIMITED} (queue=? AND rank=? AND limit_key>?)"),
    (limited.HEAD_OF_KEY, f"{LIMITED} (queue=? AND rank=? AND limit_key=?)"),
    (limited.HEADS, f"{LIMITED} (queue=? AND rank=? AND limit_key>?)"),
    (limited.OF_KEY, f"{LIMITED} (queue=? AND rank=? AND limit_key=?)"),
    (limited.COUNT_OF_KEY, f"{LIMITED} (queue=? AND rank=? AND limit_key=?)"),
    (limited.RUNNING, "everpoll_tasks_limited_running (limit_key=?)"),
    (limited.OLDEST_RUNNING, "everpoll_tasks_limited_running (limit_key=?)"),
    (limited.SPANS, "PRIMARY KEY (limit_key=?)"),
    (limited.FORGET_SPANS, "PRIMARY KEY (limit_key=?)"),
    (limited.FORGET_OLD, "everpoll_starts_old (until_at<?)"),
    (reading.BY_ID, BY_ID),
    (reading.ENDS, BY_ID),
    (reading.LIVE_OF_KIND, "everpoll_tasks_indexed"),
    (health.ALIASES, "everpoll_health_aliases"),
    (health.WINDOWS, "everpoll_health_windows"),
    (figures.LOOPS, "SCAN w"),
]
"""The last ones read a small table whole, in its order: aliases, windows; workers of a day, and their loops."""


async def test_every_frequent_statement_beside_many_future_rows(store: SqliteStore) -> None:
    await store.enqueue([NewTask(name="job", delay_s=3600, priority=9)] * FUTURE)
    await store.enqueue([NewTask(name="job")] * 10)
    for statement, index in STATEMENTS:
        plan = await _plan(store, statement)
        tables = [step for step in plan if "everpoll_tasks" in step or " t" in step or "everpoll_history" in step]
        assert any(index in step for step in plan), (statement, plan)
        assert not [step for step in tables if step.startswith("SCAN") and "INDEX" not in step], (statement, plan)


@pytest.mark.parametrize("analyzed", [False, True])
async def test_a_lease_reads_as_little_beside_many_future_rows(store: SqliteStore, analyzed: bool) -> None:
    """Counted in SQLite's own steps, so that no clock decides. Also with statistics, if a user runs ANALYZE."""
    await store.enqueue([NewTask(name="job")] * 10)
    await _steps(store, leasing.BEST, BEST)
    alone = await _steps(store, leasing.BEST, BEST)
    await store.enqueue([NewTask(name="job", delay_s=3600, priority=9)] * FUTURE)
    if analyzed:
        await store._write(Op(lambda con: con.execute("analyze").fetchall()))
    await _steps(store, leasing.BEST, BEST)  # reads the schema again, where that has changed
    beside = await _steps(store, leasing.BEST, BEST)
    assert beside <= alone + 2


@pytest.mark.parametrize(
    ("where", "index"), [(reading.READY, READY), (reading.WAITING, WAITING), (reading.LEASED, LEASED)]
)
async def test_counts_and_queue_names_come_from_the_indexes(store: SqliteStore, where: str, index: str) -> None:
    for statement in (
        f"select 1 from everpoll_tasks where {where} and queue = ?",
        f"select queue from everpoll_tasks where {where} and queue > ? order by queue limit 1",
        f"select queue from everpoll_tasks where {where} order by queue limit 1",
    ):
        assert f"INDEX {index}" in " ".join(await _plan(store, statement))


async def test_watches_among_many_jobs_are_paged_by_indexes_of_their_own(store: SqliteStore) -> None:
    """Counted in SQLite's own steps: a page of watches costs the same beside a hundred thousand jobs."""
    watch = NewTask(name="w", kind="watch", cancels_itself=True, indexed=True)
    await store.enqueue([watch] * 10)

    async def steps() -> int:
        counted = 0

        def count() -> int:
            nonlocal counted
            counted += 1
            return 0

        def run(con: Any) -> None:
            con.set_progress_handler(count, 10)
            assert len(listing.tasks(con, TaskFilter(kind="watch", indexed=True), 5, None).tasks) == 5
            con.set_progress_handler(None, 0)

        await store._read(run)
        return counted

    await steps()
    alone = await steps()
    await store.enqueue([NewTask(name="job")] * FUTURE)
    await steps()
    assert await steps() <= alone + 2


@pytest.mark.parametrize("state", ["queued", "done", "failed"])
async def test_how_far_a_page_of_watches_looks_is_read_from_the_index_alone(store: SqliteStore, state: Any) -> None:
    """No index has their states: reading 10,000 rows for them took ten times as long as the page."""
    wanted = TaskFilter(kind="watch", indexed=True, state=state)
    bound = {"after": None, "limit": 6, "searched": 9, **listing._values(wanted)}

    def run(con: Any) -> list[str]:
        searches = [some for *_, some in listing._places(con, wanted, bound)]
        return [row[1] for some in searches for row in con.execute(f"explain {listing.END.format(some)}", bound)]

    steps = await store._read(run)
    assert "IdxRowid" in steps or "DeferredSeek" in steps
    assert "Column" not in steps, "reads a row to skip it"


async def _plan(store: SqliteStore, statement: str) -> list[str]:
    names: tuple[str, ...] = (
        "now",
        "rows",
        "owner",
        "sequence",
        "ids",
        "overdue",
        "bytes",
        "until",
        "oldest",
        "queue",
        "limit",
        "asks_limits",
        *("lines", "after", "visits"),
    )
    names = (*names, *Row._fields, "id", "line", "entry", "span_s", "first", "last")
    bound: Any = dict.fromkeys(names, "[]") if ":" in statement else ("[]",) * statement.count("?")
    return await store._read(lambda con: [row[3] for row in con.execute(f"explain query plan {statement}", bound)])


async def _steps(store: SqliteStore, statement: str, bound: dict[str, Any]) -> int:
    """Virtual machine instructions, to the nearest ten."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    def run(con: Any) -> None:
        con.set_progress_handler(count, 10)
        con.execute(statement, bound).fetchall()
        con.set_progress_handler(None, 0)

    await store._read(run)
    return counted


LISTS: list[tuple[TaskFilter, tuple[str, ...]]] = [
    (TaskFilter(), (BY_ID, BY_ID)),
    (TaskFilter(name="job", queue="default"), (BY_ID, BY_ID)),
    (TaskFilter(q="user:7"), (BY_ID, BY_ID)),
    (TaskFilter(since=datetime(2026, 1, 1, tzinfo=UTC), until=datetime(2027, 1, 1, tzinfo=UTC)), (BY_ID, BY_ID)),
    (TaskFilter(state="queued"), (BY_ID,)),
    (TaskFilter(state="running"), (LEASED,)),
    (TaskFilter(state="done"), (BY_ID,)),
    (TaskFilter(state="failed"), ("everpoll_history_ill",)),
    (TaskFilter(state="failed", ended_since=datetime(2026, 1, 1, tzinfo=UTC)), ("everpoll_history_ill",)),
    (TaskFilter(ended_until=datetime(2099, 1, 1, tzinfo=UTC)), (BY_ID,)),
    (TaskFilter(error="ValueError"), ("everpoll_tasks_error", "everpoll_history_error")),
    (TaskFilter(error="ValueError", state="failed", name="job"), ("everpoll_history_error",)),
    (TaskFilter(is_retrying=True), ("everpoll_tasks_retrying",)),
    *(
        (TaskFilter(kind=kind, indexed=True), ("everpoll_tasks_indexed", "everpoll_history_indexed"))
        for kind in ("watch", "check", "incident", "schedule")
    ),
    (TaskFilter(kind="incident", indexed=True, state="done"), ("everpoll_history_indexed",)),
    (TaskFilter(kind="incident", indexed=True, state="queued"), ("everpoll_tasks_indexed",)),
    (TaskFilter(state="canceled"), ("everpoll_history_ill",)),
]


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize(("wanted", "indexes"), LISTS)
async def test_every_list_is_read_by_an_index(
    store: SqliteStore, wanted: TaskFilter, indexes: tuple[str, ...], analyzed: bool
) -> None:
    """Each table by its own statement and index, bounded above and below; only the few running tasks are sorted."""
    await store.enqueue([NewTask(name="job", delay_s=3600)] * 1_000)
    if analyzed:
        await store._write(Op(lambda con: con.execute("analyze").fetchall()))
    plans: list[list[str]] = []

    class Explained:
        """A connection that also explains what it is asked."""

        def __init__(self, con: Any) -> None:
            self._con = con

        def execute(self, statement: str, bound: Any = ()) -> Any:
            plans.append([row[3] for row in self._con.execute(f"explain query plan {statement}", bound)])
            return self._con.execute(statement, bound)

    def run(con: Any) -> None:
        listing.tasks(Explained(con), wanted, 50, 1_000_000)  # type: ignore[arg-type]

    await store._read(run)
    pages = plans[-len(indexes) :]
    steps = [step for plan in pages for step in plan if re.match(r"(SEARCH|SCAN) t\b", step)]
    assert len(steps) == len(indexes)
    assert LEASED in indexes or not any("TEMP B-TREE" in step for plan in pages for step in plan)
    for step, index in zip(steps, indexes, strict=True):
        assert step.startswith("SEARCH") or index == LEASED, step
        assert index in step
