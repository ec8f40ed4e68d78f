"""Push by Supabase Realtime: the Phoenix protocol over a WebSocket, which reconnects after every failure.

    connecting ──▶ joining ──reply and "Subscribed"──▶ listening
        ▲             │                                    │
        └── backoff ──┴────── broken, refused, silent ─────┘   a new connection wakes every listener

Promises: `has_push` is true only after Realtime has answered the join and confirmed the subscription to the changes of
the database. It sends a heartbeat every BEAT_S; if Realtime does not answer before the next one is due, the connection
counts as dead. The look after a new connection finds what was missed in between.
Never raises if Realtime is away; never gives up. A bare PostgREST server has no Realtime: its rows are polled.
"""

import asyncio
import itertools
import logging
import random
import secrets
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from everpoll.drivers.push import PushTask
from everpoll.drivers.repeated_warnings import RepeatedWarnings, event_loop_time
from everpoll.drivers.wake import OnWake
from everpoll.errors import EverpollError, StoreUnavailable
from everpoll.policy import Backoff, human
from everpoll.tables.contract import Finding
from everpoll.tables.mapping import Table
from everpoll.tables.supabase.address import proxy_for
from everpoll.tables.supabase.filters import encoded
from everpoll.tables.supabase.functions import schema_of
from everpoll.tables.supabase.http import Link

logger = logging.getLogger("everpoll.tables")

BEAT_S = 25.0
"""As in Supabase's own clients; the server hangs up after a minute of silence."""
JOIN_S = 10.0
"""The timeout of a join: the first subscription to a database takes some seconds."""
FIRST_S = 3.0
"""How long a starting worker waits for push; after that it polls, and push may come later."""
RETRY = Backoff("500ms", cap="30s", jitter=0.2)
MESSAGE_LIMIT = 4 * 1024 * 1024
"""The limit of a message, which carries the changed row; everpoll reads nothing of it."""


class Realtime(PushTask):
    """Wakes the listeners of this process; one connection serves all."""

    def __init__(self, link: Link, table: Table) -> None:
        super().__init__(self._listen, "everpoll-realtime")
        self._link = link
        self._table = table
        self._rng = random.Random()  # noqa: S311 - jitter needs no secret

    async def add(self, on_wake: OnWake, patience_s: float | None = FIRST_S) -> None:
        """Wake this listener, too; return once it is known whether Realtime answers, or after a moment."""
        if self._link.address.realtime is None:
            logger.info("table %s: a bare PostgREST server has no push: polling", self._table.name)
            return
        await super().add(on_wake, patience_s)

    async def inspect(self) -> Finding:
        """Subscribe once, and return whether Realtime confirmed it."""
        url = self._link.address.realtime
        if url is None:
            detail = "a bare PostgREST server has no push: rows are polled for"
            return Finding(what="push", is_fit=False, is_needed=False, detail=detail)
        try:
            async with aiohttp.ClientSession() as session, self._channel(session, url) as channel:
                await channel.join()
        except (EverpollError, aiohttp.ClientError, TimeoutError, OSError) as error:
            detail = f"Realtime does not tell of changes, so rows are polled for: {self._words(error)}"
            return Finding(what="push", is_fit=False, is_needed=False, detail=detail)
        return Finding(what="push", is_fit=True, detail="Realtime tells of inserts and changes")

    async def _listen(self) -> None:
        url = self._link.address.realtime
        assert url is not None, "without Realtime nothing is added"
        failures, warnings = 0, RepeatedWarnings(logger, f"table {self._table.name}: Realtime", event_loop_time)
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    async with self._channel(session, url) as channel:
                        await channel.join()
                        failures = 0
                        warnings.works()
                        self.confirm()
                        # The first time, too: it may have come later than the first look.
                        self.wake()
                        await channel.listen(self.wake)
                except Exception as error:  # noqa: BLE001 - whatever it is, the next connection may work
                    failures += 1
                    wait_s = RETRY.delay(failures, self._rng)
                    said = self._words(error)
                    what = "table %s: Realtime: %s; polling instead, next try in %s"
                    warnings.failed(error, what, self._table.name, said, human(wait_s))
                    self.fail()
                    await asyncio.sleep(wait_s)

    def _channel(self, session: aiohttp.ClientSession, url: str) -> "Channel":
        return Channel(self._link, session, url, self._table)

    def _words(self, error: Exception) -> str:
        said = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        if isinstance(error, aiohttp.WSServerHandshakeError):
            # Its own text quotes the address, and the address carries the key.
            said = f"the server answered {error.status} instead of opening a WebSocket"
        return self._link.key.masked(said)


