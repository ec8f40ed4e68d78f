"""The address of a database: everpoll's own options, the part for the driver, and the passwords, which stay hidden.

    postgresql://user:password@host:5432/database?connections=6&statement_cache=0&command_timeout=10&sslmode=require

Own options: `connections` (the most that a worker opens, its heartbeat's included), `statement_cache` (0: no prepared
statements, for a transaction pooler that does not support them), `command_timeout` and `connect_timeout` in seconds.
All other options go to the driver. Never: a password in a message. Several hosts (`a:5432,b:5433`): everpoll uses the
host that accepts writes; see `hosts`. `application_name` is the caller's (in the address, in its `options`, in
`$PGAPPNAME`), else `everpoll`.
"""

import os
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from everpoll.drivers.postgres.hosts import Host, hosts_of
from everpoll.errors import BadInput

CONNECTIONS, FEWEST_CONNECTIONS = 3, 2
STATEMENT_CACHE = 100
COMMAND_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10.0
SCHEMES = ("postgresql", "postgres")
OWN = ("connections", "statement_cache", "command_timeout", "connect_timeout")
APPLICATION_NAME = "everpoll"
# As `options` may set it: `-c application_name=…` or `--application-name=…`.
_SETS_APPLICATION_NAME = re.compile(r"(?:-c\s*|--)application[_-]name\s*=", re.IGNORECASE)
WRITABLE = "read-write"
UNREADABLE = "the address of the database cannot be read"
LIKE = "postgresql://user:password@host:5432/database"


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """Where the database is, and how to speak with it."""

    dsn: str = field(repr=False)
    hosts: tuple[Host, ...] = field(repr=False)
    statement_cache: int
    command_timeout_s: float
    connect_timeout_s: float
    connections: int
    secrets: tuple[str, ...] = field(repr=False)
    settings: tuple[tuple[str, str], ...] = ()
    """The settings of a new session that the address itself does not have."""
    place: str = "localhost"
    """Host and port, for people: several hosts as they are written, a folder where it is a socket."""
    target: str | None = None
    """Which kind of server to connect to, if the address does not say: of several hosts, one that accepts writes."""
    role: str = ""
    """The user of the database, for messages; empty if the address has none."""
    schema: str | None = None
    """The schema of the tables, for messages: Postgres names a table without it when it denies access."""

    def masked(self, text: str) -> str:
        """Return the text with every password in it hidden."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def read_address(url: str) -> PostgresAddress:
    """Read the parts of the address. The error for an unusable address does not quote it."""
    try:
        parts = urlsplit(url)
        password = parts.password
        hosts = hosts_of(url) if parts.scheme in SCHEMES else ()
    except BadInput:
        raise
    except ValueError:
        raise BadInput(f"{UNREADABLE}: write {LIKE}, with special characters in the password percent-encoded") from None
    if parts.scheme not in SCHEMES:
        raise BadInput(f"{parts.scheme!r} is not the address of a Postgres database: write {LIKE}")
    # A character of the password was not percent-encoded, so the rest of the password is read as another part.
    if parts.fragment or "@" in parts.path or any("@" in _name(piece) for piece in parts.query.split("&")):
        raise BadInput(f"{UNREADABLE}: write {LIKE}, with special characters in the password percent-encoded")
    pieces = [piece for piece in parts.query.split("&") if piece]
    own = dict(parse_qsl("&".join(piece for piece in pieces if _name(piece) in OWN), keep_blank_values=True))
    rest = "&".join(piece for piece in pieces if _name(piece) not in OWN)
    secrets = {one for name, one in parse_qsl(parts.query) if name == "password"}
    secrets |= {password, unquote(password)} if password else set()
    dsn = parts._replace(query=rest).geturl()
    return PostgresAddress(
        dsn=dsn,
        hosts=hosts_of(dsn),
        statement_cache=int(_number(own, "statement_cache", STATEMENT_CACHE)),
        command_timeout_s=_number(own, "command_timeout", COMMAND_TIMEOUT_S),
        connect_timeout_s=_number(own, "connect_timeout", CONNECT_TIMEOUT_S),
        connections=_connections(own),
        # The longest first, because one may contain another.
        secrets=tuple(sorted(secrets, key=len, reverse=True)),
        settings=_settings(dict(parse_qsl(parts.query))),
        role=unquote(parts.username or "") or dict(parse_qsl(parts.query)).get("user", ""),
        place=",".join(host.place for host in hosts),
        target=None if len(hosts) == 1 or _has_target(pieces) else WRITABLE,
    )


def _has_target(pieces: list[str]) -> bool:
    return "target_session_attrs" in map(_name, pieces) or "PGTARGETSESSIONATTRS" in os.environ


def _settings(given: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the settings to pass to the driver: they win over the address, and it does not read $PGAPPNAME."""
    if "application_name" in given or _SETS_APPLICATION_NAME.search(given.get("options", "")):
        return ()
    return (("application_name", os.environ.get("PGAPPNAME") or APPLICATION_NAME),)


def _name(piece: str) -> str:
    return piece.split("=", 1)[0]


def _connections(own: dict[str, str]) -> int:
    text = own.get("connections", str(CONNECTIONS))
    if not (text.isascii() and text.isdigit() and int(text) >= FEWEST_CONNECTIONS):
        raise BadInput(
            f"connections={text!r} in the database's address: must be a whole number, {FEWEST_CONNECTIONS} or more: "
            "one for the heartbeat, one for everything else"
        )
    return int(text)


def _number(own: dict[str, str], name: str, default: float) -> float:
    text = own.get(name)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf") or (number == 0 and name != "statement_cache"):
        raise BadInput(f"{name}={text!r} in the database's address: write a number, such as {default:g}")
    return number
