"""One exchange ends within its timeout and its size, whatever the other side does; what breaks is an OSError."""

import asyncio
import ipaddress
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from everpoll.errors import BadInput
from everpoll.watches.adapters import Fetch, HttpFetch, Refused, RemoteBusy, Response
from everpoll.watches.adapters.http202 import Http202
from everpoll.watches.verdicts import Done
from servers.ports import reserved_port
from watches.adapters.fake_server import Answer, serving

LIMIT_S = 20.0
"""Far more than anything here takes: a test that needs it has failed."""


@asynccontextmanager
async def raw_server(talk: Callable[[socket.socket, threading.Event], None]) -> AsyncIterator[str]:
    """A server that talks to one client after another as it likes; the event says that the test is over."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while not over.is_set():
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    if not over.is_set():
                        talk(connection, over)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/x"
        finally:
            over.set()
            # A client that gave up before it came leaves the server waiting for a connection.
            with suppress(OSError):
                socket.create_connection(listener.getsockname(), LIMIT_S).close()
            # The loop goes on meanwhile: a transport that was aborted hangs up in its next turn.
            await asyncio.to_thread(thread.join, LIMIT_S)
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
        response = await HttpFetch()("PUT", f"{fake.url}/pot?a=1", headers={"X-A": "b"}, body=b'{"cups": 2}')
    assert (response.status, response.headers["x-tea"]) == (418, "green")
    assert response.json() == {"you sent": {"cups": 2}}
    assert fake.asked[0].path == "/pot?a=1"
    assert fake.asked[0].headers["x-a"] == "b"
    assert fake.asked[0].headers["user-agent"].startswith("everpoll/")


async def test_letters_beyond_ascii_are_sent_as_the_rules_say() -> None:
    with serving(lambda asked: Answer(200)) as fake:
        await HttpFetch()("GET", f"{fake.url}/größe/a%20b?q=ü&x=1", headers={})
    assert fake.asked[0].path == "/gr%C3%B6%C3%9Fe/a%20b?q=%C3%BC&x=1"


async def test_what_cannot_be_unpacked_is_not_asked_for_whatever_the_headers_say() -> None:
    with serving(lambda asked: Answer(200)) as fake:
        await HttpFetch()("GET", fake.url, headers={"accept-Encoding": "br"})
    assert fake.asked[0].headers["accept-encoding"] == "gzip, deflate"


async def test_a_header_that_looks_like_a_reference_is_sent_as_it_is() -> None:
    with serving(lambda asked: Answer(200)) as fake:
        await HttpFetch()("GET", fake.url, headers={"X-Token": "${HOME}"})
    assert fake.asked[0].headers["x-token"] == "${HOME}"


async def test_a_plain_function_serves_as_well() -> None:
    """It blocks, so that it is called in a thread."""
    threads: list[str] = []

    def fetch(method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None) -> Response:
        threads.append(threading.current_thread().name)
        return Response(200, {}, b"[1]")

    verdict = await Http202(fetch=cast("Fetch", fetch)).look("https://api.example.com/ops/7")
    assert verdict == Done([1])
    assert threads[0].startswith("everpoll-fetch")


async def test_so_does_a_function_that_returns_something_to_await() -> None:
    async def later() -> Response:
        return Response(200, {}, b"[1]")

    assert await Http202(fetch=lambda *_, **__: later()).look("https://api.example.com/ops/7") == Done([1])


async def test_redirects_are_answers() -> None:
    with serving(lambda asked: Answer(302, None, {"Location": "/elsewhere"})) as fake:
        response = await HttpFetch()("GET", fake.url, headers={})
    assert (response.status, len(fake.asked)) == (302, 1)


@pytest.mark.parametrize("talk", [drip, silence])
async def test_a_server_that_drips_or_is_silent_costs_one_timeout(
    talk: Callable[[socket.socket, threading.Event], None],
) -> None:
    async with raw_server(talk) as url:
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(TimeoutError, match=r"did not (answer|finish its answer) within 100ms"):
                await HttpFetch(timeout="100ms")("GET", f"{url}?sig=secret", headers={})


async def test_cancellation_hangs_up() -> None:
    reached = threading.Event()

    def talk(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(65536)
        reached.set()
        assert connection.recv(65536) == b""

    async with raw_server(talk) as url:
        asking = asyncio.create_task(HttpFetch(timeout="1h")("GET", url, headers={}))
        await asyncio.to_thread(reached.wait, LIMIT_S)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_a_body_beyond_the_limit_is_refused_and_one_that_fits_is_not() -> None:
    with serving(lambda asked: Answer(200, b"x" * 100)) as fake:
        assert len((await HttpFetch(max_bytes=100)("GET", fake.url, headers={})).body) == 100
        with pytest.raises(Refused, match="more than 99 bytes"):
            await HttpFetch(max_bytes=99)("GET", fake.url, headers={})


async def test_of_an_error_beyond_the_limit_the_beginning_is_enough() -> None:
    """A busy remote with a long page is busy: its status and its Retry-After count."""
    with serving(lambda asked: Answer(503, b"x" * 100, {"Retry-After": "9"})) as fake:
        response = await HttpFetch(max_bytes=10)("GET", fake.url, headers={})
        assert (response.status, response.body, response.headers["retry-after"]) == (503, b"x" * 10, "9")
        with pytest.raises(RemoteBusy) as busy:
            await Http202(fetch=HttpFetch(max_bytes=10)).look(fake.url)
    assert busy.value.retry_after_s == 9


async def test_the_first_of_several_headers_of_one_name_counts() -> None:
    text = b"HTTP/1.1 202 OK\r\nRetry-After: 9\r\nretry-after: 5\r\nContent-Length: 0\r\n\r\n"
    async with raw_server(say(text)) as url:
        response = await HttpFetch(timeout=LIMIT_S)("GET", url, headers={})
    assert response.headers["retry-after"] == "9"


# ── connecting ───────────────────────────────────────────────────────────────────────────────────────────────────────


def addresses(*found: str, port: int) -> Callable[..., object]:
    return lambda *args, **kwargs: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]


async def test_a_host_of_many_silent_addresses_costs_one_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(sock: socket.socket, _: object) -> None:
        raise BlockingIOError

    monkeypatch.setattr(socket, "getaddrinfo", addresses(*(f"10.0.0.{n}" for n in range(15)), port=80))
    monkeypatch.setattr(socket.socket, "connect", connect)
    # What is never connected is never writable: as if no packet came back.
    monkeypatch.setattr(socket.socket, "getsockopt", lambda sock, *_: 115)
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(TimeoutError, match=r"did not answer within|timed out"):
            await HttpFetch(timeout="150ms")("GET", "http://silent.example/", headers={})


async def test_an_address_that_does_not_answer_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda asked: Answer(200, {"host": asked.headers["host"]})) as fake:
        port = int(fake.url.rpartition(":")[2])
        with socket.create_server(("127.0.0.2", 0)) as taken:
            dead = taken.getsockname()[0]
        monkeypatch.setattr(socket, "getaddrinfo", addresses(dead, "127.0.0.1", port=port))
        response = await HttpFetch()("GET", f"http://two.example:{port}/", headers={})
    assert response.json() == {"host": f"two.example:{port}"}


async def test_an_effect_has_a_connection_of_its_own() -> None:
    """On a kept one that is being closed, it could not be told whether the effect was done."""
    hung_up = threading.Event()

    def talk(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 202 OK\r\nContent-Length: 0\r\n\r\n")
        while connection.recv(65536):
            pass
        hung_up.set()

    async with raw_server(talk) as url:
        assert (await HttpFetch(timeout=LIMIT_S)("POST", url, headers={}, body=b"{}")).status == 202
        assert await asyncio.to_thread(hung_up.wait, LIMIT_S)


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
    async with raw_server(say(text)) as url:
        with pytest.raises(OSError, match=r".") as error:
            await HttpFetch(timeout=LIMIT_S)("GET", f"{url}?sig=secret", headers={})
    assert "secret" not in str(error.value)


async def test_no_server_there_is_an_oserror() -> None:
    with pytest.raises(OSError, match=r"refused"):
        await HttpFetch()("GET", f"http://127.0.0.1:{reserved_port()}/", headers={})


async def test_a_header_cannot_smuggle_in_another() -> None:
    with serving(lambda asked: Answer(200)) as fake:
        with pytest.raises(BadInput, match="the header X-A cannot be sent"):
            await HttpFetch()("GET", fake.url, headers={"X-A": "b\r\nX-Evil: yes"})
        assert fake.asked == []


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for 127.0.0.1 that no authority has signed, made for this test run."""
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
        with pytest.raises(OSError, match="its certificate is self-signed, and not trusted"):
            await HttpFetch()("GET", f"{fake.url}/x", headers={"Authorization": "Bearer secret"})
        assert fake.asked == [], "nothing was sent"
        response = await HttpFetch(tls=trusting)("GET", f"{fake.url}/x", headers={})
    assert response.json() == {"path": "/x"}


async def test_a_handshake_that_never_ends_costs_one_timeout() -> None:
    async with raw_server(silence) as url:
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(TimeoutError):
                await HttpFetch(timeout="100ms")("GET", url.replace("http:", "https:"), headers={})
