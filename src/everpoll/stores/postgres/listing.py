"""Pages of tasks, newest first.

Promises: one snapshot per page. An index finds states, watches and errors; ids are in the order of time, so that a
search by time begins where it must. No index has names, queues and arguments: a bounded number of tasks of each table
is looked at, and the page says how far back.
"""

# ruff: noqa: S608 - only the column lists and conditions of this package are put into SQL

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from everpoll.drivers.postgres.lane import Connection, Lane
from everpoll.stores import limits
from everpoll.stores.contract import END_STATES, TaskFilter, TaskPage
from everpoll.stores.postgres.functions import versioned
from everpoll.stores.postgres.rows import ENDED, LIVE, task_info
from everpoll.stores.task_search import CREATED_SLACK_S, condition, created_before, is_of_ends, needles, searched

SLACK = timedelta(seconds=CREATED_SLACK_S)
# Statistics of the empty tables make the planner read and sort everything, as long as it plans for each call. There is
# no function with settings for conditions that vary, so this costs a transaction: lists are for people, and rare.
IN_ORDER = """set local enable_seqscan = off; set local enable_bitmapscan = off; set local enable_sort = off;
    set local jit = off"""
RUNNING = versioned("select array(select everpoll.running_ids($1))")
RUNNING_LIMIT = 10_000
BOUNDS = versioned("select f.low, l.high from everpoll.first_since($1, $2) f, everpoll.first_since($1, $3) l")
SIZE = "octet_length(args)" + "".join(
    f" + coalesce({size}, 0)"
    for size in (*(f"octet_length({one})" for one in ("memory", "progress", "result")), "pg_column_size(trail)")
)
CREATED = """select created_at from everpoll.tasks where id = $1
    union all select created_at from everpoll.history where id = $1"""


async def tasks(lane: Lane, wanted: TaskFilter, limit: int, after: int | None) -> TaskPage:
    """Return one page. Each table gives its newest tasks; a task beyond the page shows that there are more."""
    search = await _searched(lane, wanted, after)
    if not search.places:
        return TaskPage(())

    async def ask(connection: Connection) -> tuple[list[Any], int | None, datetime | None]:
        async with connection.transaction():
            await connection.execute(IN_ORDER)
            end = await connection.fetchval(*search.end()) if search.is_bounded else None
            rows = await connection.fetch(*search.page(limit + 1, end or 0))
            is_short = end is not None and (not rows or rows[0]["tasks"] <= limit)
            return rows, end, await connection.fetchval(CREATED, end) if is_short else None

    rows, end, searched_back_to = await lane.call(ask)
    found = [task_info(row) for row in rows[:limit]]
    if rows and rows[0]["tasks"] > len(found):
        return TaskPage(tuple(found), found[-1].id)
    return TaskPage(tuple(found), end, searched_back_to)


class _Search:
    """Finds the tasks of a filter; one page reads a bounded number of them."""

    def __init__(self, wanted: TaskFilter, after: int | None, bounds: dict[str, dict[str, Any]]) -> None:
        self._wanted = wanted
        self._bounds = {letter: {"id <": after, **some} for letter, some in bounds.items()}
        self.places = list(bounds)
        self.is_bounded = bool(_other_conditions(wanted, "t", []))
        """Whether there are conditions that no index has."""

    def end(self) -> list[Any]:
        """Return the query for the id of the last task that this page may read; no row if fewer tasks are left.

        It selects only the id, from the index: reading 10,000 rows to skip them would take as long as the page itself.
        """
        values: list[Any] = [searched(self._wanted) - 1]
        ends = [
            f"(select {letter}.id {some} order by {letter}.id desc offset $1 limit 1)"
            for letter, some in self._places(values)
        ]
        return [f"select id from ({' union all '.join(ends)}) ends order by id desc limit 1", *values]

    def page(self, limit: int, end: int) -> list[Any]:
        """Return the newest tasks, up to that end."""
        values: list[Any] = [limit, end]
        pages = [
            f"(select {LIVE if letter == 't' else ENDED} {some} and "
            f"{' and '.join([f'{letter}.id >= $2', *_other_conditions(self._wanted, letter, values)])} "
            f"order by {letter}.id desc limit $1)"
            for letter, some in self._places(values)
        ]
        values.append(limits.READ_BYTES)
        # Postgres knows the sizes of payloads without reading large ones; what is left out is on the next page.
        return [
            f"""select * from (
                select *, count(*) over () as tasks,
                    row_number() over sizes = 1 or sum({SIZE}) over sizes <= ${len(values)} as fits
                from (select * from ({" union all ".join(pages)}) newest order by id desc limit $1) page
                window sizes as (order by id desc rows unbounded preceding)) sized
            where fits order by id desc""",
            *values,
        ]

    def _places(self, values: list[Any]) -> Iterator[tuple[str, str]]:
        for letter in self.places:
            table = "tasks" if letter == "t" else "history"
            where = [
                *_index_conditions(self._wanted, letter, values),
                *_conditions(self._bounds[letter], letter, values),
            ]
            yield letter, f"from everpoll.{table} {letter} where {' and '.join(where)}"


