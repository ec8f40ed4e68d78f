"""A route: one call of the HTTP API, declared as data. Router, OpenAPI document and reference are made from it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import Struct
from starlette.requests import Request

from everpoll.server.access import Role
from everpoll.server.serving import Serving

Access = Literal["public", "read", "write"]
Method = Literal["GET", "POST", "PATCH", "DELETE"]
LIMIT_S = 2.0
"""How long a call may use the database."""


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A call without parameters."""


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One checked request, for a handler."""

    serving: Serving
    request: Request
    params: dict[str, str]
    """The parameters in the path, decoded."""
    query: Any
    """The route's `query`, read from the URL."""
    body: Any
    """The route's `body`, read from the request; None if there was none."""
    by: str
    """The actor, for the log."""
    role: Role | None
    """The role of the caller; None: it has none, and the call is public."""


Handler = Callable[[ApiCall], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One call."""

    method: Method
    path: str
    """`{id}` stands for one segment, in which `/` is written as %2F."""
    noun: str
    summary: str
    handler: Handler
    query: type[Struct] = NoQuery
    body: type[Struct] | None = None
    needs_body: bool = True
    answer: Any = None
    """The type of the JSON answer; None: no content."""
    status: int = 200
    also: tuple[int, ...] = ()
    """Other statuses of success with the same answer; 204 has no answer."""
    problems: tuple[int, ...] = ()
    """Statuses of further problems, in addition to those of every call."""
    example: Any = None
    body_example: Any = None
    access: Access = "read"
    media: str = "application/json"
    limit_s: float | None = LIMIT_S

    @property
    def parameters(self) -> list[str]:
        """The names in the path."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]


Matched = tuple[Route, dict[str, str]]


class Router:
    """Finds the route of a path."""

    def __init__(self, routes: list[Route]) -> None:
        self._by_shape: dict[int, list[tuple[list[str], Route]]] = {}
        for route in routes:
            parts = route.path.split("/")[1:]
            self._by_shape.setdefault(len(parts), []).append((parts, route))

    def find(self, method: str, segments: list[str]) -> tuple[Matched | None, list[str]]:
        """Return the route with its parameters, and the methods that the path has."""
        methods: list[str] = []
        found: Matched | None = None
        for parts, route in self._by_shape.get(len(segments), ()):
            params = _matched(parts, segments)
            if params is None:
                continue
            methods.append(route.method)
            if found is None and (route.method == method or (method == "HEAD" and route.method == "GET")):
                found = route, params
        return found, methods


def _matched(parts: list[str], segments: list[str]) -> dict[str, str] | None:
    params: dict[str, str] = {}
    for part, segment in zip(parts, segments, strict=True):
        if part.startswith("{"):
            if not segment:
                return None
            params[part[1:-1]] = segment
        elif part != segment:
            return None
    return params
