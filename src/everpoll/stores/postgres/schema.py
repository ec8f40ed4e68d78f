"""The schema `everpoll`: tables by numbered files that are applied once each, in order; functions by their content.

Promises: several processes may start at once; one migrates, the others wait and find it done. What is up to date is
left alone, by one cheap look. Never: session locks, which a transaction pooler would pass on to another client.
"""

from importlib.resources import files

from everpoll.drivers.no_tables import no_tables_in
from everpoll.drivers.postgres.lane import Connection
from everpoll.errors import SchemaOutdated
from everpoll.stores.postgres import functions, rights
from everpoll.stores.postgres.functions import versioned

# An arbitrary number of our own: only migrations of everpoll's schema take this lock.
LOCK = 0x45564552504F4C4C

IS_THERE = "select to_regclass('everpoll.migrations') is not null"
APPLIED = "select name from everpoll.migrations order by name"
SCHEMA_IS_THERE = "select to_regnamespace('everpoll') is not null"
TABLE = """create table if not exists everpoll.migrations (
    name text primary key, applied_at timestamptz not null default clock_timestamp())"""
APPLY = "insert into everpoll.migrations (name) values ($1)"
# Today's partition of history, and a week's ahead; afterwards the beats see to it.
PARTITIONS = versioned("select everpoll.make_partitions(7, 7)")


def migrations() -> dict[str, str]:
    """Name and SQL of every step, in order."""
    folder = files(__package__) / "migrations"
    names = sorted(one.name for one in folder.iterdir() if one.name.endswith(".sql"))
    return {name.removesuffix(".sql"): (folder / name).read_text("utf-8") for name in names}


async def missing(connection: Connection) -> list[str]:
    """Return what has not been applied yet; a schema that another release has changed is refused."""
    known = migrations()
    applied = set()
    if await connection.fetchval(IS_THERE):
        applied = {str(row[0]) for row in await connection.fetch(APPLIED)}
    if unknown := sorted(applied - known.keys()):
        raise SchemaOutdated(
            f"another everpoll has migrated the database ({', '.join(unknown)} is unknown to this one): if that one is "
            "newer, upgrade everpoll; if it is older, it was never released: begin with a new database"
        )
    missed = [name for name in known if name not in applied]
    return missed if await functions.is_installed(connection) else [*missed, f"functions {functions.digest()}"]


async def migrate(connection: Connection) -> list[str]:
    """Apply what is missing; return the names."""
    if not await missing(connection):
        return []
    steps = migrations()
    async with connection.transaction():
        await connection.execute(f"select pg_advisory_xact_lock({LOCK})")
        # Checked first: a role that may not create schemas may still use one that an administrator has made.
        if not await connection.fetchval(SCHEMA_IS_THERE):
            await rights.check_database(connection)
            await connection.execute("create schema everpoll")
        else:
            await rights.check_schema(connection)
        await connection.execute(TABLE)
        names = await missing(connection)
        for name in names:
            if name in steps:
                await connection.execute(steps[name])
                await connection.execute(APPLY, name)
        await functions.install(connection)
        await connection.fetchval(PARTITIONS)
    return names


async def is_read_committed(connection: Connection) -> bool:
    """Return whether the default isolation level is READ COMMITTED, for which every statement here is written."""
    return bool(await connection.fetchval("select current_setting('default_transaction_isolation') = 'read committed'"))


async def check(connection: Connection, place: str) -> None:
    """Raise if the schema does not fit this release; `place` is the host and port in the error."""
    if names := await missing(connection):
        where = f"the database {await connection.fetchval('select current_database()')!r} at {place}"
        if not await connection.fetchval(IS_THERE):
            raise no_tables_in(where, "the host and the database")
        raise SchemaOutdated(f"the schema everpoll in {where} lacks {', '.join(names)}: run `everpoll migrate`")
