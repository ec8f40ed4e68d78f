"""The table as PostgREST describes it: its columns, their types, which are required.

PostgREST describes its tables in an OpenAPI document. Where a server does not give it, columns are asked for one by
one, and types stay unknown.
"""

import asyncio
from typing import Any

from everpoll.drivers.postgrest import faults
from everpoll.drivers.postgrest.http import Http, Request
from everpoll.tables.mapping import Table
from everpoll.tables.shape import INSTANT, NUMBER, TEXT, Column, Shape
from everpoll.tables.supabase.statements import Statements

TEXT_TYPES = ("text", "character varying", "character", "citext", "varchar")
NUMBER_TYPES = ("smallint", "integer", "bigint", "numeric")
NO_STATUS = (*NUMBER_TYPES, "timestamp", "boolean", "uuid", "json")


class Unusable(Exception):
    """There is no such table, or it cannot be used with this key."""

    def __init__(self, error: faults.Refused) -> None:
        self.is_absent = error.code in {"42P01", "PGRST205"}
        absent, forbidden = "there is no such table, or not served by this address", "it cannot be used with this key"
        super().__init__(f"{absent if self.is_absent else forbidden}: {error}")


async def read_shape(http: Http, statements: Statements) -> Shape[Column]:
    """Look at the table; raise `Unusable` where that is refused."""
    table = statements.table
    names = list(dict.fromkeys(table.used.values()))
    try:
        await http.rows(statements.get(names, (), limit=0))
    except faults.Refused as error:
        if error.code != "42703":
            raise Unusable(error) from None
    described = await _described(http, statements)
    if described is not None:
        return described
    there = await asyncio.gather(*(_is_there(http, statements, name) for name in names))
    seen = [name for name, is_there in zip(names, there, strict=True) if is_there]
    return Shape(columns={name: Column(name=name, declared="unknown type") for name in seen})


async def _described(http: Http, statements: Statements) -> Shape[Column] | None:
    """Read the table from the OpenAPI document; None: the server does not publish it, or it lacks the table."""
    headers = statements.get([], ()).headers
    try:
        document: Any = await http.answer(Request(method="GET", path="/", headers=headers))
    except faults.Refused:
        return None
    try:
        found = document["definitions"][statements.table.parts[-1]]
        required = frozenset(found.get("required", ()))
        columns = {str(name): _column(str(name), one, name in required) for name, one in found["properties"].items()}
        status = found["properties"].get(statements.table.status, {})
        return Shape(columns=columns, flaws=_flaws(statements.table, status))
    except (KeyError, TypeError, AttributeError):
        return None


def _column(name: str, found: Any, is_required: bool) -> Column:
    kind = str(found.get("format", "")).lower()
    begins = {TEXT: TEXT_TYPES, INSTANT: ("timestamp",), NUMBER: NUMBER_TYPES}
    holds = frozenset(what for what, types in begins.items() if kind.startswith(types))
    return Column(name=name, declared=kind or "unknown type", holds=holds if kind else None, is_required=is_required)


def _flaws(table: Table, status: Any) -> dict[str, str]:
    """Return why the status column cannot hold words of the mapping, by word."""
    kind, words = str(status.get("format", "")).lower(), status.get("enum", ())
    missing = [word for word in table.words if words and word not in words]
    if missing:
        return {"status": f"is {kind}, and cannot hold {', '.join(map(repr, missing))}"}
    return {"status": f"is {kind}, and must be {TEXT}"} if kind.startswith(NO_STATUS) else {}


async def _is_there(http: Http, statements: Statements, name: str) -> bool:
    try:
        await http.rows(statements.get([name], (), limit=0))
    except faults.Refused as error:
        if error.code == "42703":
            return False
        raise
    return True
