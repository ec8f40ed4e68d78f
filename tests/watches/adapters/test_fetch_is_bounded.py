"""One exchange ends within its timeout and its size, whatever the other side does; what breaks is an OSError."""

import asyncio
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from everpoll.errors import BadInput
from everpoll.watches.adapters import Refused, RemoteBusy, ThreadFetch
from everpoll.watches.adapters.http202 import Http202
from watches.adapters.fake_server import Answer, Asked, serving

LIMIT_S = 20.0
"""Far more than anything here takes: a test that needs it has failed."""


@contextmanager
def raw_server(talk: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """A server that talks to one client as it likes; the event says that the test is over."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                talk(connection, over)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/x"
        finally:
            over.set()
            # A client that gave up before it came leaves the server waiting: somebody has to come.
            with suppress(OSError):
                socket.create_connection(listener.getsockname(), LIMIT_S).close()
            thread.join(LIMIT_S)
            assert not thread.is_alive()


def say(text: bytes) -> Callable[[socket.socket, threading.Event], None]:
    def talk(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(text)

    return talk


def drip(connection: socket.socket, over: threading.Event) -> None:
    """A byte now and then: each one arrives within any timeout of a single read."""
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while not over.wait(0.01):
        connection.sendall(b"x")


def silence(connection: socket.socket, over: threading.Event) -> None:
    connection.recv(65536)
    # Until the client hangs up, which is what a timeout or a cancellation is to do.
    connection.recv(65536)


async def test_an_exchange_has_status_headers_and_body() -> None:
    with serving(lambda asked: Answer(418, {"you sent": asked.body}, {"X-Tea": "green"})) as fake:
        response = await ThreadFetch()("PUT", f"{fake.url}/pot?a=1", headers={"X-A": "b"}, body=b'{"cups": 2}')
    assert (response.status, response.headers["x-tea"]) == (418, "green")
    assert response.json() == {"you sent": {"cups": 2}}
    assert fake.asked[0].path == "/pot?a=1"
    assert fake.asked[0].headers["x-a"] == "b"
    assert fake.asked[0].headers["user-agent"].startswith("everpoll/")


async def test_letters_beyond_ascii_are_sent_as_the_rules_say() -> None:
    with serving(lambda asked: Answer(200)) as fake:
        await ThreadFetch()("GET", f"{fake.url}/größe/a%20b?q=ü&x=1", headers={})
    assert fake.asked[0].path == "/gr%C3%B6%C3%9Fe/a%20b?q=%C3%BC&x=1"


async def test_what_cannot_be_unpacked_is_not_asked_for_whatever_the_headers_say() -> None:
    with serving(lambda asked: Answer(200)) as fake:
        await ThreadFetch()("GET", fake.url, headers={"accept-Encoding": "gzip", "Connection": "keep-alive"})
    assert (fake.asked[0].headers["accept-encoding"], fake.asked[0].headers["connection"]) == ("identity", "close")


async def test_redirects_are_answers() -> None:
    with serving(lambda asked: Answer(302, None, {"Location": "/elsewhere"})) as fake:
        response = await ThreadFetch()("GET", fake.url, headers={})
    assert (response.status, len(fake.asked)) == (302, 1)


@pytest.mark.parametrize("talk", [drip, silence])
async def test_a_server_that_drips_or_is_silent_costs_one_timeout(
    talk: Callable[[socket.socket, threading.Event], None],
) -> None:
    with raw_server(talk) as url:
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(TimeoutError, match="did not answer within 100ms"):
                await ThreadFetch(timeout="100ms")("GET", f"{url}?sig=secret", headers={})


async def test_cancellation_hangs_up() -> None:
    reached = threading.Event()

    def talk(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(65536)
        reached.set()
        assert connection.recv(65536) == b""

    with raw_server(talk) as url:
        asking = asyncio.create_task(ThreadFetch(timeout="1h")("GET", url, headers={}))
        await asyncio.to_thread(reached.wait, LIMIT_S)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_a_body_beyond_the_limit_is_refused_and_one_that_fits_is_not() -> None:
    with serving(lambda asked: Answer(200, b"x" * 100)) as fake:
        assert len((await ThreadFetch(max_bytes=100)("GET", fake.url, headers={})).body) == 100
        with pytest.raises(Refused, match="more than 99 bytes"):
            await ThreadFetch(max_bytes=99)("GET", fake.url, headers={})


async def test_of_an_error_beyond_the_limit_the_beginning_is_enough() -> None:
    """A busy remote with a long page is busy: its status and its Retry-After count."""
    with serving(lambda asked: Answer(503, b"x" * 100, {"Retry-After": "9"})) as fake:
        response = await ThreadFetch(max_bytes=10)("GET", fake.url, headers={})
        assert (response.status, response.body, response.headers["retry-after"]) == (503, b"x" * 10, "9")
        with pytest.raises(RemoteBusy) as busy:
            await Http202(fetch=ThreadFetch(max_bytes=10)).look(fake.url)
    assert busy.value.retry_after_s == 9


async def test_the_first_of_several_headers_of_one_name_counts() -> None:
    text = b"HTTP/1.1 202 OK\r\nRetry-After: 9\r\nretry-after: 5\r\nContent-Length: 0\r\n\r\n"
    with raw_server(say(text)) as url:
        response = await ThreadFetch(timeout=LIMIT_S)("GET", url, headers={})
    assert response.headers["retry-after"] == "9"


# ── connecting ───────────────────────────────────────────────────────────────────────────────────────────────────────


def addresses(*found: str, port: int) -> Callable[..., object]:
    return lambda *args, **kwargs: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]


async def test_a_host_of_many_silent_addresses_costs_one_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its share of the time, and whoever comes behind in the line of threads finds one that is free."""
    tried: list[float] = []

    def connect(sock: socket.socket, _: object) -> None:
        tried.append(sock.gettimeout() or 0)
        threading.Event().wait(sock.gettimeout())
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "getaddrinfo", addresses(*(f"10.0.0.{n}" for n in range(15)), port=80))
    monkeypatch.setattr(socket.socket, "connect", connect)
    fetch = ThreadFetch(timeout="150ms", threads=1)
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(TimeoutError, match="did not answer within 150ms"):
            await fetch("GET", "http://silent.example/", headers={})
    monkeypatch.undo()
    assert sum(tried) <= 0.2
    with serving(lambda asked: Answer(200)) as fake:
        assert (await fetch("GET", fake.url, headers={})).status == 200


