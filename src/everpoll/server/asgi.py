"""The ASGI app: from a request to its answer.

    request ──Host──▶ route ──token──▶ Origin ──▶ parameters, body ──▶ handler ──▶ JSON, a stream, or a problem

Promises: it needs no lifespan: the first request starts all parts. Every answer has the same headers for
safety, and every error is a problem document. A call that asks the database for longer than its limit is given up.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from everpoll.server.access import Access, Role, address_of
from everpoll.server.answers import Reply, json_response
from everpoll.server.dashboard_files import dashboard_file
from everpoll.server.login import log_in, log_out, logged_in_page, login_page, requested_page, wants_page
from everpoll.server.mounts import segments_of
from everpoll.server.plain_pages import ICON, STYLESHEET, stylesheet
from everpoll.server.problems import RETRY_S, Problem, problem_of, response_of
from everpoll.server.public_status import PublicStatus, public_names
from everpoll.server.reading import body_of, query_of, raw_body
from everpoll.server.route import ApiCall, Route, Router
from everpoll.server.route_table import ROUTES
from everpoll.server.served import ServedApp
from everpoll.server.serving import Serving
from everpoll.server.streams import EventStream

logger = logging.getLogger("everpoll.server")

SAFETY = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
ROUTE = "everpoll.route"
CLOCK = "Everpoll-Time"
"""The server's clock when it answered, in seconds since the epoch: countdowns of screens follow it."""
ACCESS = "Everpoll-Access"
"""The role of the caller, "read" or "write": a screen hides actions that are not allowed."""
SESSION = "Everpoll-Session"
"""Sent to callers that have logged in: a screen offers to log out."""
ASGI = Callable[[Scope, Receive, Send], Awaitable[None]]


