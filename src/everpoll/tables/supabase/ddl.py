"""DDL for Supabase's SQL editor: columns, the index of the poll query, the functions, the publication for push."""

# ruff: noqa: S608 - names and words are quoted

from collections.abc import Container

from everpoll.tables.mapping import Table
from everpoll.tables.postgres_columns import all_declared, declared
from everpoll.tables.sql_names import identifier, literal
from everpoll.tables.supabase.functions import block, functions_ddl, qualified, schema_of
from everpoll.tables.supabase.statements import Statements

PUBLICATION = "supabase_realtime"


def ddl(statements: Statements, columns: Container[str] | None) -> list[str]:
    """Every statement that gives the table what the mapping names; all of them may be run again. None: no table yet."""
    table = statements.table
    if columns is None:
        made = [created(table)]
    else:
        lacks = [(role, name) for role, name in table.used.items() if name not in columns and role != "key"]
        made = list(dict.fromkeys(added(table, role, name) for role, name in lacks))
    functions = functions_ddl(table, statements.read) if table.guard == "skip_locked" else []
    return [*made, *index_ddl(table), *functions, publication_ddl(table)]


def index_ddl(table: Table) -> list[str]:
    """The index of the poll query, and one for rows that wait for their time."""
    name = table.parts[-1]
    first = [] if table.priority is None else [f"{identifier(table.priority)} desc nulls last"]
    columns = ", ".join([identifier(table.status), *first, identifier(table.order_by), identifier(table.key)])
    made = [f"create index if not exists {identifier(_short(name, '_queue'))} on {qualified(table)} ({columns})"]
    if table.due_at is not None:
        columns = f"{identifier(table.status)}, {identifier(table.due_at)}"
        made.append(f"create index if not exists {identifier(_short(name, '_due'))} on {qualified(table)} ({columns})")
    return made


def publication_ddl(table: Table) -> str:
    """What makes Realtime tell of inserts: the table in the publication, once."""
    return block(
        "begin\n"
        f"  if exists (select from pg_publication where pubname = '{PUBLICATION}') and not exists (\n"
        f"    select from pg_publication_tables where pubname = '{PUBLICATION}'\n"
        f"    and schemaname = {literal(schema_of(table))} and tablename = {literal(table.parts[-1])}) then\n"
        f"    alter publication {PUBLICATION} add table {qualified(table)};\n"
        "  end if;\nend"
    )


def _short(name: str, ending: str) -> str:
    """An identifier ends at 63 bytes."""
    return name.encode()[: 63 - len(ending)].decode(errors="ignore") + ending


def added(table: Table, role: str, name: str) -> str:
    """One more column."""
    return f"alter table {qualified(table)} add column if not exists {declared(table, role, name)}"


def created(table: Table) -> str:
    """The whole table."""
    return f"create table if not exists {qualified(table)} (\n    {all_declared(table)}\n)"