async def test_an_address_that_is_silent_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float | None] = []
    real_connect = socket.socket.connect

    def connect(sock: socket.socket, place: tuple[str, int]) -> None:
        shares.append(sock.gettimeout())
        if place[0] != "127.0.0.1":
            raise TimeoutError("timed out")
        real_connect(sock, place)

    with serving(lambda asked: Answer(200)) as fake:
        port = int(fake.url.rpartition(":")[2])
        monkeypatch.setattr(socket, "getaddrinfo", addresses("10.0.0.1", "10.0.0.2", "127.0.0.1", port=port))
        monkeypatch.setattr(socket.socket, "connect", connect)
        assert (await ThreadFetch(timeout="30s")("GET", f"http://x.example:{port}/", headers={})).status == 200
    first, second, third = (round(share or 0) for share in shares)
    assert (first, second, third) == (10, 15, 30), "a share of what is left"


async def test_an_address_that_does_not_answer_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda asked: Answer(200, {"host": asked.headers["host"]})) as fake:
        port = int(fake.url.rpartition(":")[2])
        with socket.create_server(("127.0.0.2", 0)) as taken:
            dead = taken.getsockname()[0]
        monkeypatch.setattr(socket, "getaddrinfo", addresses(dead, "127.0.0.1", port=port))
        response = await ThreadFetch()("GET", f"http://two.example:{port}/", headers={})
    assert response.json() == {"host": f"two.example:{port}"}


