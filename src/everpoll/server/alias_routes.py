"""Aliases: the names by which services report a dependency, and its name here."""

from typing import Annotated

from msgspec import Meta, Struct

from everpoll.engine.actors import action
from everpoll.server.answers import Reply
from everpoll.server.problems import Problem, bad_argument
from everpoll.server.route import ApiCall
from everpoll.server.route_kinds import listing, order, removal
from everpoll.server.shapes import Page
from everpoll.stores.operations import LogEntry


class Alias(Struct, frozen=True, forbid_unknown_fields=True):
    """The name by which services report a dependency, and its name here."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    canonical: Annotated[str, Meta(min_length=1, max_length=200)]


class AliasPage(Page, frozen=True, kw_only=True):
    """Aliases, by name."""

    items: list[Alias]
    after: str | None


class AliasQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which alias."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]


async def list_aliases(call: ApiCall) -> AliasPage:
    """Answer `GET /api/aliases`."""
    known = await (await call.serving.store()).health.aliases()
    return AliasPage(items=[Alias(name, known[name]) for name in sorted(known)], after=None)


async def add_alias(call: ApiCall) -> Reply:
    """Answer `POST /api/aliases`."""
    new: Alias = call.body
    for name, value in (("name", new.name), ("canonical", new.canonical)):
        if not value.strip() or not value.isprintable():
            raise bad_argument(name, "must be printable text")
    entry = LogEntry("service", new.name, action("alias", call.by, f"it counts as {new.canonical}"))
    await (await call.serving.store()).health.set_alias(new.name, new.canonical, entry)
    return Reply(new, 201)


async def remove_alias(call: ApiCall) -> Reply:
    """Answer `DELETE /api/aliases`."""
    query: AliasQuery = call.query
    entry = LogEntry("service", query.name, action("remove alias", call.by))
    if not await (await call.serving.store()).health.delete_alias(query.name, entry):
        raise Problem(404, f"there is no alias {query.name!r}")
    return Reply(None, 204)


_ALIAS = {"name": "pg-main", "canonical": "PostgreSQL"}

ALIAS_ROUTES = [
    listing(
        path="/api/aliases",
        noun="services",
        summary="List the names by which services report dependencies, and their names here.",
        handler=list_aliases,
        answer=AliasPage,
        item=_ALIAS,
    ),
    order(
        path="/api/aliases",
        noun="services",
        summary="Let dependencies with one name count as another.",
        handler=add_alias,
        body=Alias,
        body_example=_ALIAS,
        answer=Alias,
        status=201,
        example=_ALIAS,
    ),
    removal(
        path="/api/aliases",
        noun="services",
        summary="Forget an alias.",
        handler=remove_alias,
        query=AliasQuery,
    ),
]
