"""Facts for the doctor from a SQLite file.

Promises: reads by a connection that cannot write. The test of the write lock begins a transaction on a second
connection and rolls it back at once. A log that exists stays as it is; if there is none, none is left behind. Every
query ends within the limit, by a progress handler of SQLite.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from everpoll.drivers.sqlite.address import SqliteAddress
from everpoll.drivers.sqlite.connection import LOG_BYTES, Connection
from everpoll.drivers.sqlite.faults import BUSY, code_of, explained
from everpoll.drivers.sqlite.file_identities import Paths
from everpoll.errors import EverpollError
from everpoll.stores.contract import DEADLINE_GRACE_S, TaskFilter
from everpoll.stores.examination import (
    HEAD_LIMIT,
    KEYS_SHOWN,
    LEASES_LIMIT,
    LIMIT_S,
    LISTED_LIMIT,
    SCHEMA_UNFIT,
    ClockFacts,
    DueTasks,
    Facts,
    FileFacts,
    Held,
    HeldTransaction,
    IndexFacts,
    IntegrityFacts,
    LeaseFacts,
    LogFacts,
    NotGathered,
    Plan,
    SchemaFacts,
    TransactionFacts,
    nothing_seen,
    unseen,
)
from everpoll.stores.index_definitions import expected_indexes
from everpoll.stores.sqlite import listing, pausing, reading, schema
from everpoll.stores.sqlite.steering import IS_SET_ASIDE

T = TypeVar("T")

STEPS = 20_000
"""The time is checked after this many steps of SQLite's virtual machine: every few milliseconds."""
FINDINGS = 5
HAS_MIGRATIONS = "select 1 from sqlite_master where name = 'everpoll_migrations'"
APPLIED = "select name from everpoll_migrations"
INDEXES = "select name from sqlite_master where type = 'index' and name like 'everpoll\\_%' escape '\\'"
NEWEST = """select max(coalesce((select max(beat_at) from everpoll_workers), 0),
    coalesce((select created_at from everpoll_tasks order by id desc limit 1), 0))"""
LEASES = f"""select owner, count(*) from (select owner from everpoll_tasks indexed by everpoll_tasks_leased
    where is_leased = 1 limit {LEASES_LIMIT}) group by owner"""  # noqa: S608 - a constant
OVERDUE = f"""select count(*), max(late_s) from (select (:now - started_at) / 1000000.0 - timeout_s as late_s
    from (select started_at, timeout_s from everpoll_tasks indexed by everpoll_tasks_leased
          where is_leased = 1 limit {LEASES_LIMIT}) where timeout_s is not null) where late_s > :grace"""  # noqa: S608
DUE = f"""select kind, name, version, key, due_at from (select kind, name, version, key, due_at from everpoll_tasks
        where line = 0 and is_leased = 0 and queue = :queue order by rank, due_at limit {HEAD_LIMIT})
    union all select kind, name, version, key, due_at from (select kind, name, version, key, due_at from everpoll_tasks
        where line = 3 and is_leased = 0 and queue = :queue order by rank, limit_key, due_at limit {HEAD_LIMIT})
    union all select kind, name, version, key, due_at from (select kind, name, version, key, due_at from everpoll_tasks
        where line = 1 and queue = :queue and due_at <= :now order by due_at limit {HEAD_LIMIT})
    union all select kind, name, version, key, due_at from (select kind, name, version, key, created_at as due_at
        from everpoll_tasks
        where {IS_SET_ASIDE} and queue = :queue and everpoll_tasks.due_at > :now order by id limit {HEAD_LIMIT})"""  # noqa: S608
QUESTIONS = (
    (
        "the next ready task of a queue",
        "everpoll_tasks_ready",
        """select id from everpoll_tasks where line = 0 and is_leased = 0 and queue = 'default'
            order by rank, due_at limit 1""",
    ),
    (
        "the next task of a queue to fall due",
        "everpoll_tasks_waiting",
        "select due_at from everpoll_tasks where line = 1 and queue = 'default' order by due_at limit 1",
    ),
    ("the live task of a key", "everpoll_tasks_key", "select id from everpoll_tasks where key = 'k' and kind = 'any'"),
    (
        "the newest failed task",
        "everpoll_history_ill",
        """select id from everpoll_history where state = 'failed' and state <> 'done' order by id desc limit 1""",
    ),
)