async def test_nothing_is_sent_after_the_caller_gave_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connect that succeeds too late is no reason to begin an operation that nobody waits for."""
    is_connecting, goes_on, has_ended = threading.Event(), threading.Event(), threading.Event()
    real_connect, real_close = socket.socket.connect, socket.socket.close

    def connect(sock: socket.socket, place: object) -> None:
        is_connecting.set()
        goes_on.wait(LIMIT_S)
        real_connect(sock, place)  # type: ignore[arg-type]  # as it came

    def close(sock: socket.socket) -> None:
        real_close(sock)
        if goes_on.is_set():
            has_ended.set()

    with serving(lambda asked: Answer(202)) as fake:
        # Not every system remembers of a socket that was never connected that it was shut down.
        monkeypatch.setattr(socket.socket, "shutdown", lambda sock, how: None)
        monkeypatch.setattr(socket.socket, "connect", connect)
        monkeypatch.setattr(socket.socket, "close", close)
        asking = asyncio.create_task(ThreadFetch()("POST", fake.url, headers={}, body=b"{}"))
        assert await asyncio.to_thread(is_connecting.wait, LIMIT_S)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        goes_on.set()
        assert await asyncio.to_thread(has_ended.wait, LIMIT_S)
        monkeypatch.undo()
        await ThreadFetch()("GET", f"{fake.url}/later", headers={})
        assert fake.paths() == ["GET /later"]


async def test_whoever_gave_up_is_noticed_between_two_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    is_connecting, goes_on = threading.Event(), threading.Event()
    tried: list[object] = []
    real_connect = socket.socket.connect

    def connect(sock: socket.socket, place: tuple[str, int]) -> None:
        if place[0] == "127.0.0.1":
            real_connect(sock, place)
            return
        tried.append(place)
        is_connecting.set()
        goes_on.wait(LIMIT_S)
        raise ConnectionRefusedError

    with serving(lambda asked: Answer(200)) as fake:
        fetch = ThreadFetch(threads=1)
        monkeypatch.setattr(socket.socket, "connect", connect)
        with monkeypatch.context() as names:
            names.setattr(socket, "getaddrinfo", addresses("10.0.0.1", "10.0.0.2", "10.0.0.3", port=80))
            asking = asyncio.create_task(fetch("GET", "http://silent.example/", headers={}))
            assert await asyncio.to_thread(is_connecting.wait, LIMIT_S)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        goes_on.set()
        assert (await fetch("GET", fake.url, headers={})).status == 200, "its one thread is free"
    assert tried == [("10.0.0.1", 80)]


async def test_waiting_for_a_thread_is_not_the_other_sides_time() -> None:
    """With one thread, whoever comes second waits for the first, and has its own time then."""
    first_is_there, first_goes_on = threading.Event(), threading.Event()

    def answer(asked: Asked) -> Answer:
        if asked.path == "/first":
            first_is_there.set()
            first_goes_on.wait(LIMIT_S)
        return Answer(200)

    with serving(answer) as fake:
        fetch = ThreadFetch(timeout="1s", threads=1)
        first = asyncio.create_task(fetch("GET", f"{fake.url}/first", headers={}))
        assert await asyncio.to_thread(first_is_there.wait, LIMIT_S)
        second = asyncio.create_task(fetch("GET", f"{fake.url}/second", headers={}))
        with pytest.raises(TimeoutError):
            await first
        first_goes_on.set()
        assert (await second).status == 200


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
    ],
)
async def test_what_is_no_http_is_a_broken_connection(text: bytes) -> None:
    with raw_server(say(text)) as url, pytest.raises(OSError, match=r".") as error:
        await ThreadFetch(timeout=LIMIT_S)("GET", f"{url}?sig=secret", headers={})
    assert "secret" not in str(error.value)


async def test_nobody_there_is_an_oserror() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(OSError, match=r"refused"):
        await ThreadFetch()("GET", f"http://127.0.0.1:{port}/", headers={})


async def test_a_header_cannot_smuggle_in_another() -> None:
    with serving(lambda asked: Answer(200)) as fake:
        with pytest.raises(BadInput, match="the header X-A cannot be sent"):
            await ThreadFetch()("GET", fake.url, headers={"X-A": "b\r\nX-Evil: yes"})
        assert fake.asked == []


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for 127.0.0.1 that nobody vouches for, made for this run."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    made_at = datetime.now(UTC) - timedelta(days=1)
    host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(made_at)
        .not_valid_after(made_at + timedelta(days=7))
        .add_extension(host, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(secret + made.public_bytes(pem))
    return path


async def test_https_is_verified(certificate: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=certificate)
    with serving(lambda asked: Answer(200, {"path": asked.path}), tls=tls) as fake:
        with pytest.raises(ssl.SSLCertVerificationError):
            await ThreadFetch()("GET", f"{fake.url}/x", headers={"Authorization": "Bearer secret"})
        assert fake.asked == [], "nothing was sent"
        response = await ThreadFetch(tls=trusting)("GET", f"{fake.url}/x", headers={})
    assert response.json() == {"path": "/x"}


async def test_a_handshake_that_never_ends_costs_one_timeout() -> None:
    with raw_server(silence) as url:
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(TimeoutError):
                await ThreadFetch(timeout="100ms")("GET", url.replace("http:", "https:"), headers={})
