"""From an address to the file that speaks with that database; drivers are imported only where they are needed."""

from typing import Any

from everpoll.drivers.addresses import masked
from everpoll.drivers.missing_packages import missing_package
from everpoll.drivers.postgrest.token import Token
from everpoll.errors import BadInput
from everpoll.tables.mapping import Table
from everpoll.tables.source import TableSource


def source_for(url: str, table: Table, token: Token | None = None) -> TableSource[Any, Any]:
    """Return the table at that address. The caller opens it."""
    scheme = url.split(":", 1)[0].lower() if "://" in url else ""
    if scheme in {"postgresql", "postgres"}:
        try:
            from everpoll.tables.postgres import PostgresTable  # noqa: PLC0415 - see above
        except ModuleNotFoundError as error:
            if error.name != "asyncpg":
                raise
            raise missing_package(f"table {table.name!r} at postgresql://", "asyncpg", "postgres") from None
        return PostgresTable(url, table)
    if scheme == "sqlite":
        from everpoll.tables.sqlite import SqliteTable  # noqa: PLC0415 - see above

        return SqliteTable(url, table)
    if scheme in {"http", "https"}:
        from everpoll.tables.supabase import SupabaseTable  # noqa: PLC0415 - see above

        return SupabaseTable(url, table, token)
    raise BadInput(
        f"table {table.name!r}: {masked(url)!r} is not the address of a database with tables of your own; write "
        "postgresql://…, sqlite:///… or https://….supabase.co"
    )
