"""Whether the role may read and change an adopted table, column by column, before its worker relies on that."""

from everpoll.drivers.postgres.lane import Connection
from everpoll.errors import RightsMissing
from everpoll.tables.findings import READ_ONLY
from everpoll.tables.mapping import Table
from everpoll.tables.postgres.shape import Relation

LACKING = """select distinct w.right_name, quote_ident(current_user)
    from unnest($2::text[], $3::text[]) as w (right_name, name)
    where not has_column_privilege($1::bigint::oid, w.name, w.right_name) order by 1"""


async def check(connection: Connection, table: Table, relation: Relation) -> None:
    """Raise `RightsMissing` with the GRANT for what the role lacks."""
    wanted = [("select", name) for name in table.used.values()]
    wanted += [("update", name) for use, name in table.used.items() if _is_written(table, use, name)]
    lacking = await connection.fetch(LACKING, relation.oid, *map(list, zip(*wanted, strict=True)))
    if lacking:
        rights, role = ", ".join(row[0] for row in lacking), lacking[0][1]
        raise RightsMissing(
            f"table {table.name!r}: the role {role} lacks rights that its worker needs; "
            f"run: grant {rights} on table {relation.sql} to {role}"
        )


def _is_written(table: Table, use: str, name: str) -> bool:
    return name in table.results or (use not in READ_ONLY and not use.startswith("column "))
