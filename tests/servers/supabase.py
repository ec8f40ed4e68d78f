"""What stands in front of a Supabase project: one address for its tables and its Realtime.

`/rest/v1/…` goes to a real PostgREST. `/realtime/v1/websocket` is a stub: no Realtime server is to be had outside of
Supabase, so this one speaks as much of its protocol as a client of database changes meets (Phoenix messages: join,
reply, system, postgres_changes, heartbeat), and does on demand what real ones do at the worst moment. Supabase's own
Python client, `realtime` 2.34, was seen to join it, to be confirmed, and to hear of an insert.
Faults can be put in the way of the tables, too: answers that are lost, held back or made up.
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import Callable
from typing import Any, Self

from aiohttp import ClientSession, DummyCookieJar, WSMsgType, web
from yarl import URL

HOP = ("Connection", "Keep-Alive", "Transfer-Encoding", "Content-Length", "Content-Encoding", "Host")
Fault = Callable[[web.Request], web.StreamResponse | None]
"""What to answer instead; None: let it through."""


class Gateway:
    """`async with Gateway(postgrest.url) as gateway: SupabaseTable(gateway.url, …)`."""

    def __init__(self, rest_url: str) -> None:
        self._rest_url = rest_url
        self.url = ""
        self.address = ""
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        """Method, path with query, headers, of every request for tables."""
        self.fault: Fault | None = None
        self.loses_answers: Callable[[web.Request], bool] = lambda _: False
        """The request is carried out, and its answer never comes."""
        self.breaks_answers: Callable[[web.Request], bool] = lambda _: False
        """The request is carried out, and answered as by a server whose own connection breaks before the commit is
        confirmed: 400, with an empty code and message."""
        self.holds_answers: Callable[[web.Request], bool] = lambda _: False
        """The request is carried out, and its answer waits until its client is gone."""
        self.held = asyncio.Event()
        self.realtime = RealtimeStub()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_get("/realtime/v1/websocket", self.realtime.serve)
        app.router.add_route("*", "/rest/v1{rest:.*}", self._forward)
        self._session = ClientSession(cookie_jar=DummyCookieJar(), auto_decompress=False)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)  # it would show the keys
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.address = f"http://127.0.0.1:{port}"
        self.url = f"{self.address}/rest/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.realtime.drop()
        await self._session.close()
        await self._runner.cleanup()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        path = request.raw_path.removeprefix("/rest/v1") or "/"
        self.asked.append((request.method, path, dict(request.headers)))
        if self.fault is not None and (answer := self.fault(request)) is not None:
            return answer
        headers = {name: value for name, value in request.headers.items() if name not in HOP}
        async with self._session.request(
            request.method, URL(self._rest_url + path, encoded=True), data=await request.read(), headers=headers
        ) as answered:
            body = await answered.read()
            if self.holds_answers(request):
                self.held.set()
                while request.transport is not None:  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.01)
            if self.loses_answers(request):
                assert request.transport is not None, "its client waits"
                request.transport.abort()
            if self.breaks_answers(request):
                return web.json_response({"code": "", "message": "", "details": None, "hint": None}, status=400)
            kept = {name: value for name, value in answered.headers.items() if name not in HOP}
            return web.Response(status=answered.status, body=body, headers=kept)


class RealtimeStub:
    """The side of Supabase Realtime that a client of database changes sees."""

    def __init__(self) -> None:
        self.sockets: dict[web.WebSocketResponse, tuple[str, list[int]]] = {}
        """Those that have joined, each with its topic and the numbers of its subscriptions to inserts."""
        self.joins: list[dict[str, Any]] = []
        """What was asked for."""
        self.keys: list[str] = []
        self.beats = 0
        self.joined = asyncio.Event()
        self.refuses: str | None = None
        """Why a join is refused."""
        self.confirms = True
        """Whether the subscription to the database follows the join."""
        self.answers_beats = True
        self._ids = itertools.count(1)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """One connection."""
        self.keys.append(request.query.get("apikey", ""))
        if self.refuses == "handshake":
            return web.Response(status=403, text="no")
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    await self._heard(socket, json.loads(message.data))
        finally:
            self.sockets.pop(socket, None)
        return socket

    async def insert(self) -> None:
        """A row was inserted: every client that joined is told."""
        data: dict[str, Any] = {"type": "INSERT", "schema": "public", "table": "jobs", "errors": None}
        data |= {"commit_timestamp": "2030-01-01T00:00:00Z", "columns": [{"name": "id", "type": "int8"}]}
        for socket, (topic, ids) in list(self.sockets.items()):
            await self._say(socket, topic, "postgres_changes", {"ids": ids, "data": data | {"record": {"id": 1}}})

    async def close_channels(self) -> None:
        """The server ends the subscription, and keeps the connection."""
        for socket, (topic, _) in list(self.sockets.items()):
            await self._say(socket, topic, "phx_error", {})

    async def drop(self) -> None:
        """Every connection breaks."""
        self.joined.clear()
        for socket in list(self.sockets):
            with contextlib.suppress(ConnectionError):
                await socket.close()

    async def _heard(self, socket: web.WebSocketResponse, message: dict[str, Any]) -> None:
        topic, event, ref = message["topic"], message["event"], message["ref"]
        if event == "heartbeat" and topic == "phoenix":
            self.beats += 1
            if self.answers_beats:
                await self._say(socket, "phoenix", "phx_reply", {"status": "ok", "response": {}}, ref)
        if event == "phx_join":
            await self._join(socket, topic, message["payload"], ref)

    async def _join(self, socket: web.WebSocketResponse, topic: str, payload: dict[str, Any], ref: str) -> None:
        self.joins.append(payload)
        if self.refuses is not None:
            answer = {"status": "error", "response": {"reason": self.refuses}}
            await self._say(socket, topic, "phx_reply", answer, ref)
            return
        wanted = payload["config"]["postgres_changes"]
        changes = [{"id": next(self._ids), **one} for one in wanted]
        await self._say(socket, topic, "phx_reply", {"status": "ok", "response": {"postgres_changes": changes}}, ref)
        if self.confirms:
            reported = {"extension": "postgres_changes", "channel": topic, "status": "ok"}
            await self._say(socket, topic, "system", reported | {"message": "Subscribed to PostgreSQL"})
            self.sockets[socket] = (topic, [one["id"] for one in changes if one["event"] == "INSERT"])
            self.joined.set()

    async def _say(
        self, socket: web.WebSocketResponse, topic: str, event: str, payload: dict[str, Any], ref: str | None = None
    ) -> None:
        await socket.send_str(json.dumps({"topic": topic, "event": event, "payload": payload, "ref": ref}))
