"""Makes routes of the usual kinds: a list, a detail, an action of an operator, a removal."""

from typing import Any, TypedDict, Unpack

from msgspec import Struct

from everpoll.server.route import LIMIT_S, Handler, NoQuery, Route


class Named(TypedDict):
    """The fields of every route."""

    path: str
    noun: str
    summary: str
    handler: Handler


class Ordered(Named, total=False):
    """The further fields of an action."""

    body: type[Struct]
    needs_body: bool
    body_example: Any
    answer: Any
    status: int
    also: tuple[int, ...]
    example: Any
    problems: tuple[int, ...]
    limit_s: float | None


def listing(
    item: Any,
    answer: type[Struct],
    query: type[Struct] = NoQuery,
    problems: tuple[int, ...] = (),
    limit_s: float | None = LIMIT_S,
    **named: Unpack[Named],
) -> Route:
    """Return a route that lists things; `item` is an example of one."""
    example = {"items": [item], "after": None}
    return Route(method="GET", query=query, answer=answer, example=example, problems=problems, limit_s=limit_s, **named)


def detail(answer: Any, example: Any, query: type[Struct] = NoQuery, **named: Unpack[Named]) -> Route:
    """Return a route that shows one thing; 404 if there is none."""
    return Route(method="GET", answer=answer, example=example, query=query, problems=(404,), **named)


def order(**given: Unpack[Ordered]) -> Route:
    """Return a route that changes something."""
    return Route(method="POST", access="write", **given)


def removal(query: type[Struct] = NoQuery, **named: Unpack[Named]) -> Route:
    """Return a route that removes one thing; 404 if there is none."""
    return Route(method="DELETE", query=query, status=204, problems=(404,), access="write", **named)
