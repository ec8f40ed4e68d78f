"""The kinds of calls that come again and again: a list, a detail, an order of an operator, a removal."""

from typing import Any, TypedDict, Unpack

from msgspec import Struct

from everpoll.server.route import LIMIT_S, Handler, NoQuery, Route


class Named(TypedDict):
    """What every call has."""

    path: str
    noun: str
    summary: str
    handler: Handler


class Ordered(Named, total=False):
    """What an order may have, beside that."""

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
    """Return a call that lists: `item` is the example of one."""
    example = {"items": [item], "after": None}
    return Route(method="GET", query=query, answer=answer, example=example, problems=problems, limit_s=limit_s, **named)


def detail(answer: Any, example: Any, query: type[Struct] = NoQuery, **named: Unpack[Named]) -> Route:
    """Return a call that shows one thing; 404 where there is none."""
    return Route(method="GET", answer=answer, example=example, query=query, problems=(404,), **named)


def order(**given: Unpack[Ordered]) -> Route:
    """Return a call that changes something."""
    return Route(method="POST", access="write", **given)


def removal(query: type[Struct] = NoQuery, **named: Unpack[Named]) -> Route:
    """Return a call that removes one thing; 404 where there is none."""
    return Route(method="DELETE", query=query, status=204, problems=(404,), access="write", **named)
