"""Judges a row of any table, or the result of any function.

    SqlRow(connect, "SELECT state, error FROM exports WHERE id = ?", done=["finished"], failed=["broken"])
    Call(fetch_report, done=lambda report: report["pages"] > 0)

The first column holds the status, whatever its name. A word that is not listed means pending, and so do NULL and,
unless `missing="fail"`, a missing row. Two columns with the same name are refused. Each look calls `connect`, which
returns a DB-API connection (sqlite3, psycopg, …), an asyncpg connection or pool, or an engine of SQLAlchemy. The
statement gets the handle as its only parameter: nothing is ever formatted into it.
Never writes.
"""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

from everpoll.engine.threads import DaemonThreads
from everpoll.errors import BadInput
from everpoll.watches.adapters.client import Memory
from everpoll.watches.adapters.statuses import TEXT_LIMIT
from everpoll.watches.adapters.threads import in_thread
from everpoll.watches.verdicts import Done, Fail, Verdict, Wait

Row = Mapping[str, Any]


class SqlRow:
    """A row with its status in the first column; the other columns are the value, and the evidence."""

    def __init__(
        self,
        connect: Callable[[], Any],
        statement: str,
        *,
        done: Collection[str],
        failed: Collection[str] = (),
        canceled: Collection[str] = (),
        missing: Literal["wait", "fail"] = "wait",
    ) -> None:
        words = {"done": done, "failed": failed, "canceled": canceled}
        for name, listed in words.items():
            if isinstance(listed, str):
                raise BadInput(f"{name}={listed!r}: write a list of words")
        if not done:
            raise BadInput("done=…: name the words of a row that has ended well")
        self._meanings = {_plain(word): name for name, listed in words.items() for word in listed}
        self._connect = connect
        self._statement = statement
        self._missing = missing
        self._threads = DaemonThreads(name="everpoll-sql")

    def judge(self, row: Row | None) -> Verdict:
        """Judge a row, given as {column: value} in the statement's order; None: there is no such row."""
        if row is None:
            gone = Fail("the row is not there") if self._missing == "fail" else None
            return gone or Wait(note="the row is not there")
        first = next(iter(row.values()), None)
        if first is None:
            return Wait(note="the row has no status yet: it is NULL")
        word = str(first)[:TEXT_LIMIT]
        meaning = self._meanings.get(_plain(word))
        if meaning is None:
            return Wait(status=word)
        if meaning == "done":
            return Done(dict(row), status=word)
        return Fail(f"the row says {word!r}", evidence=dict(row), canceled=meaning == "canceled", status=word)

    async def look(self, handle: Any, memory: Memory | None = None) -> Verdict:
        """Read the row of this key once and judge it."""
        if inspect.iscoroutinefunction(self._connect):
            return self.judge(await self._read_async(await self._connect(), handle))
        found = await in_thread(self._threads, self._connected, handle)
        return self.judge(
            found if found is None or isinstance(found, Mapping) else await self._read_async(found, handle)
        )

    def _connected(self, handle: Any) -> Any:
        """Connect, in a thread. Return the row, or an asynchronous connection or pool, which the event loop reads."""
        connection = self._connect()
        if hasattr(connection, "fetchrow") or inspect.isawaitable(connection):
            return connection
        if hasattr(connection, "sync_engine"):
            raise BadInput("an asynchronous engine of SQLAlchemy cannot be used here: pass a plain one, or asyncpg")
        is_engine = hasattr(connection, "dialect") and hasattr(connection, "connect")
        return (
            _engine_row(connection, self._statement, handle) if is_engine else _row(connection, self._statement, handle)
        )

    async def _read_async(self, connection: Any, handle: Any) -> Row | None:
        # A pool of asyncpg has `fetchrow`, too. Awaiting it would open it, which is up to the user.
        if not hasattr(connection, "fetchrow"):
            connection = await connection
        try:
            found = await connection.fetchrow(self._statement, handle)
        finally:
            # A pool belongs to the user and stays open; a connection was made for this look.
            if not hasattr(connection, "acquire"):
                await connection.close()
        return None if found is None else _named(list(found.keys()), list(found.values()))


class Call:
    """Any function, judged by predicates: `Call(get_export, done=lambda e: e.ready, failed=lambda e: e.error)`.

    `failed` is called first; if it returns a text, that is the reason. A plain function runs in a thread.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        *,
        done: Callable[[Any], object],
        failed: Callable[[Any], object] = lambda value: False,
        status: Callable[[Any], object] = lambda value: None,
    ) -> None:
        self._function = function
        self._done = done
        self._failed = failed
        self._status = status
        self._threads = DaemonThreads(name="everpoll-call")

    def judge(self, value: Any) -> Verdict:
        """Judge what the function returned; a verdict is returned as it is."""
        if isinstance(value, Done | Fail | Wait):
            return value
        wrong = self._failed(value)
        if wrong:
            return Fail(wrong if isinstance(wrong, str) else "failed= found a failure in the answer", evidence=value)
        if self._done(value):
            return Done(value)
        word = self._status(value)
        return Wait(status=None if word is None else str(word)[:TEXT_LIMIT])

    async def look(self, handle: Any, memory: Memory | None = None) -> Verdict:
        """Call the function once, with the handle, and judge what it returns."""
        if inspect.iscoroutinefunction(self._function):
            return self.judge(await self._function(handle))
        value = await in_thread(self._threads, self._function, handle)
        return self.judge(await value if inspect.isawaitable(value) else value)


def _row(connection: Any, statement: str, handle: Any) -> Row | None:
    try:
        cursor = connection.cursor()
        cursor.execute(statement, (handle,))
        found = cursor.fetchone()
        return None if found is None else _named([column[0] for column in cursor.description], found)
    finally:
        connection.close()


def _engine_row(engine: Any, statement: str, handle: Any) -> Row | None:
    with engine.connect() as connection:
        result = connection.exec_driver_sql(statement, (handle,))
        found = result.first()
        return None if found is None else _named(list(result.keys()), found)


def _named(columns: Sequence[str], values: Any) -> Row:
    twice = next((name for number, name in enumerate(columns) if name in columns[:number]), None)
    if twice is not None:
        raise BadInput(f"the statement has two columns named {twice!r}: rename one of them with AS")
    # Some drivers return dictionaries, in an order of their own.
    if isinstance(values, Mapping):
        return {name: values[name] for name in columns}
    return dict(zip(columns, values, strict=True))


def _plain(word: str) -> str:
    return word.strip().lower()
