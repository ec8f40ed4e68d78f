"""Many rows in few statements.

Python's `executemany` returns to the interpreter once a row, and each time waits for the interpreter's lock. Beside a
busy event loop that is two context switches a row, which cost both threads more than the row itself.

Promises: writes the rows in their order, whatever their number, within SQLite's limit on parameters. The texts of the
statements are few, so that each stays compiled.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from everpoll.drivers.sqlite.connection import Connection

SIZES = (256, 128, 64, 32, 16, 8, 4, 2, 1)
"""Rows of one statement. With 40 columns that are 10,240 parameters; SQLite allows 32,766."""
ROWS = "{rows}"


def write_rows(con: Connection, statement: str, rows: Sequence[Sequence[Any]], *, fills: bool = False) -> None:
    """Run a statement that has `{rows}` where the values of its rows belong.

    `fills`: a row of nulls changes nothing, so what is left over is filled up with them, and is one statement.
    """
    left = len(rows) % SIZES[0]
    if fills and left:
        filler = (None,) * len(rows[0])
        rows = [*rows, *[filler] * (min(size for size in SIZES if size >= left) - left)]
    for portion in _portions(rows):
        con.execute(_statement(statement, len(portion), len(portion[0])), list(chain.from_iterable(portion)))


def _portions(rows: Sequence[Sequence[Any]]) -> Iterator[Sequence[Sequence[Any]]]:
    start = 0
    for size in SIZES:
        while len(rows) - start >= size:
            yield rows[start : start + size]
            start += size


@lru_cache(maxsize=256)
def _statement(statement: str, rows: int, columns: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return statement.replace(ROWS, ", ".join([row] * rows))
