"""Writes names and values into the query of a PostgREST address.

Promises: PostgREST reads every name and value literally, whatever characters it has. No address becomes longer than
`URL_LIMIT`: lists are cut into chunks.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

T = TypeVar("T")

URL_LIMIT = 6_000
"""In bytes. Servers and proxies stop between 8 kB and 16 kB; the rest of the address needs room, too."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Words with a meaning of their own to PostgREST where a column could be.
_RESERVED = frozenset({"select", "order", "limit", "offset", "columns", "on_conflict", "or", "and", "not"})

Query = tuple[tuple[str, str], ...]


def column(name: str) -> str:
    """Return a column's name, quoted where PostgREST needs it."""
    return name if _PLAIN.fullmatch(name) and name.lower() not in _RESERVED else quoted(name)


def quoted(text: str) -> str:
    """Quote a text: PostgREST then reads each of its characters literally."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def text_of(value: Any) -> str:
    """Write a JSON value as Postgres reads it."""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def equals(value: Any) -> str:
    """Return `eq.…`, or `is.null`. Outside of a list PostgREST takes the whole rest literally, so nothing is quoted."""
    return "is.null" if value is None else f"eq.{text_of(value)}"


def one_of(values: Sequence[Any]) -> str:
    """Return `in.(…)`, or `eq.…` for a single value: PostgREST reads a list of one empty text as an empty list."""
    return equals(values[0]) if len(values) == 1 else f"in.({','.join(map(listed, values))})"


def encoded(query: Iterable[tuple[str, str]]) -> str:
    """Encode a query as the part of an address after the question mark."""
    return "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query)


def listed(value: Any) -> str:
    """Write a value as part of a list."""
    return quoted(text_of(value))


def chunks(values: Sequence[Any], taken: int) -> Iterator[Sequence[Any]]:
    """Cut a list so that each part fits into an address in which `taken` bytes are used already."""
    return portions(values, lambda value: len(quote(listed(value), safe="")) + len("%2C"), max(URL_LIMIT - taken, 1))


def portions(values: Sequence[T], size_of: Callable[[T], int], most: int) -> Iterator[Sequence[T]]:
    """Cut a list into parts of at most so many bytes; a value that is larger is a part of its own."""
    start = used = 0
    for index, value in enumerate(values):
        size = size_of(value)
        if used + size > most and index > start:
            yield values[start:index]
            start, used = index, 0
        used += size
    if start < len(values):
        yield values[start:]
