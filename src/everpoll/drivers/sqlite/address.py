"""The address of a file: `sqlite:///relative.db`, `sqlite:////absolute.db`, and what may follow the `?`.

Promises: a relative path is resolved in the current directory, once. Percent-escapes are decoded, so that any name can
be written (`%3F` for a question mark). Never: opens the file.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, unquote

from everpoll.drivers.addresses import masked
from everpoll.errors import BadInput

Synchronous = Literal["full", "normal"]
OPTIONS = "synchronous=full (an acknowledged task survives a power cut; the default) or synchronous=normal"


@dataclass(frozen=True, slots=True)
class SqliteAddress:
    """The database file, and how durable its commits are."""

    path: Path
    synchronous: Synchronous = "full"


def read_address(url: str) -> SqliteAddress:
    """Return the address that a URL names; raise `BadInput` if the URL is not valid."""
    scheme, _, rest = url.partition("://")
    where, _, options = rest.partition("?")
    if scheme != "sqlite" or not where.startswith("/"):
        raise BadInput(
            f"{masked(url)!r} is not the address of a file: write sqlite:///relative.db or sqlite:////absolute.db"
        )
    name = unquote(where[1:], errors="surrogateescape")
    if name == ":memory:":
        raise BadInput(
            f"{masked(url)!r}: a store in memory is MemoryStore; SQLite needs a file that every connection can open"
        )
    if not name or name.endswith("/") or "\0" in name:
        raise BadInput(f"{masked(url)!r} names no file: write sqlite:///relative.db or sqlite:////absolute.db")
    return SqliteAddress(Path(name).absolute(), _synchronous(url, options))


def _synchronous(url: str, options: str) -> Synchronous:
    chosen: Synchronous = "full"
    for option, value in parse_qsl(options, keep_blank_values=True):
        match option, value.lower():
            case "synchronous", ("full" | "normal") as known:
                chosen = known
            case _:
                raise BadInput(f"{masked(url)!r}: {option}= with this value is not known; there is {OPTIONS}")
    return chosen
