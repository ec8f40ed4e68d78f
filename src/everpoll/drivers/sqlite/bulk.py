"""Many rows in few statements.

Python's `executemany` waits for the interpreter's lock after each row. Beside a busy event loop that takes two context
switches for each row, which cost both threads more than the row itself.

Promises: writes any number of rows, in their order, within SQLite's limit on parameters. There are few different
statements, so that each stays compiled.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from everpoll.drivers.sqlite.connection import Connection

SIZES = (256, 128, 64, 32, 16, 8, 4, 2, 1)
"""How many rows a statement may have. 256 rows of 40 columns have 10,240 parameters; SQLite allows 32,766."""
ROWS = "{rows}"


def write_rows(con: Connection, statement: str, rows: Sequence[Sequence[Any]], *, fills: bool = False) -> None:
    """Run a statement that has `{rows}` where the values of its rows belong.

    `fills`: True if a row of nulls changes nothing. The last rows are then filled up with such rows, to one statement.
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