class SqliteExaminer:
    """Gathers facts about one file. `wall` is the clock of this process."""

    def __init__(self, address: SqliteAddress, wall: Callable[[], float] = time.time) -> None:
        self._path = address.path
        self._wall = wall

    async def examine(self, transaction_age_s: float, listed_kind: str) -> Facts:
        """See the contract. SQLite does not know the age of a transaction: a held write lock is reported."""
        return await asyncio.to_thread(self._examine, listed_kind)

    def _examine(self, listed_kind: str) -> Facts:
        place = f"the file {self._path}"
        if not self._path.exists():
            away = NotGathered(
                f"{self._path} does not exist",
                "check --url, EVERPOLL_URL and the folder that you are in; `everpoll migrate` creates the file",
            )
            return nothing_seen(place, away, SchemaFacts(is_there=False))
        try:
            with self._both() as (con, writer):
                return self._facts(con, writer, place, listed_kind)
        except sqlite3.Error as error:
            return nothing_seen(place, unseen(explained(error, self._path)))

    @contextmanager
    def _both(self) -> Iterator[tuple[Connection, Connection]]:
        """Yield a connection that reads, and one for the test of the write lock.

        The last connection that closes writes the log into the file and deletes it, if it may write. If there was a
        log, the reader closes last, and leaves the log as it is. If there was none, the writer does, and deletes its
        own.
        """
        has_log = Path(Paths(str(self._path)).log).exists()
        with closing(self._opened("ro" if has_log else "rw")) as last, closing(self._opened("rw")) as other:
            con, writer = (last, other) if has_log else (other, last)
            con.execute("pragma query_only = on")
            con.execute("select 1 from sqlite_master limit 1").fetchone()
            yield con, writer

    def _facts(self, con: Connection, writer: Connection, place: str, listed_kind: str) -> Facts:
        def ask(question: Callable[[Connection], T]) -> T | NotGathered:
            try:
                with _limited(con):
                    return question(con)
            except (sqlite3.Error, EverpollError) as error:
                return _unseen(explained(error, self._path))

        found = ask(_schema)
        is_fit = isinstance(found, SchemaFacts) and found.is_there and not found.missing
        unfit = found if isinstance(found, NotGathered) else SCHEMA_UNFIT
        now = round(self._wall() * 1e6)
        wanted = TaskFilter(kind=listed_kind, indexed=True)
        return Facts(
            place=place,
            reached=f"SQLite {sqlite3.sqlite_version}",
            schema=found,
            indexes=ask(_indexes) if is_fit else unfit,
            clock=ask(lambda con: _clock(con, now)) if is_fit else unfit,
            transactions=self._transactions(writer),
            leases=ask(lambda con: _leases(con, now)) if is_fit else unfit,
            workers=ask(lambda con: tuple(reading.workers(con, now))) if is_fit else unfit,
            queues=ask(lambda con: tuple(reading.queues(con, now, pausing.paused(con)))) if is_fit else unfit,
            due=ask(lambda con: _due(con, now)) if is_fit else unfit,
            listed=ask(lambda con: listing.tasks(con, wanted, LISTED_LIMIT, None).tasks) if is_fit else unfit,
            log=self._log(),
            integrity=self._integrity(con),
            files=self._files(),
        )

    def _opened(self, mode: str) -> Connection:
        uri = f"{self._path.as_uri()}?mode={mode}"
        con = sqlite3.connect(
            uri, uri=True, timeout=LIMIT_S, isolation_level=None, factory=Connection, check_same_thread=False
        )
        con.path = self._path
        return con

    def _transactions(self, writer: Connection) -> TransactionFacts | NotGathered:
        try:
            writer.execute("begin immediate")
            writer.execute("rollback")
        except sqlite3.Error as error:
            if code_of(error) not in BUSY:
                return _unseen(explained(error, self._path))
            held = HeldTransaction(
                age_s=LIMIT_S,
                holder="another program",
                state="has the write lock",
                remedy=f"find the program with `fuser {self._path}`, and end its transaction",
                blocks_writers=True,
            )
            return TransactionFacts(held=(held,))
        return TransactionFacts()

    def _log(self) -> LogFacts:
        paths = Paths(str(self._path))
        paths.measure_log()
        return LogFacts(path=paths.log, log_bytes=paths.log_bytes, limit_bytes=LOG_BYTES)

    def _integrity(self, con: Connection) -> IntegrityFacts:
        size = self._path.stat().st_size
        try:
            with _limited(con):
                said = [str(text) for (text,) in con.execute(f"pragma quick_check({FINDINGS})")]
        except sqlite3.Error as error:
            if code_of(error) == sqlite3.SQLITE_INTERRUPT:
                return IntegrityFacts(is_complete=False, path=str(self._path), size_bytes=size)
            said = [str(error)]
        return IntegrityFacts(
            findings=tuple(text for text in said if text != "ok"), path=str(self._path), size_bytes=size
        )

    def _files(self) -> FileFacts:
        real = self._path.resolve()
        return FileFacts(
            path=str(real),
            mode=real.stat().st_mode & 0o777 if os.name == "posix" else None,
            is_writable=os.access(real, os.W_OK),
            is_folder_writable=os.access(real.parent, os.W_OK),
        )


