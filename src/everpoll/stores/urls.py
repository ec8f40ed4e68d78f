"""URLs of stores: `sqlite:///everpoll.db`, `postgresql://…`, `memory://`."""

import os

from everpoll.drivers.addresses import masked
from everpoll.drivers.missing_packages import missing_package
from everpoll.errors import BadInput
from everpoll.policy import Clock
from everpoll.stores.contract import Store

DEFAULT_URL = "sqlite:///everpoll.db"
POSTGRES = ("postgresql", "postgres")


def default_url() -> str:
    """Return `$EVERPOLL_URL`, else one SQLite file in the working directory."""
    return os.environ.get("EVERPOLL_URL") or DEFAULT_URL


def has_url() -> bool:
    """Return True if the environment has the address of a store."""
    return bool(os.environ.get("EVERPOLL_URL"))


def with_connections(url: str, connections: int | None) -> str:
    """Return the address with this number of connections as an option; only Postgres has it."""
    if connections is None or url.split(":", 1)[0].lower() not in POSTGRES:
        return url
    return f"{url}{'&' if '?' in url else '?'}connections={connections}"


def store_for(url: str, clock: Clock | None = None) -> Store:
    """Return the store at that address, not yet open. Drivers are imported only if they are needed."""
    scheme = url.split(":", 1)[0].lower() if "://" in url else ""
    if scheme == "memory":
        from everpoll.stores.memory import MemoryStore  # noqa: PLC0415 - see above

        return MemoryStore(clock)
    if scheme == "sqlite":
        from everpoll.stores.sqlite import SqliteStore  # noqa: PLC0415 - see above

        return SqliteStore(url)
    if scheme in POSTGRES:
        try:
            from everpoll.stores.postgres import PostgresStore  # noqa: PLC0415 - see above
        except ModuleNotFoundError as error:
            if error.name != "asyncpg":
                raise
            raise missing_package("postgresql://", "asyncpg", "postgres") from None
        return PostgresStore(url)
    raise BadInput(
        f"{masked(url)!r} is not the address of a store; write sqlite:///everpoll.db, postgresql://user@host/database "
        "or memory://"
    )


def is_missing_file(url: str) -> bool:
    """Return True if this is the address of a SQLite file that does not exist yet."""
    if url.split(":", 1)[0].lower() != "sqlite":
        return False
    from everpoll.drivers.sqlite.address import read_address  # noqa: PLC0415 - as in `store_for`

    return not read_address(url).path.exists()
