"""Work: the statements of a store that run inside a caller's transaction."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from everpoll.errors import BadInput

T = TypeVar("T")


class OtherDatabase(BadInput):
    """The connection is one of another database than the app's; nothing was done."""


@dataclass(frozen=True, slots=True)
class PostgresWork(Generic[T]):
    """One call of a function that takes texts and returns a text."""

    function: str
    args: tuple[str, ...]
    read: Callable[[str], T]
    """Reads the answer; raises `OtherDatabase` if the function reports another database."""

    def sql(self, mark: Callable[[int], str]) -> str:
        """Return the statement; `mark` makes the placeholder of an argument, from 1."""
        casts = ", ".join(f"cast({mark(place)} as text)" for place in range(1, len(self.args) + 1))
        return f"select {self.function}({casts})"


@dataclass(frozen=True, slots=True)
class SqliteWork(Generic[T]):
    """Some statements on one file. `run` gets an object with `execute`, like a `sqlite3` connection."""

    path: Path
    run: Callable[[Any], T]

    def on(self, connection: Any, driver: Any, kind: str) -> T:
        """Run it. `driver` is the driver's own connection, which knows whether a transaction is open."""
        # Loaded when it is first used: most programs enqueue without a connection, and many have no SQLite.
        from everpoll.drivers.callers.sqlite import run  # noqa: PLC0415

        return run(connection, driver, self, kind)


CallerWork = PostgresWork[T] | SqliteWork[T]