@contextmanager
def _limited(con: Connection) -> Iterator[None]:
    """Interrupt queries that take longer than the limit."""
    give_up_at = time.monotonic() + LIMIT_S
    con.set_progress_handler(lambda: time.monotonic() > give_up_at, STEPS)
    try:
        yield
    finally:
        con.set_progress_handler(None, STEPS)


def _unseen(error: Exception) -> NotGathered:
    cause = error.__cause__ or error
    is_late = isinstance(cause, sqlite3.Error) and code_of(cause) == sqlite3.SQLITE_INTERRUPT
    return unseen(TimeoutError() if is_late or "interrupted" in str(error) else error)


def _schema(con: Connection) -> SchemaFacts:
    if con.execute(HAS_MIGRATIONS).fetchone() is None:
        return SchemaFacts(is_there=False)
    applied, known = {str(name) for (name,) in con.execute(APPLIED)}, schema.migrations()
    return SchemaFacts(
        missing=tuple(name for name in known if name not in applied), newer=tuple(sorted(applied - known.keys()))
    )


def _indexes(con: Connection) -> IndexFacts:
    wanted = expected_indexes(schema.migrations().values())
    found = {str(name) for (name,) in con.execute(INDEXES)}
    missing = tuple(name for name in wanted if name not in found)
    plans = tuple(_plan(con, *question) for question in QUESTIONS)
    return IndexFacts(there=len(found), missing=missing, plans=plans, remedies=tuple(wanted[name] for name in missing))


def _plan(con: Connection, words: str, index: str, statement: str) -> Plan:
    plan = "; ".join(str(row[3]) for row in con.execute(f"explain query plan {statement}"))
    return Plan(question=words, index=index, is_used=f"INDEX {index} " in f"{plan} ", plan=plan[:200])


def _clock(con: Connection, now: int) -> ClockFacts:
    """Compare clocks: an instant of the file that lies in the future was written by another clock."""
    (newest,) = con.execute(NEWEST).fetchone()
    return ClockFacts(ahead_s=max(0, newest - now) / 1e6, of="file")


def _leases(con: Connection, now: int) -> LeaseFacts:
    overdue, most_s = con.execute(OVERDUE, {"now": now, "grace": DEADLINE_GRACE_S}).fetchone()
    held = tuple(Held(incarnation=owner, tasks=tasks) for owner, tasks in con.execute(LEASES))
    return LeaseFacts(held=held, overdue=overdue, most_overdue_s=most_s or 0.0)


def _due(con: Connection, now: int) -> tuple[DueTasks, ...]:
    found: list[DueTasks] = []
    for queue in reading.queue_names(con):
        groups: dict[tuple[str, str, int], list[tuple[int, str | None]]] = {}
        for kind, name, version, key, due_at in con.execute(DUE, {"queue": queue, "now": now}):
            groups.setdefault((kind, name, version), []).append((due_at, key))
        found += [_group(queue, *group, dues, now) for group, dues in sorted(groups.items())]
    return tuple(found)


def _group(queue: str, kind: str, name: str, version: int, dues: list[tuple[int, Any]], now: int) -> DueTasks:
    dues.sort(key=lambda one: one[0])
    keys = [str(key) for _, key in dues if key is not None]
    return DueTasks(
        queue=queue,
        kind=kind,
        name=name,
        version=version,
        tasks=len(dues),
        oldest_s=(now - dues[0][0]) / 1e6,
        keys=tuple(keys[:KEYS_SHOWN]),
    )
