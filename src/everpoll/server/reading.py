"""Reading requests: decodes parameters and bodies by the structs of their route, within limits."""

import asyncio
import re
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request

from everpoll.policy import unstorable
from everpoll.server.problems import Problem, bad_argument
from everpoll.server.route import Route

BODY_LIMIT = 2**20
DISCARDED_LIMIT = 16 * 2**20
"""How much of a body that is too large is read and dropped: a client sees no answer before it has sent the body."""
BODY_S = 30.0
"""How long a body may take to arrive."""
NESTING_LIMIT = 100
QUERY_LIMIT = 20_000
PARAMETERS_LIMIT = 50
# A text is one match, so brackets in it are not counted.
_OUTSIDE_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)


def query_of(request: Request, route: Route) -> Any:
    """Return the parameters of a route. A parameter without a value counts as absent."""
    text: bytes = request.scope.get("query_string", b"")
    if len(text) > QUERY_LIMIT:
        raise Problem(422, f"the query has {len(text):,} bytes: must have at most {QUERY_LIMIT:,}")
    try:
        pairs = parse_qsl(text.decode("latin-1"), errors="strict", max_num_fields=PARAMETERS_LIMIT)
    except ValueError:
        raise Problem(422, "the query cannot be read: write name=value, in UTF-8") from None
    given: dict[str, str] = {}
    for name, value in pairs:
        if name in given:
            raise bad_argument(name[:100], "is written twice")
        if (flaw := unstorable(value)) is not None:
            raise bad_argument(name[:100], f"has {flaw}")
        given[name] = value
    return _converted(given, route.query)


def _converted(given: dict[str, str], query: type[msgspec.Struct]) -> Any:
    known = {field.encode_name for field in msgspec.structs.fields(query)}
    if unknown := sorted(given.keys() - known):
        there = ", ".join(sorted(known)) or "none"
        raise bad_argument(unknown[0][:100], f"is not a parameter of this call; there are: {there}")
    return msgspec.convert(given, query, strict=False)


async def raw_body(request: Request) -> bytes:
    """Return the bytes of a body; 413 for more than BODY_LIMIT, 408 if it does not arrive within BODY_S."""
    try:
        async with asyncio.timeout(BODY_S):
            return await _received(request)
    except TimeoutError:
        raise Problem(408, f"the body did not arrive within {BODY_S:g} s", headers={"Connection": "close"}) from None


async def _received(request: Request) -> bytes:
    length = request.headers.get("content-length", "")
    is_too_large = length.isascii() and length.isdigit() and int(length[:18]) > BODY_LIMIT
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        is_too_large = is_too_large or size > BODY_LIMIT
        if not is_too_large:
            parts.append(part)
        elif size > DISCARDED_LIMIT:
            break
    if is_too_large:
        raise Problem(413, f"the body has more than {BODY_LIMIT:,} bytes", headers={"Connection": "close"})
    return b"".join(parts)


async def body_of(request: Request, route: Route) -> Any:
    """Return the body of a route; None if it is optional and missing."""
    text = await raw_body(request)
    if route.body is None:
        return None
    if not text.strip() and not route.needs_body:
        return None
    if _is_nested_deep(text):
        raise Problem(400, f"the body is nested deeper than {NESTING_LIMIT} levels")
    try:
        return msgspec.json.decode(text, type=route.body)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from None


def _is_nested_deep(text: bytes) -> bool:
    """Return True if JSON is nested deeper than NESTING_LIMIT; other texts may give either answer."""
    if text.count(b"[") + text.count(b"{") <= NESTING_LIMIT:
        return False
    depth = 0
    for piece in _OUTSIDE_TEXTS.finditer(text):
        found = piece[0]
        depth += 1 if found in b"[{" else -1 if found in b"]}" else 0
        if depth > NESTING_LIMIT:
            return True
    return False
