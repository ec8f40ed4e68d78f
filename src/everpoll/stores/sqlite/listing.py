"""Pages of tasks, newest first.

Promises: one snapshot for each page. Indexes find states, watches and errors; ids are in the order of time, so that a
search by time begins at the right id. No index has names, queues and arguments: for these, a bounded number of tasks of
each table is read, and the page says how far back.
"""

import heapq
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from operator import itemgetter
from typing import Any

from everpoll.drivers.sqlite.connection import Connection
from everpoll.stores.contract import TaskFilter, TaskPage
from everpoll.stores.limits import fitting_items
from everpoll.stores.sqlite.clock import microseconds
from everpoll.stores.sqlite.reading import ENDED, LIVE, instant, payload_bytes, shown
from everpoll.stores.task_search import CREATED_SLACK_S, condition, created_before, is_of_ends, needles, searched

SLACK_US = microseconds(CREATED_SLACK_S)
# The first task at that id or after it.
NEXT = "select id, created_at from {table} where id >= ? order by id limit 1"
# Reads only ids, from the index: reading whole rows to skip them would take as long as the page itself.
END = "select t.id {} order by t.id desc limit 1 offset :searched"
CREATED = """select created_at from everpoll_tasks where id = :id
    union all select created_at from everpoll_history where id = :id"""
LAST = "select max(id) from {table}"
_id = itemgetter(0)


def tasks(con: Connection, wanted: TaskFilter, limit: int, after: int | None) -> TaskPage:
    """Return a page, newest first."""
    bound = {"after": after, "limit": limit + 1, "searched": searched(wanted) - 1, **_values(wanted)}
    wishes = _other_conditions(wanted, bound)
    places = list(_places(con, wanted, bound))
    # If no index serves a condition: the id at which this page stops, in the table that has more such tasks.
    searches = [some for *_, some in places] if wishes else []
    ends = [found for some in searches if (found := con.execute(END.format(some), bound).fetchone())]
    end = max((row[0] for row in ends), default=None)
    if end is not None:
        # One bound for each table: of two bounds, SQLite seeks by only one.
        bound.update({name: max(end, value) for name, value in bound.items() if name.startswith("from_")})
    same = " and ".join(["true", *wishes])
    # A cursor for each table: SQLite would sort the union of both, although each is in order already.
    cursors = [
        con.execute(f"select {columns} {some} and {same} order by t.id desc limit :limit", bound)
        for columns, some, _ in places
    ]
    rows, is_cut = fitting_items(islice(heapq.merge(*cursors, key=_id, reverse=True), limit + 1), payload_bytes)
    found = [shown(row) for row in rows[:limit]]
    if is_cut or len(rows) > limit:
        return TaskPage(tuple(found), found[-1].id)
    if end is None:
        return TaskPage(tuple(found))
    (created_at,) = con.execute(CREATED, {"id": end}).fetchone()
    return TaskPage(tuple(found), end, instant(created_at))


def _values(wanted: TaskFilter) -> dict[str, Any]:
    plain = {name: getattr(wanted, name) for name in ("state", "queue", "name", "kind", "key_start", "error")}
    return plain | {name: _us(getattr(wanted, name)) for name in ("since", "until", "ended_since", "ended_until")}


def _other_conditions(wanted: TaskFilter, bound: dict[str, Any]) -> list[str]:
    """Return the conditions that no index serves; add the values of a text search to `bound`."""
    wishes = [f"t.{name} = :{name}" for name in ("queue", "name", "kind") if getattr(wanted, name) is not None]
    if wanted.key_start is not None:
        wishes.append("substr(t.key, 1, length(:key_start)) = :key_start")
    if wanted.since is not None:
        wishes.append("t.created_at >= :since")
    if wanted.until is not None:
        wishes.append("t.created_at < :until")
    if wanted.ended_since is not None:
        wishes.append("t.ended_at >= :ended_since")
    if wanted.ended_until is not None:
        wishes.append("t.ended_at < :ended_until")
    if wanted.error is not None and wanted.state is not None:
        # Each state is in one table only, and the other table is left out.
        wishes.append(_state(wanted))
    if wanted.indexed and (wanted.error is not None or wanted.is_retrying):
        wishes.append("t.indexed = 1")
    if wanted.q is not None:

        def bind(piece: str) -> str:
            bound[f"q{len(bound)}"] = piece
            return f":q{len(bound) - 1}"

        wishes.append(condition(needles(wanted.q), "t.args", "instr", bind))
    return wishes