async def _searched(lane: Lane, wanted: TaskFilter, after: int | None) -> _Search:
    """Find the ids between which the tasks of that time are, and those of running tasks."""
    bounds: dict[str, dict[str, Any]] = {}
    earliest = None if wanted.since is None else _moved(wanted.since, -SLACK)
    latest = None if (until := created_before(wanted)) is None else _moved(until, SLACK)
    for table, letter in (("tasks", "t"), ("history", "h")):
        if not _may_have(wanted, table):
            continue
        bounds[letter] = {}
        if earliest is not None or latest is not None:
            first, last = await lane.row(BOUNDS, letter == "t", earliest, latest)
            bounds[letter] = {"id >=": first if earliest else None, "id < ": last if latest else None}
        # Indexed tasks are few, and found by their kind.
        if wanted.state == "running" and not wanted.indexed:
            bounds[letter]["id = any"] = await lane.value(RUNNING, RUNNING_LIMIT)
    return _Search(wanted, after, bounds)


def _moved(at: datetime, by: timedelta) -> datetime:
    try:
        return at + by
    except OverflowError:
        return at.replace(tzinfo=UTC)


def _may_have(wanted: TaskFilter, table: str) -> bool:
    if table == "tasks" and is_of_ends(wanted):
        return False
    if wanted.is_retrying and (table == "history" or wanted.state not in {None, "queued"}):
        return False
    return wanted.state is None or (wanted.state in END_STATES) == (table == "history")


def _index_conditions(wanted: TaskFilter, letter: str, values: list[Any]) -> list[str]:
    """Return the conditions that an index has."""
    if wanted.error is not None:
        by_error = _conditions({"error_type =": wanted.error}, letter, values)
        return [*by_error, *(["not t.is_leased"] if wanted.is_retrying else [])]
    if wanted.is_retrying:
        return ["t.error_type is not null and not t.is_leased"]
    where = [_state(wanted, letter)]
    if wanted.indexed:
        where += [f"{letter}.indexed", *_conditions({"kind =": wanted.kind}, letter, values)]
    return where


def _state(wanted: TaskFilter, letter: str) -> str:
    """Return the condition on the state, as a constant so that the index of ill-ended tasks can be used."""
    if wanted.state is None:
        return "true"
    if letter == "h":
        return f"h.state = '{wanted.state}'"
    return "t.is_leased" if wanted.state == "running" else "not t.is_leased"


def _other_conditions(wanted: TaskFilter, letter: str, values: list[Any]) -> list[str]:
    """Return the conditions that no index has."""
    has_index = wanted.indexed and wanted.error is None and not wanted.is_retrying
    plain = {
        "queue =": wanted.queue,
        "name =": wanted.name,
        "key ^@": wanted.key_start,
        "kind =": None if has_index else wanted.kind,
        "created_at >=": wanted.since,
        "created_at <": wanted.until,
        # Postgres leaves out the days before and after, too.
        "ended_at >=": wanted.ended_since,
        "ended_at <": wanted.ended_until,
    }
    wishes = _conditions(plain, letter, values)
    if wanted.error is not None and wanted.state is not None:
        # As an expression, for which there is no index: the one on errors is the one to use.
        wishes.append(f"h.state || '' = '{wanted.state}'" if letter == "h" else _state(wanted, letter))
    if wanted.indexed and not has_index:
        wishes.append(f"{letter}.indexed")
    if wanted.q is not None:

        def bind(piece: str) -> str:
            values.append(piece)
            return f"${len(values)}"

        wishes.append(condition(needles(wanted.q), f"{letter}.args", "strpos", bind))
    return wishes


def _conditions(wishes: dict[str, Any], letter: str, values: list[Any]) -> list[str]:
    conditions = []
    for comparison, value in wishes.items():
        if value is not None:
            values.append(value)
            conditions.append(f"{letter}.{comparison} (${len(values)})")
    return conditions