class Channel:
    """One connection, joined to the changes of one table."""

    def __init__(self, link: Link, session: aiohttp.ClientSession, url: str, table: Table) -> None:
        self._link = link
        self._session = session
        self._url = url
        self._table = table
        self._topic = f"realtime:everpoll-{secrets.token_hex(4)}"
        self._refs = (str(number) for number in itertools.count(1))
        self._beat: str | None = None
        self._sent_token = ""
        self._socket: aiohttp.ClientWebSocketResponse | None = None

    async def __aenter__(self) -> "Channel":
        token = await self._link.key.current()
        query = encoded((("apikey", token), ("vsn", "1.0.0")))
        async with asyncio.timeout(JOIN_S):
            self._socket = await self._session.ws_connect(
                URL(f"{self._url}?{query}", encoded=True), max_msg_size=MESSAGE_LIMIT, proxy=proxy_for(self._url)
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._socket is not None:
            async with asyncio.timeout(1.0):
                await self._socket.close()

    async def join(self) -> None:
        """Subscribe to the table's changes; raise an error unless Realtime confirms it."""
        token = await self._link.key.current()
        where = {"schema": schema_of(self._table), "table": self._table.parts[-1]}
        wanted = where | {"filter": f"{self._table.status}=eq.{self._table.queued}"}
        config = {
            "broadcast": {"ack": False, "self": False},
            "presence": {"key": "", "enabled": False},
            "postgres_changes": [{"event": event, **wanted} for event in ("INSERT", "UPDATE")],
            "private": False,
        }
        ref = await self._send(self._topic, "phx_join", {"config": config, "access_token": token})
        is_joined = is_subscribed = False
        self._sent_token = token
        async with asyncio.timeout(JOIN_S):
            while not (is_joined and is_subscribed):
                message = await self._receive()
                try:
                    self._raise_if_over(message)
                except StoreUnavailable:
                    # Perhaps because of the token: the next try takes a fresh one, where one is to be had.
                    await self._link.key.renewed(token)
                    raise
                is_joined = is_joined or self._answers(message, ref)
                is_subscribed = is_subscribed or self._is_subscribed(message)

    async def listen(self, wake: Any) -> None:
        """Report every change until the connection breaks, which raises an error."""
        beat_at = asyncio.get_running_loop().time() + BEAT_S
        while True:
            try:
                async with asyncio.timeout_at(beat_at):
                    message = await self._receive()
            except TimeoutError:
                if self._beat is not None:
                    raise StoreUnavailable("it did not answer a heartbeat") from None
                await self._tell_token()
                self._beat = await self._send("phoenix", "heartbeat", {})
                beat_at = asyncio.get_running_loop().time() + BEAT_S
                continue
            if message.get("event") == "phx_reply" and message.get("ref") == self._beat:
                self._beat = None
            self._raise_if_over(message)
            if message.get("event") == "postgres_changes" and message.get("topic") == self._topic:
                wake()

    async def _tell_token(self) -> None:
        """Send a fresh token: the subscription ends with the token that it has."""
        token = await self._link.key.current()
        if token != self._sent_token:
            await self._send(self._topic, "access_token", {"access_token": token})
            self._sent_token = token

    async def _send(self, topic: str, event: str, payload: dict[str, Any]) -> str:
        assert self._socket is not None, "it is open inside of its block"
        ref = next(self._refs)
        message = {"topic": topic, "event": event, "payload": payload, "ref": ref}
        if topic == self._topic:
            message["join_ref"] = ref
        async with asyncio.timeout(JOIN_S):
            await self._socket.send_str(msgspec.json.encode(message).decode())
        return ref

    async def _receive(self) -> dict[str, Any]:
        assert self._socket is not None, "it is open inside of its block"
        received = await self._socket.receive()
        if received.type is not aiohttp.WSMsgType.TEXT:
            raise StoreUnavailable("the connection was closed")
        try:
            message = msgspec.json.decode(received.data)
        except msgspec.DecodeError:
            raise StoreUnavailable("it said something that is not JSON") from None
        return message if isinstance(message, dict) else {}

    def _raise_if_over(self, message: dict[str, Any]) -> None:
        if message.get("topic") != self._topic:
            return
        payload = message.get("payload") or {}
        event, status = message.get("event"), payload.get("status")
        if event in {"phx_error", "phx_close"} or (event in {"phx_reply", "system"} and status == "error"):
            said = payload.get("message") or payload.get("response") or event
            raise StoreUnavailable(f"the subscription was refused or ended: {str(said)[:300]}")

    def _answers(self, message: dict[str, Any], ref: str) -> bool:
        payload = message.get("payload") or {}
        return message.get("event") == "phx_reply" and message.get("ref") == ref and payload.get("status") == "ok"

    def _is_subscribed(self, message: dict[str, Any]) -> bool:
        payload = message.get("payload") or {}
        is_about_changes = message.get("event") == "system" and payload.get("extension") == "postgres_changes"
        return is_about_changes and payload.get("status") == "ok"