def _places(con: Connection, wanted: TaskFilter, bound: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield for each table that may have such tasks: its columns, the condition of an index, and the rows to read."""
    for columns, table in ((LIVE, "everpoll_tasks"), (ENDED, "everpoll_history")):
        if not _may_have(wanted, table):
            continue
        index, conditions = _index_conditions(wanted, table)
        where: list[str] = []
        if bound["after"] is not None:
            where.append("t.id < :after")
        since_us = bound["since"]
        bound[f"from_{table}"] = 0 if since_us is None else _first_since(con, table, since_us - SLACK_US)
        where.append(f"t.id >= :from_{table}")
        if (until := created_before(wanted)) is not None:
            bound[f"to_{table}"] = _first_since(con, table, _microseconds(until) + SLACK_US)
            where.append(f"t.id < :to_{table}")
        by = "" if index is None else f"indexed by {index} "
        # The index on kinds has no states: reading 10,000 runs for them took 20 ms.
        looked_at = [one for one in conditions if one != _state(wanted)] if wanted.indexed else conditions
        found, seen = (" and ".join([*some, *where]) for some in (conditions, looked_at))
        yield columns, f"from {table} t {by}where {found}", f"from {table} t {by}where {seen}"


def _may_have(wanted: TaskFilter, table: str) -> bool:
    is_live = table == "everpoll_tasks"
    if is_live and is_of_ends(wanted):
        return False
    if wanted.is_retrying and (not is_live or wanted.state not in {None, "queued"}):
        return False
    return wanted.state is None or (wanted.state in {"queued", "running"}) == is_live


def _index_conditions(wanted: TaskFilter, table: str) -> tuple[str | None, list[str]]:
    """Return the index to use, if any, and the conditions that it serves.

    The conditions have constants and not parameters: otherwise SQLite does not use partial indexes.
    """
    if wanted.error is not None:
        return f"{table}_error", ["t.error_type = :error", *(["t.is_leased = 0"] if wanted.is_retrying else [])]
    if wanted.is_retrying:
        return f"{table}_retrying", ["t.error_type is not null and t.is_leased = 0"]
    where = [_state(wanted)]
    if wanted.state == "running" and not wanted.indexed:
        return "everpoll_tasks_leased", where
    if wanted.indexed:
        where.append("t.indexed = 1" if wanted.kind is None else "t.indexed = 1 and t.kind = :kind")
    return None, where


def _state(wanted: TaskFilter) -> str:
    match wanted.state:
        case None:
            return "true"
        case "queued":
            return "t.is_leased = 0"
        case "running":
            return "t.is_leased = 1"
        case "done":
            return "t.state = 'done'"
        case _:
            return "t.state = :state and t.state <> 'done'"


def _first_since(con: Connection, table: str, since_us: int) -> int:
    """Return the first id of a task that was enqueued then or later, by binary search: ids grow with time."""
    low, high = 0, (con.execute(LAST.format(table=table)).fetchone()[0] or 0) + 1
    statement = NEXT.format(table=table)
    while low < high:
        middle = (low + high) // 2
        found = con.execute(statement, (middle,)).fetchone()
        if found is None or found[1] >= since_us:
            high = middle
        else:
            low = found[0] + 1
    return low


def _us(at: datetime | None) -> int | None:
    return None if at is None else _microseconds(at)


def _microseconds(at: datetime) -> int:
    return round(at.timestamp() * 1e6)
