"""Problems: every error of the HTTP API as `application/problem+json` (RFC 9457).

    400  no JSON, nested too deep, or a foreign Host         409  the state, or a taken key, does not allow it
    401  no token                                            413  the body has more than 1 MiB
    403  a token that only reads, or a foreign Origin        422  a value that cannot be used; `argument` names it
    404  there is no such thing, or no such path             500  a fault of everpoll's own; its log has the rest
    405  the path has other methods; `Allow` names them      503  the database cannot be reached, or is too slow
    408  the body did not arrive in time

Promises: whatever is raised becomes one of these. No message has a token in it, and that of a 500 has nothing of the
error: it may repeat what a handler, a driver or a remote wrote.
"""

import re
from http import HTTPStatus

import msgspec
from starlette.responses import Response

from everpoll.errors import (
    BadInput,
    EverpollError,
    KeyTaken,
    NotFound,
    NotRunning,
    SchemaOutdated,
    StoreUnavailable,
    WrongState,
)
from everpoll.http.stored_secrets import without_secrets

MEDIA = "application/problem+json"
RETRY_S = 1
DETAIL_LIMIT = 2_000
_PATH = re.compile(r"at `(?:key in )?\$\.?([^`]*)`")
_GIVEN = re.compile(r"(?:^|: )(\w+)=|argument:? '(\w+)'")
_MISSING = re.compile(r"required field `([^`]+)`|unknown field `([^`]+)`")


class ProblemDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The document of an error."""

    type: str
    title: str
    status: int
    detail: str
    argument: str | None = None
    """For 422: the name of the value that is not valid."""
    holder: int | None = None
    """For 409: the id of the task that has the key."""


class Problem(Exception):
    """An error answer. `members` are further fields of its document."""

    def __init__(
        self, status: int, detail: str, *, headers: dict[str, str] | None = None, **members: str | int | None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers or {}
        self.members = members


def bad_argument(name: str, detail: str) -> Problem:
    """Return the error answer for a value that is not valid."""
    return Problem(422, f"{name}: {detail}", argument=name)


def problem_of(error: Exception) -> Problem:
    """Return the error answer for an exception; 500 for an error of everpoll itself."""
    match error:
        case Problem():
            return error
        case msgspec.ValidationError():
            name = _argument(str(error))
            return Problem(422, str(error), argument=name)
        case KeyTaken():
            return Problem(409, str(error), holder=error.task.id)
        case WrongState():
            return Problem(409, str(error))
        case BadInput():
            return Problem(422, str(error), argument=_argument(str(error)))
        case NotFound():
            return Problem(404, str(error))
        case StoreUnavailable() | SchemaOutdated() | NotRunning():
            return Problem(503, str(error), headers={"Retry-After": str(RETRY_S)})
        case EverpollError():
            return Problem(422, str(error))
    return Problem(500, "everpoll could not answer; the log of the server has the reason")


def response_of(problem: Problem) -> Response:
    """Return the response of an error answer."""
    title = HTTPStatus(problem.status).phrase
    document = ProblemDocument(
        type="about:blank",
        title=title,
        status=problem.status,
        detail=str(without_secrets(problem.detail))[:DETAIL_LIMIT],
        **problem.members,  # type: ignore[arg-type]
    )
    return Response(msgspec.json.encode(document), problem.status, problem.headers, MEDIA)


def _argument(message: str) -> str | None:
    """Return the name of the value that a message is about, if it names one."""
    path, missing = _PATH.search(message), _MISSING.search(message)
    if path is None and missing is None and (given := _GIVEN.search(message)) is not None:
        return given[1] or given[2]
    parts = [path[1] if path is not None else "", next(filter(None, missing.groups()), "") if missing else ""]
    return ".".join(part for part in parts if part) or None
