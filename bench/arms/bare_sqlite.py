"""The bare reference on SQLite: a sqlite3 loop that leases 500 and deletes 500, same columns, same pragmas.

Two tables, as on Postgres: `plain`, its state in the index of what is ready, and `own`, everpoll's own table.
"""

import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from bench.arms import gate

BATCH = 500
PRAGMAS = ("cache_size = -16000", "temp_store = memory", "wal_autocheckpoint = 8000")

PLAIN_TABLE = """
create table plain (
    id integer primary key autoincrement, due_at integer not null, created_at integer not null, owner integer,
    started_at integer, deadline_ms integer, timeout_us integer, sequence integer not null default 0,
    priority integer not null default 0, attempt integer not null default 0, rescues integer not null default 0,
    version integer not null default 1, cancel_requested integer not null default 0,
    state text not null default 'queued', kind text not null default 'job', queue text not null default 'default',
    name text not null, key text, args text not null, memory text, progress text, trail text) strict;
create index plain_ready on plain (queue, priority desc, due_at) where state = 'queued';
create unique index plain_key on plain (key) where key is not null;
"""


@dataclass(frozen=True, slots=True)
class Statements:
    """What is done to one of the two tables."""

    insert: str
    lease: str
    delete: str


PLAIN = Statements(
    "insert into plain (due_at, created_at, name, queue, args) values (?, ?, 'noop', 'default', ?)",
    """update plain
    set state = 'running', owner = 7, sequence = sequence + 1, attempt = attempt + 1, started_at = ?
    where id in (select id from plain where state = 'queued' and queue = 'default'
                 order by priority desc, due_at, id limit 500)
    returning id, sequence, attempt, name, args""",
    "delete from plain where id in ({})",
)
OWN = Statements(
    """insert into everpoll_tasks (due_at, created_at, name, queue, args, kind, rank, version, line)
    values (?, ?, 'noop', 'default', ?, 'job', 0, 1, 0)""",
    """update everpoll_tasks
    set is_leased = 1, owner = 7, sequence = sequence + 1, attempt = attempt + 1, started_at = ?
    where id in (select id from everpoll_tasks where line = 0 and is_leased = 0 and queue = 'default'
                 order by rank, due_at, id limit 500)
    returning id, sequence, attempt, name, args""",
    "delete from everpoll_tasks where id in ({})",
)
TABLES = {"plain": PLAIN, "own": OWN}


async def opened(order: gate.Order) -> tuple[sqlite3.Connection, Statements]:
    path = Path(order["path"])
    if order["table"] == "own":
        from everpoll import Everpoll  # noqa: PLC0415 - the plain one must not depend on it

        app = Everpoll(f"sqlite:///{path}")
        await app.store()
        await app.close()
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=256)
    connection.execute("pragma journal_mode = wal")
    for pragma in (*PRAGMAS, f"synchronous = {order['synchronous']}"):
        connection.execute(f"pragma {pragma}")
    if order["table"] == "plain":
        connection.executescript(PLAIN_TABLE)
    return connection, TABLES[order["table"]]


async def drain(order: gate.Order) -> None:
    connection, sql = await opened(order)
    connection.execute("begin")
    connection.executemany(sql.insert, [(now_us(), now_us(), gate.PAYLOAD)] * order["jobs"])
    connection.execute("commit")
    connection.execute("pragma wal_checkpoint(truncate)")
    gate.ready()
    began, cpu_s, done = 0.0, time.process_time(), 0
    while rows := lease(connection, sql):
        began = began or time.perf_counter()
        connection.execute("begin immediate")
        connection.execute(sql.delete.format(",".join("?" * len(rows))), [row[0] for row in rows])
        connection.execute("commit")
        done += len(rows)
    ended, cpu_s = time.perf_counter(), time.process_time() - cpu_s
    assert done == order["jobs"]
    await gate.report(rate=done / (ended - began), python_us=cpu_s / done * 1e6)


def lease(connection: sqlite3.Connection, sql: Statements) -> list[tuple[int, int, int, str, str]]:
    connection.execute("begin immediate")
    rows = connection.execute(sql.lease, (now_us(),)).fetchall()
    connection.execute("commit")
    return rows


async def enqueue(order: gate.Order) -> None:
    connection, sql = await opened(order)
    connection.execute(sql.insert, (now_us(), now_us(), gate.PAYLOAD))
    gate.ready()
    began = time.perf_counter()
    for _ in range(order["one"]):
        connection.execute(sql.insert, (now_us(), now_us(), gate.PAYLOAD))
    await gate.report(one=order["one"] / (time.perf_counter() - began))


def now_us() -> int:
    return time.time_ns() // 1_000


if __name__ == "__main__":
    gate.main({"drain": drain, "enqueue": enqueue})
