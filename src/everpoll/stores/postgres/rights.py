"""Which rights a role needs in the schema `everpoll`, and the GRANT for those that it lacks.

Promises: a worker learns at its start, in one statement, about every right that it would miss later; the statements in
the message can be run as they are. Never asks for more than a worker uses: a role that drops old history or retries
ended jobs needs to delete from more tables.
"""

from everpoll.drivers.postgres.lane import Connection
from everpoll.errors import RightsMissing

TABLES = {
    "tasks": ("select", "insert", "update", "delete"),
    "history": ("select", "insert"),
    "workers": ("select", "insert", "update"),
    "losses": ("insert",),
    "events": ("select", "insert"),
    "figures": ("select", "insert", "update"),
    "feed_horizon": ("select",),
    "pauses": ("select",),
}
# An insert takes the next number of an identity column without a right; what asks a sequence itself needs one.
SEQUENCES = {"tasks_id_seq": ("usage",), "events_id_seq": ("select", "usage")}

LACKING = """select w.kind, w.name, array_agg(w.right_name order by w.place), quote_ident(current_user)
    from unnest($1::text[], $2::text[], $3::text[]) with ordinality as w (kind, name, right_name, place)
    where not case w.kind when 'table' then has_table_privilege(format('everpoll.%I', w.name), w.right_name)
        else has_sequence_privilege(format('everpoll.%I', w.name), w.right_name) end
    group by w.kind, w.name order by min(w.place)"""
MAY_CREATE_SCHEMAS = """select has_database_privilege(current_database(), 'create'), quote_ident(current_database()),
    quote_ident(current_user)"""
MAY_CREATE_TABLES = "select has_schema_privilege('everpoll', 'create'), quote_ident(current_user)"

WANTED = [
    (kind, name, right)
    for kind, objects in (("table", TABLES), ("sequence", SEQUENCES))
    for name, rights in objects.items()
    for right in rights
]


async def check(connection: Connection) -> None:
    """Raise `RightsMissing` with a GRANT for each table and sequence on which the role lacks what a worker needs."""
    lacking = await connection.fetch(LACKING, *map(list, zip(*WANTED, strict=True)))
    if lacking:
        grants = "; ".join(
            f"grant {', '.join(rights)} on {kind} everpoll.{name} to {role}" for kind, name, rights, role in lacking
        )
        raise RightsMissing(f"the role {lacking[0][3]} lacks rights that a worker needs; run: {grants}")


async def check_database(connection: Connection) -> None:
    """Raise `RightsMissing` where the role may not create the schema."""
    may, database, role = await connection.fetchrow(MAY_CREATE_SCHEMAS)
    if not may:
        raise RightsMissing(
            f"the role {role} may not create the schema everpoll in the database {database}; "
            f"run: grant create on database {database} to {role}; or run `everpoll migrate` as another role"
        )


async def check_schema(connection: Connection) -> None:
    """Raise `RightsMissing` where the role may not migrate the schema that is there."""
    may, role = await connection.fetchrow(MAY_CREATE_TABLES)
    if not may:
        raise RightsMissing(
            f"the role {role} may not migrate the schema everpoll; run `everpoll migrate` as the role that owns it, "
            f"or run: grant usage, create on schema everpoll to {role}"
        )
