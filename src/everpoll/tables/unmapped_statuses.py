"""Words in a status column that the mapping does not name: the likeliest mistake, and one that nothing else shows.

A worker whose word for `queued` occurs nowhere in the table finds nothing, for ever, and looks healthy.
"""

from collections.abc import Collection

from everpoll.tables.contract import Finding
from everpoll.tables.mapping import Table

SAMPLE = 1_000
"""Rows that are looked at; any of them."""
SHOWN = 8


def words_finding(table: Table, seen: Collection[str], *, has_waiting: bool) -> Finding:
    """`seen`: the words of a sample; `has_waiting`: whether some row has the word for waiting."""
    known = ", ".join(map(repr, table.words))
    unknown = sorted(set(seen) - set(table.words))
    if not unknown or has_waiting:
        return Finding(what="words in use", is_fit=True, is_needed=False, detail=f"{known}, or none yet")
    shown = ", ".join(map(repr, unknown[:SHOWN]))
    detail = f"no row has {table.queued!r} (queued), and some have {shown}, which the mapping does not know: write "
    return Finding(
        what="words in use", is_fit=False, is_needed=False, detail=f"{detail}queued=… if that is one that waits"
    )


def is_foreign(table: Table, seen: Collection[str]) -> bool:
    """Whether there are rows, and none has any word of the mapping: reason enough to say so at the start."""
    return bool(seen) and not set(seen) & set(table.words)
