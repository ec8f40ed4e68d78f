"""One request of `ThreadFetch`, in its thread: connect, ask, read, each within one deadline.

    resolve → connect to one address after the other → TLS → send → read

Promises: the time is that of the whole exchange, however many addresses a host has; whoever gave up is noticed between
two addresses and woken out of a connect, a handshake or a read; nothing is sent after that. A name is resolved once,
and connected to is what was checked.
"""

import contextlib
import http.client
import socket
import ssl
import string
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from everpoll.watches.adapters.addresses import Refused, shown
from everpoll.watches.adapters.inner_addresses import Address, Leader, addresses_of, is_inner, names_address
from everpoll.watches.adapters.response import Response

# Not the caller's to say: nothing here unpacks an answer, or keeps a connection.
_OWN_HEADERS = {"accept-encoding": "identity", "connection": "close"}


@dataclass(slots=True, repr=False)
class Exchange:
    """`abort` may come at any moment, from the event loop's thread. Not shown: it has secrets."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None
    max_bytes: int
    leader: Leader | None = None
    """What led to the URL; None where the user named it. A leader outside leads to nothing inside."""
    is_aborted: bool = False
    sock: socket.socket | None = field(default=None)
    peer: str = ""
    _deadline: float = 0.0

    def run(self, timeout_s: float, tls: Callable[[], ssl.SSLContext], began: Callable[[], None]) -> Response:
        """The answer. The time counts from here: waiting for a thread is not the other side's doing."""
        self._deadline = time.monotonic() + timeout_s
        try:
            began()
            return self._answer(self._connected(tls))
        except http.client.HTTPException as error:
            raise ConnectionError(f"{shown(self.url)} broke off, or speaks no HTTP: {type(error).__name__}") from None
        except OSError:
            # Before ValueError: a certificate that is not trusted is both.
            raise
        except (ValueError, AttributeError) as error:
            # What http.client says when its socket is closed under its hands.
            self._go_on()
            raise ConnectionError(f"{shown(self.url)} cannot be asked: {type(error).__name__}") from None
        finally:
            if self.sock is not None:
                self.sock.close()

    def abort(self) -> None:
        """Wake the thread out of whatever it waits for; after its end this does nothing."""
        self.is_aborted = True
        if self.sock is not None:
            with contextlib.suppress(OSError, ValueError):
                # The plain socket's own: that of TLS would first drop what the other thread is reading with.
                socket.socket.shutdown(self.sock, socket.SHUT_RDWR)

    def _go_on(self) -> None:
        if self.is_aborted:
            raise ConnectionAbortedError(f"{shown(self.url)} was given up")

    def _left_s(self) -> float:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"{shown(self.url)} did not answer in time")
        return left_s

    def _connected(self, tls: Callable[[], ssl.SSLContext]) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        host, is_secure = parts.hostname or "", parts.scheme == "https"
        context = tls() if is_secure else None
        sock = self._first_of(self._addresses())
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is None:
            plain = http.client.HTTPConnection(host, parts.port)
            plain.sock = sock
            return plain
        # In two steps, so that a handshake that hangs can be woken.
        wrapped = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
        self.sock = wrapped
        self._go_on()
        wrapped.settimeout(self._left_s())
        wrapped.do_handshake()
        secure = http.client.HTTPSConnection(host, parts.port, context=context)
        secure.sock = wrapped
        return secure

    def _addresses(self) -> list[Address]:
        found = addresses_of(self.url)
        if self.leader is not None and not _is_inside(self.leader):
            found = self._outside(found, self.leader)
        if any(one.is_metadata for one in found) and (self.leader is not None or not names_address(self.url)):
            raise led_to_metadata(self.url)
        return found

    def _outside(self, found: list[Address], leader: Leader) -> list[Address]:
        outside = [one for one in found if not one.is_inner]
        # A host may have addresses of both kinds: one that answered from outside leads to those of itself outside.
        is_itself = leader.host == urlsplit(self.url).hostname
        if len(outside) < len(found) and not (outside and is_itself):
            raise led_inside(leader.url, self.url)
        return outside

    def _first_of(self, addresses: list[Address]) -> socket.socket:
        """Connected to the first that takes it; each has its share of the time that is left."""
        failure: OSError = ConnectionError(f"{shown(self.url)} has no address")
        for number, address in enumerate(addresses):
            left_s = self._left_s() / (len(addresses) - number)
            sock = self.sock = socket.socket(address.family, socket.SOCK_STREAM)
            self._go_on()
            try:
                sock.settimeout(left_s)
                sock.connect(address.place)
            except OSError as error:
                sock.close()
                failure = error
            else:
                self.peer = str(address.place[0])
                return sock
        raise failure

    def _answer(self, connection: http.client.HTTPConnection) -> Response:
        parts = urlsplit(self.url)
        target = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=string.punctuation)
        connection.sock.settimeout(self._left_s())
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _OWN_HEADERS}
        # From here on a shutdown by `abort` is what keeps it from being sent.
        self._go_on()
        connection.request(self.method, target, self.body, headers | _OWN_HEADERS)
        with connection.getresponse() as answer:
            # One byte more than allowed tells a body that is too long from one that just fits.
            body = answer.read(self.max_bytes + 1)
            if len(body) > self.max_bytes:
                body = cut(answer.status, body, self.max_bytes, self.url)
            # http.client says so by itself only when it is asked for everything.
            elif answer.length:
                raise http.client.IncompleteRead(body, answer.length)
            said: dict[str, str] = {}
            for name, value in answer.getheaders():
                said.setdefault(name.lower(), value)
            plain = _plain(answer.status, said, body, self.url)
            return Response(answer.status, said, plain, url=self.url, peer=self.peer)


def led_inside(home: str, url: str) -> Refused:
    """What is said of a remote that leads to an address inside."""
    what = f"{shown(home)} leads to {shown(url)}, a private address, which is not asked on behalf of the outside"
    return Refused(f"{what}; list its host in trusted= if it may be")


def led_to_metadata(url: str) -> Refused:
    """The error for a URL that leads to the metadata of a cloud, or to a link-local address."""
    what = f"{shown(url)} leads to a link-local address or to the metadata of a cloud, which hands out credentials"
    return Refused(f"{what}: write the address itself as the URL, or in trusted=, if it is meant")


def cut(status: int, body: bytes, max_bytes: int, url: str) -> bytes:
    """Of a body beyond the limit the beginning, which is enough of an error; of a success that would be half of it."""
    if len(body) > max_bytes and status < 400:
        raise Refused(f"{shown(url)} answered with more than {max_bytes} bytes")
    return body[:max_bytes]


def _plain(status: int, headers: Mapping[str, str], body: bytes, url: str) -> bytes:
    """The body, if it came as it was asked for: nothing here unpacks."""
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity") or not body:
        return body
    if 200 <= status < 300:
        raise ConnectionError(f"{shown(url)} answered in {encoding[:40]!r}, though identity was asked for")
    # Its status says enough, and these words nobody can read.
    return b""


def _is_inside(leader: Leader) -> bool:
    """Whether the address that answered is inside; where it is not known, whether all addresses of its host are."""
    if leader.peer:
        return is_inner(leader.peer)
    try:
        found = addresses_of(leader.url)
    except OSError:
        return False
    return bool(found) and all(one.is_inner for one in found)
