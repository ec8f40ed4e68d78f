"""The table as PostgREST describes it: its columns, their types, which are required.

PostgREST describes its tables in an OpenAPI document. Where a server does not give it, columns are asked for one by
one, and types stay unknown.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from everpoll.errors import TableUnfit
from everpoll.tables.mapping import Table
from everpoll.tables.supabase import faults
from everpoll.tables.supabase.ddl import created
from everpoll.tables.supabase.http import Http, Request
from everpoll.tables.supabase.statements import Statements


class Column(Struct, frozen=True):
    """As the OpenAPI document has it."""

    type: str
    words: tuple[str, ...] = ()
    """Of an enumeration."""


class Shape(Struct, frozen=True):
    """One table, as far as it can be seen."""

    columns: Mapping[str, Column | None]
    """None: it is there, and its type is not known."""
    required: frozenset[str] = frozenset()


async def read_shape(http: Http, statements: Statements) -> Shape:
    """Look at the table; `TableUnfit` where there is none."""
    table = statements.table
    names = list(dict.fromkeys(table.used.values()))
    try:
        await http.rows(statements.get(names, (), limit=0))
    except faults.Refused as error:
        if error.code != "42703":
            raise _unusable(table, error) from None
    described = await _described(http, statements)
    if described is not None:
        return described
    there = await asyncio.gather(*(_is_there(http, statements, name) for name in names))
    return Shape({name: None for name, is_there in zip(names, there, strict=True) if is_there})


async def _described(http: Http, statements: Statements) -> Shape | None:
    """The table in the OpenAPI document; None: the server does not give it, or not with this table."""
    headers = statements.get([], ()).headers
    try:
        document: Any = await http.answer(Request(method="GET", path="/", headers=headers))
    except faults.Refused:
        return None
    try:
        found = document["definitions"][statements.table.parts[-1]]
        columns = {
            str(name): Column(str(one.get("format", "")).lower(), tuple(one.get("enum", ())))
            for name, one in found["properties"].items()
        }
        return Shape(columns, frozenset(found.get("required", ())))
    except (KeyError, TypeError, AttributeError):
        return None


async def _is_there(http: Http, statements: Statements, name: str) -> bool:
    try:
        await http.rows(statements.get([name], (), limit=0))
    except faults.Refused as error:
        if error.code == "42703":
            return False
        raise
    return True


def _unusable(table: Table, error: faults.Refused) -> TableUnfit:
    if error.code in {"42P01", "PGRST205"}:
        problem = f"table {table.name!r} is not there, or not served by this address: {error}"
        return TableUnfit(problem, [created(table)])
    return TableUnfit(f"table {table.name!r} cannot be used with this key: {error}")
