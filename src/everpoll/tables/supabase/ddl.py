"""DDL for Supabase's SQL editor, see `tables/ddl.py`, and the publication for push. All of it is repeatable.

The indexes hold every row: PostgREST sends the status as a parameter, for which the planner may not use a partial one.
"""

# ruff: noqa: S608 - names and words are quoted

from everpoll.tables.ddl import POSTGRES_TYPES, Ddl
from everpoll.tables.mapping import Table
from everpoll.tables.sql_names import literal
from everpoll.tables.supabase.functions import block, functions_ddl, qualified, schema_of

PUBLICATION = "supabase_realtime"


def ddl_of(table: Table) -> Ddl:
    """Build the DDL for a table of which HTTP shows hardly anything."""
    has_functions = table.guard == "skip_locked"
    return Ddl(
        table=table,
        target=qualified(table),
        types=POSTGRES_TYPES,
        if_not_exists="if not exists ",
        priority_order=" desc nulls last",
        extras={
            "functions": functions_ddl(table) if has_functions else [],
            "push": [publication_ddl(table)],
        },
    )


def publication_ddl(table: Table) -> str:
    """Return the statement that adds the table to Realtime's publication, if it is not in it."""
    return block(
        "begin\n"
        f"  if exists (select from pg_publication where pubname = '{PUBLICATION}') and not exists (\n"
        f"    select from pg_publication_tables where pubname = '{PUBLICATION}'\n"
        f"    and schemaname = {literal(schema_of(table))} and tablename = {literal(table.parts[-1])}) then\n"
        f"    alter publication {PUBLICATION} add table {qualified(table)};\n"
        "  end if;\nend"
    )
