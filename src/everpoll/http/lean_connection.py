"""One connection of the lean exchange: an asyncio protocol that reads answers with httptools.

    connected ──ask──▶ asking ──answer, kept──▶ idle ──ask──▶ asking …
                         └──time over, too large, not HTTP, lost, canceled──▶ closed

Promises: one answer at a time, within its deadline and its limits. A connection that failed in any way, or on which
bytes came without a request, is closed and never used again.
"""

import asyncio
import ssl
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from everpoll.http.certificates import expiry_of
from everpoll.http.contract import NotReached
from everpoll.http.exchange import MAX_FIELDS, MAX_HEAD_BYTES
from everpoll.http.headers import Headers
from everpoll.http.unpacking import Body

_WITHOUT_BODY = frozenset({204, 304})
_AT_LEAST = 100
"""The lowest valid status."""


class NeedsFullExchange(Exception):
    """Only the full exchange can read this answer, if at all."""


class HeadTooLarge(Exception):
    """The headers are too large, or too many."""


class ConnectionEnded(Exception):
    """The connection ended before the answer did."""

    def __init__(self, cause: Exception | None, received: int | None, is_stale: bool) -> None:
        super().__init__()
        self.cause = cause
        self.received = received
        """How many bytes of the body came; None if no answer began."""
        self.is_stale = is_stale
        """True: a reused connection was lost before the first byte, because the other side had closed it."""


class LeanConnection(asyncio.Protocol):
    """One connection, used for one request after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop, use_until: float) -> None:
        self._loop = loop
        self.use_until = use_until
        self.address = ""
        self.certificate_expires_at: float | None = None
        self.is_open = False
        self.pool_key: object = None
        self._transport: asyncio.Transport | None = None
        self._parser: HttpResponseParser | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._answers = 0
        self._shown_url, self._limit, self._deadline, self._is_head = "", 0, 0.0, False
        self._begin()

    def _begin(self) -> None:
        """Forget the last answer."""
        self.status = 0
        self.headers = Headers()
        self.is_kept = False
        self.body: Body | None = None
        self._head_bytes = 0
        self._head_fields = 0
        self._unread_bytes = 0
        self._has_bytes = False
        self._ends_with_connection = False
        self._is_complete = False
        self._failure: Exception | None = None

    def ask(self, wire: bytes, shown_url: str, *, is_head: bool, limit: int, deadline: float) -> asyncio.Future[None]:
        """Send a request; the future is done once `status`, `headers` and `body` have its answer."""
        assert self._waiter is None, "one request at a time"
        self._begin()
        self._shown_url, self._is_head, self._limit, self._deadline = shown_url, is_head, limit, deadline
        if self._parser is None:
            self._parser = HttpResponseParser(self)
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiter = waiter
        # One timer for many requests: when it fires, it checks the current deadline. A timer for each request would
        # cost a tenth of the whole look.
        if self._timer is None or self._timer.when() > deadline:
            self._set_timer()
        if self._transport is None or not self.is_open:
            self._fail(ConnectionEnded(None, None, is_stale=self._answers > 0))
        else:
            self._transport.write(wire)
        return waiter

    def abort(self) -> None:
        """Close at once. Repeatable."""
        self.is_open = False
        self._waiter = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if self._loop.time() >= self._deadline:
            self._fail(TimeoutError())
        else:
            self._set_timer()

    @property
    def received(self) -> int | None:
        """How many bytes of the body have come; None: no answer has begun."""
        return None if self.body is None else self.body.received

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note that the connection is open and its handshake done."""
        self._transport, self.is_open = cast("asyncio.Transport", transport), True
        self.address = str((transport.get_extra_info("peername") or ("",))[0])
        self.certificate_expires_at = expiry_of(transport.get_extra_info("ssl_object"))

    def data_received(self, data: bytes) -> None:
        """Pass received bytes to the parser."""
        if self._waiter is None or self._parser is None:
            # No request is running: these bytes would be taken for the next answer.
            self.abort()
            return
        self._has_bytes = True
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            # After a complete answer, only the connection cannot be used again.
            self.is_kept = False
            if not self._is_complete and self._failure is None:
                self._failure = NeedsFullExchange()
        if self._failure is not None:
            self._fail(self._failure)
        elif self._is_complete:
            self._finish()
        elif self.body is None:
            # This also bounds a header that does not end, which the parser has not reported yet.
            self._unread_bytes += len(data)
            if self._unread_bytes > MAX_HEAD_BYTES:
                self._fail(HeadTooLarge())

    def eof_received(self) -> None:
        """Note that the other side has closed. asyncio closes this side, because None is returned."""
        self.is_open = False

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection has ended, whichever side closed it."""
        self.is_open = False
        self._transport = None
        if self._waiter is None:
            return
        if self.body is not None and self._ends_with_connection and exc is None:
            self.is_kept = False
            self._finish()
            return
        is_stale = self._answers > 0 and not self._has_bytes and not isinstance(exc, ssl.SSLError)
        self._fail(ConnectionEnded(exc, self.received, is_stale))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Read one header of the answer, or of the trailer after a chunked body."""
        if self.body is not None:
            return
        self._head_bytes += len(name) + len(value)
        self._head_fields += 1
        if self._head_bytes > MAX_HEAD_BYTES or self._head_fields > MAX_FIELDS:
            self._failure = HeadTooLarge()
        else:
            self.headers.add(name.decode("latin-1").lower(), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        """Decide how the body is read."""
        if self.body is not None or self._parser is None:
            return
        status = self.status = self._parser.get_status_code()
        if status < 200:
            if status == 101 or status < _AT_LEAST:
                self._failure = NeedsFullExchange()
            return
        coding = self.headers.at("transfer-encoding")
        if coding is not None and coding.lower() != "chunked":
            self._failure = NeedsFullExchange()
            return
        self.is_kept = self._parser.should_keep_alive()
        has_body = not self._is_head and status not in _WITHOUT_BODY
        self.body = Body(
            self._shown_url, status, self.headers.at("content-encoding", "") if has_body else "", self._limit
        )
        length = self.headers.at("content-length")
        self._ends_with_connection = has_body and coding is None and length is None
        if self._is_head:
            self._is_complete = True
        elif has_body and length is not None:
            self._expect(length)

    def on_body(self, data: bytes) -> None:
        """Read a part of the body."""
        if self._is_complete or self._failure is not None or self.body is None:
            self.is_kept = False
            return
        try:
            is_wanted = self.body.add(data)
        except NotReached as error:
            self._failure = error
        else:
            if not is_wanted:
                self.is_kept = False
                self._is_complete = True

    def on_message_complete(self) -> None:
        """End the answer, or an early hint before it."""
        if self.body is None:
            self.headers = Headers()
        else:
            self._is_complete = True

    def _expect(self, length: str) -> None:
        """Stop reading a body that announces itself as too large."""
        assert self.body is not None
        try:
            self.body.expect(int(length))
        except NotReached as error:
            self._failure = error
        except ValueError:
            self._failure = NeedsFullExchange()

    def _finish(self) -> None:
        waiter, self._waiter = self._waiter, None
        self._answers += 1
        if self._is_head or not self.is_kept:
            # After a HEAD the parser waits for the body that its headers announce.
            self._parser = None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        waiter = self._waiter
        self.abort()
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)