class HttpApp:
    """The HTTP API of one app."""

    def __init__(
        self,
        app: ServedApp,
        access: Access,
        prefix: str = "",
        *,
        watches_signals: bool = True,
        is_alone: bool = False,
    ) -> None:
        self._app = app
        self._access = access
        self._prefix = prefix
        self._watches_signals = watches_signals
        self._is_alone = is_alone
        self._router = Router(ROUTES)
        self._public_status = PublicStatus(app, public_names())
        self._serving: Serving | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of the ASGI server."""
        match scope["type"]:
            case "http":
                request = Request(scope, receive)
                answer = await self._answer(request)
                if answer is not None:
                    await answer(scope, receive, send)
            case "websocket":
                await send({"type": "websocket.close", "code": 1008})
            case "lifespan":
                await self._live(receive, send)

    def serving(self) -> Serving:
        """Return the parts that the requests of this event loop share."""
        if self._serving is None or self._serving.event_loop is not asyncio.get_running_loop():
            self._serving = Serving(self._app, watches_signals=self._watches_signals, is_alone=self._is_alone)
        return self._serving

    async def begin(self) -> None:
        """Start asking the database before the first request: everpoll's own server calls this at its start."""
        serving = self.serving()
        if serving.needs_store:
            serving.prober.start()

    def close(self) -> None:
        """End open streams within a second, and stop all other parts; a later request starts them again."""
        serving, self._serving = self._serving, None
        if serving is not None and not serving.event_loop.is_closed():
            serving.close()

    def end_streams(self) -> None:
        """End open streams, and those that begin from now on; other requests are answered as before."""
        if self._serving is not None:
            self._serving.end_streams()

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                self.close()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    async def _answer(self, request: Request) -> "ASGI | None":
        try:
            answer = await self._routed(request)
        except ClientDisconnect:
            return None
        except Exception as error:
            problem = problem_of(error)
            if problem.status == 500:
                # Log the route and not the path, which may contain the token of a heartbeat, or a line break.
                logger.error("%s %s failed", request.method, request.scope.get(ROUTE, "?"), exc_info=error)
            answer = response_of(problem)
        _add_headers(answer)
        return answer

    async def _routed(self, request: Request) -> "Response | EventStream":
        self._access.check_host(request)
        segments = segments_of(request.scope, self._prefix)
        if segments is not None and (public := await self._public(request, segments)) is not None:
            return public
        found, methods = (None, []) if segments is None else self._router.find(request.method, segments)
        role = self._access.role_of(request, time.time())
        if found is None or found[0].access != "public":
            if segments is not None and segments in (["login"], ["logout"]):
                return await self._log_in_or_out(request, segments[0], role)
            if role is None:
                return self._refused(request, segments)
        self._access.check_origin(request)
        if found is None:
            return self._unrouted(request, segments, methods)
        route, params = found
        request.scope[ROUTE] = route.path
        self._check_role(route, role)
        answer = await self._handled(request, route, params, role)
        if role is not None:
            _set_header(answer, ACCESS, role)
            if self._access.is_logged_in(request):
                _set_header(answer, SESSION, "cookie")
        return answer

    async def _public(self, request: Request, segments: list[str]) -> Response | None:
        """Answer paths that need no token: style and icon of plain pages, and the public status page."""
        if request.method in {"GET", "HEAD"}:
            if segments == [STYLESHEET]:
                return stylesheet()
            if segments == [ICON] and (icon := dashboard_file(request, segments)) is not None:
                return icon
        return await self._public_status.answer(request, segments)

    async def _handled(
        self, request: Request, route: Route, params: dict[str, str], role: Role | None
    ) -> "Response | EventStream":
        if any("\0" in value for value in params.values()):
            raise Problem(404, "there is nothing of that name")
        call = ApiCall(
            serving=self.serving(),
            request=request,
            params=params,
            query=query_of(request, route),
            body=await body_of(request, route) if request.method not in {"GET", "HEAD"} else None,
            by=_actor(request),
            role=role,
        )
        limit = asyncio.timeout(route.limit_s)
        try:
            async with limit:
                value = await route.handler(call)
        except TimeoutError as error:
            if not limit.expired():
                raise Problem(504, str(error)) from None
            retry = {"Retry-After": str(RETRY_S)}
            raise Problem(503, f"the database took longer than {route.limit_s} s", headers=retry) from None
        if isinstance(value, Response | EventStream):
            return value
        return json_response(request, value if isinstance(value, Reply) else Reply(value, route.status))

    def _refused(self, request: Request, segments: list[str] | None) -> Response:
        if wants_page(request):
            return login_page(request, back=requested_page(request, segments or [""]))
        raise Problem(
            401, "this call needs a token: send it as Authorization: Bearer …", headers={"WWW-Authenticate": "Bearer"}
        )

    def _check_role(self, route: Route, role: Role | None) -> None:
        if route.access == "write" and role != "write":
            raise Problem(403, "this token only reads" if not self._access.read_only else "this server only reads")

    async def _log_in_or_out(self, request: Request, step: str, role: Role | None) -> Response:
        self._access.check_origin(request)
        if request.method != "POST":
            if request.method not in {"GET", "HEAD"}:
                raise Problem(405, "write GET or POST", headers={"Allow": "GET, POST"})
            return login_page(request) if role is None else logged_in_page(request)
        body = await raw_body(request)
        return log_in(request, self._access, body, time.time()) if step == "login" else log_out(request)

    def _unrouted(self, request: Request, segments: list[str] | None, methods: list[str]) -> Response:
        if methods:
            allowed = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))
            raise Problem(405, f"this path has {allowed}", headers={"Allow": allowed})
        page = None if segments is None else dashboard_file(request, segments)
        if page is None:
            raise Problem(404, "there is no such path; GET /openapi.json lists all")
        return page


def _actor(request: Request) -> str:
    """Return the actor for the log, which is the caller's address; a proxy may pass on any other text."""
    address = None if request.client is None else address_of(request.client.host)
    return "HTTP" if address is None else f"HTTP from {address}"


def _add_headers(answer: Any) -> None:
    for name, value in {**SAFETY, CLOCK: f"{time.time():.3f}"}.items():
        _set_header(answer, name, value)


def _set_header(answer: Any, name: str, value: str) -> None:
    if isinstance(answer, EventStream):
        answer.headers.append((name.lower().encode(), value.encode()))
    else:
        answer.headers.setdefault(name, value)
