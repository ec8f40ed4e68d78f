"""Supabase Realtime: the Phoenix protocol over a WebSocket, which tells of the changes of one table.

    connecting ──▶ joining ──reply and "Subscribed"──▶ listening ──broken, refused, silent──▶ an error

Promises: `join` returns only after Realtime has answered the join and confirmed the subscription to the changes of the
database. It sends a heartbeat every BEAT_S; if Realtime does not answer before the next one is due, the connection
counts as dead.
"""

import asyncio
import itertools
import secrets
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from everpoll.drivers.postgrest.address import proxy_for
from everpoll.drivers.postgrest.filters import encoded
from everpoll.drivers.postgrest.http import Link
from everpoll.errors import StoreUnavailable

BEAT_S = 25.0
"""As in Supabase's own clients; the server hangs up after a minute of silence."""
JOIN_S = 10.0
"""The timeout of a join: the first subscription to a database takes some seconds."""
MESSAGE_LIMIT = 4 * 1024 * 1024
"""The limit of a message, which carries the changed row; everpoll reads nothing of it."""


class Channel:
    """One connection, joined to the changes of one table. `where`: its schema, its name, and a filter of rows."""

    def __init__(self, link: Link, session: aiohttp.ClientSession, url: str, where: Mapping[str, str]) -> None:
        self._link = link
        self._session = session
        self._url = url
        self._where = where
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
        config = {
            "broadcast": {"ack": False, "self": False},
            "presence": {"key": "", "enabled": False},
            "postgres_changes": [{"event": event, **self._where} for event in ("INSERT", "UPDATE")],
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
