"""One suite for both exchanges: what a request sends, and what its answer says."""

import asyncio
import base64
import gzip
import zlib

import pytest

from everpoll.errors import BadInput
from everpoll.http import HttpClient, Kind, NotAsked, NotReached, Request, Validator, retry_after_s
from http_room.loopback import LIMIT_S, Asked, Loopback, answer, by_path, say, say_and_close, silence

PLAIN = answer(200, b"fine", {"Content-Type": "text/plain; charset=utf-8", "X-Two": "a"})


async def test_an_answer_has_status_headers_body_address_and_latency(client: HttpClient) -> None:
    async with Loopback(say(PLAIN)) as remote:
        got = await client.send(Request(f"{remote.url}/a/b?c=d#e"))
    assert (got.status, got.body, got.content_type) == (200, b"fine", "text/plain")
    assert (got.headers["X-TWO"], got.headers.get("x-three")) == ("a", None)
    assert (got.url, got.address) == (f"{remote.url}/a/b?c=d", "127.0.0.1")
    assert 0 < got.latency_s < LIMIT_S
    assert (got.certificate_expires_at, got.is_unchanged, got.is_truncated, got.encoding) == (None, False, False, "")
    assert remote.paths() == ["GET /a/b?c=d"]
    assert remote.asked[0].headers["host"] == f"127.0.0.1:{remote.port}"
    assert remote.asked[0].headers["user-agent"].startswith("everpoll/")
    assert remote.asked[0].headers["accept-encoding"] == "gzip, deflate"


async def test_ipv6_works_alike(client: HttpClient) -> None:
    async with Loopback(say(PLAIN), host="::1") as remote:
        got = await client.send(Request(f"{remote.url}/a"))
    assert (got.body, got.address, got.url) == (b"fine", "::1", f"http://[::1]:{remote.port}/a")
    assert remote.asked[0].headers["host"] == f"[::1]:{remote.port}"


async def test_a_proxy_is_asked_where_one_is_named() -> None:
    async with Loopback(say(PLAIN)) as proxy:
        client = HttpClient(proxy=proxy.url.replace("//", "//ann:hunter2@"))
        got = await client.send(Request("http://elsewhere.invalid/a?b=c"))
        await client.close()
        assert (got.body, got.address) == (b"fine", "")
        assert proxy.asked[0].path == "http://elsewhere.invalid/a?b=c"
        assert proxy.asked[0].headers["proxy-authorization"].startswith("Basic ")


async def test_headers_are_sent_as_they_are_written(client: HttpClient) -> None:
    headers = {"User-Agent": "mine/1", "accept": "application/json", "X-Key": "Bearer ${TOKEN}", "Host": "virtual"}
    async with Loopback(say(PLAIN)) as remote:
        await client.send(Request(remote.url, headers=headers))
    sent = remote.asked[0].headers
    assert (sent["user-agent"], sent["accept"], sent["x-key"], sent["host"]) == (
        "mine/1",
        "application/json",
        "Bearer s3cret",
        "virtual",
    )


async def test_headers_that_frame_the_message_are_not_the_users(client: HttpClient) -> None:
    headers = {"Content-Length": "5", "Transfer-Encoding": "chunked", "Accept-Encoding": "br", "Connection": "close"}
    async with Loopback(say(PLAIN)) as remote:
        await client.send(Request(remote.url, headers=headers))
        await client.send(Request(remote.url))
    sent = remote.asked[0].headers
    assert "content-length" not in sent
    assert "transfer-encoding" not in sent
    assert sent["accept-encoding"] == "gzip, deflate"
    assert remote.connections == 1


async def test_a_missing_variable_is_not_asked(client: HttpClient) -> None:
    async with Loopback(say(PLAIN)) as remote:
        with pytest.raises(NotAsked, match=r"X-Key refers to \$\{MISSING\}"):
            await client.send(Request(remote.url, headers={"X-Key": "${MISSING}"}))
    assert remote.asked == []


async def test_user_and_password_of_a_url_are_sent_as_a_header_and_shown_nowhere(client: HttpClient) -> None:
    async with Loopback(say(PLAIN)) as remote:
        url = remote.url.replace("//", "//ann:h%40nter2@")
        got = await client.send(Request(url))
        assert got.url == f"{remote.url}/"
        assert remote.asked[0].headers["authorization"] == "Basic " + base64.b64encode(b"ann:h@nter2").decode()
        remote.talk = say_and_close(b"")
        with pytest.raises(NotReached) as error:
            await client.send(Request(url, fresh=True))
    assert "nter2" not in str(error.value)


async def test_letters_beyond_ascii_are_sent_as_the_rules_say(client: HttpClient) -> None:
    async with Loopback(say(PLAIN)) as remote:
        await client.send(Request(f"{remote.url}/größe/a%20b%2Fc?q=ü&x=1+2%2B"))
    assert remote.asked[0].path == "/gr%C3%B6%C3%9Fe/a%20b%2Fc?q=%C3%BC&x=1+2%2B"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_other_methods_send_their_body(client: HttpClient, method: str) -> None:
    async with Loopback(say(PLAIN)) as remote:
        got = await client.send(Request(remote.url, method, {"Content-Type": "application/json"}, b'{"a":1}'))
    assert got.status == 200
    assert (remote.asked[0].method, remote.asked[0].body) == (method, b'{"a":1}')
    assert remote.asked[0].headers["content-type"] == "application/json"


async def test_a_head_has_no_body_whatever_its_headers_say(client: HttpClient) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\nContent-Encoding: gzip\r\nX-A: b\r\n\r\n"
    async with Loopback(say(head)) as remote:
        for _ in range(3):
            got = await client.send(Request(remote.url, "HEAD", timeout_s=LIMIT_S))
            assert (got.status, got.body, got.headers["x-a"]) == (200, b"", "b")
        remote.talk = say(PLAIN)
        assert (await client.send(Request(remote.url))).body == b"fine"
    assert {one.method for one in remote.asked} == {"HEAD", "GET"}


@pytest.mark.parametrize("status", [200, 204, 304, 404, 500, 503, 599])
async def test_every_status_is_an_answer(client: HttpClient, status: int) -> None:
    async with Loopback(say(answer(status))) as remote:
        for _ in range(2):
            got = await client.send(Request(remote.url))
            assert (got.status, got.body, got.is_unchanged) == (status, b"", status == 304)
    assert remote.connections == 1


async def test_repeated_headers_are_joined(client: HttpClient) -> None:
    text = b"HTTP/1.1 429 Slow\r\nRetry-After: 9\r\nVia: a\r\nretry-after: 5\r\nvia: b\r\nContent-Length: 0\r\n\r\n"
    async with Loopback(say(text)) as remote:
        got = await client.send(Request(remote.url))
    assert (got.headers["via"], got.headers.first("retry-after")) == ("a, b", "9")
    assert retry_after_s(got) == 9


# ── bodies ───────────────────────────────────────────────────────────────────────────────────────────────────────────

BODY = b'{"status": "up"}' * 1000
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"


def chunks(body: bytes, size: int) -> bytes:
    parts = [body[begin : begin + size] for begin in range(0, len(body), size)]
    return b"".join(f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in parts) + b"0\r\n\r\n"


def bare_deflate(body: bytes) -> bytes:
    packing = zlib.compressobj(wbits=-15)
    return packing.compress(body) + packing.flush()


def packed(encoding: str, body: bytes) -> bytes:
    return answer(200, body, {"Content-Encoding": encoding})


@pytest.mark.parametrize(
    "text",
    [
        answer(200, BODY),
        CHUNKED + b"\r\n" + chunks(BODY, 1000),
        CHUNKED + b"Trailer: X-T\r\n\r\n" + chunks(BODY, 1000)[:-2] + b"X-T: y\r\n\r\n",
        CHUNKED + b"Content-Encoding: gzip\r\n\r\n" + chunks(gzip.compress(BODY), 7),
        packed("gzip", gzip.compress(BODY)),
        packed("GZIP", gzip.compress(BODY[:10]) + gzip.compress(BODY[10:])),
        packed("x-gzip", gzip.compress(BODY) + b"\0\0\0"),
        packed("deflate", zlib.compress(BODY)),
        packed("deflate", bare_deflate(BODY)),
        packed("identity", BODY),
    ],
    ids=["length", "chunked", "trailers", "chunked-gzip", "gzip", "members", "padded", "zlib", "bare", "identity"],
)
@pytest.mark.parametrize("piece", [100_000, 11])
async def test_a_body_arrives_however_it_is_framed_and_packed(client: HttpClient, text: bytes, piece: int) -> None:
    pieces = [text[begin : begin + piece] for begin in range(0, len(text), piece)]
    async with Loopback(say(*pieces)) as remote:
        for _ in range(2):
            got = await client.send(Request(remote.url, timeout_s=LIMIT_S))
            assert (got.body, got.encoding) == (BODY, "")
    assert remote.connections == 1, "the connection is kept"


async def test_a_body_without_a_length_ends_with_the_connection(client: HttpClient) -> None:
    for head in (b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\nServer: old\r\n\r\n"):
        async with Loopback(say_and_close(head, BODY)) as remote:
            assert (await client.send(Request(remote.url, timeout_s=LIMIT_S))).body == BODY


async def test_an_encoding_that_was_not_asked_for_is_named(client: HttpClient) -> None:
    async with Loopback(say(packed("br", b"\x0b\x02\x80fine\x03"))) as remote:
        got = await client.send(Request(remote.url))
    assert (got.status, got.encoding, got.body) == (200, "br", b"\x0b\x02\x80fine\x03")


@pytest.mark.parametrize(
    "text", [answer(200, b"x" * 100), packed("gzip", gzip.compress(b"x" * 100))], ids=["plain", "gzip"]
)
async def test_a_body_that_just_fits_is_read(client: HttpClient, text: bytes) -> None:
    async with Loopback(say(text)) as remote:
        assert (await client.send(Request(remote.url, max_body_bytes=100))).body == b"x" * 100
        with pytest.raises(NotReached, match="answered with more than 99 bytes") as error:
            await client.send(Request(remote.url, max_body_bytes=99))
    assert error.value.kind is Kind.TOO_LARGE


async def test_of_an_error_that_is_too_large_the_beginning_is_kept(client: HttpClient) -> None:
    """A busy remote with a long page is busy: its status and its Retry-After count."""
    for text in (b"x" * 100, gzip.compress(b"x" * 100)):
        coding = {} if text.startswith(b"x") else {"Content-Encoding": "gzip"}
        async with Loopback(say(answer(503, text, {"Retry-After": "9", **coding}))) as remote:
            got = await client.send(Request(remote.url, max_body_bytes=10))
        assert (got.status, got.body, got.is_truncated, retry_after_s(got)) == (503, b"x" * 10, True, 9)


@pytest.mark.parametrize("text", [b"no gzip at all", gzip.compress(BODY)[:-20]], ids=["garbage", "cut"])
async def test_a_body_that_cannot_be_unpacked_is_said_so(client: HttpClient, text: bytes) -> None:
    async with Loopback(say(packed("gzip", text))) as remote:
        with pytest.raises(NotReached, match="body") as error:
            await client.send(Request(remote.url))
        assert error.value.kind is Kind.PROTOCOL
        remote.talk = say(answer(500, text, {"Content-Encoding": "gzip"}))
        assert (await client.send(Request(remote.url))).status == 500


async def test_early_hints_are_not_the_answer(client: HttpClient) -> None:
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"
    async with Loopback(say(hint + PLAIN)) as remote:
        assert (await client.send(Request(remote.url))).body == b"fine"


# ── connections ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_connection_is_kept_and_fresh_asks_for_a_new_one(client: HttpClient) -> None:
    async with Loopback(say(PLAIN)) as remote:
        for _ in range(3):
            await client.send(Request(remote.url))
        assert remote.connections == 1
        for _ in range(3):
            await client.send(Request(remote.url, fresh=True))
        assert remote.connections == 4
        await client.send(Request(remote.url))
        assert remote.connections == 4
        await remote.hung_up.wait()


async def test_a_connection_that_is_too_old_is_not_used_again() -> None:
    """So that changes of DNS records and certificates are seen."""
    client = HttpClient(connection_age_s=0)
    async with Loopback(say(PLAIN)) as remote:
        for _ in range(5):
            await client.send(Request(remote.url))
        await client.close()
    assert remote.connections == 5


@pytest.mark.parametrize("header", ["close", "Close", "keep-alive, close"])
async def test_a_server_that_closes_is_believed(client: HttpClient, header: str) -> None:
    async with Loopback(say(answer(200, b"x", {"Connection": header}))) as remote:
        for _ in range(2):
            assert (await client.send(Request(remote.url))).body == b"x"
    assert remote.connections == 2


async def test_a_kept_connection_that_the_server_has_closed_costs_no_look(client: HttpClient) -> None:
    async with Loopback(say_and_close(PLAIN)) as remote:
        for _ in range(20):
            assert (await client.send(Request(remote.url))).body == b"fine"


async def test_a_request_that_meets_a_closing_connection_is_sent_again(client: HttpClient) -> None:
    """The server closes while the request is on its way: no byte of an answer came, so it is asked once more."""

    async def talk(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.connection == 1 and len(remote.asked) > 1:
            writer.transport.abort()
        else:
            writer.write(PLAIN)

    async with Loopback(talk) as remote:
        assert (await client.send(Request(remote.url))).body == b"fine"
        assert (await client.send(Request(remote.url))).body == b"fine"
    assert [one.connection for one in remote.asked] == [1, 1, 2]


async def test_a_request_is_sent_again_only_once(client: HttpClient) -> None:
    async with Loopback(say(PLAIN)) as remote:
        await client.send(Request(remote.url))
        remote.talk = say_and_close()
        with pytest.raises(NotReached, match="closed the connection without an answer") as error:
            await client.send(Request(remote.url))
        assert error.value.kind is Kind.REFUSED
        assert len(remote.asked) == 3


async def test_a_post_is_never_sent_again(client: HttpClient) -> None:
    async with Loopback(say(PLAIN)) as remote:
        await client.send(Request(remote.url, "POST", body=b"1"))
        remote.talk = say_and_close()
        with pytest.raises(NotReached):
            await client.send(Request(remote.url, "POST", body=b"2"))
        assert [one.body for one in remote.asked] == [b"1", b"2"]


async def test_many_requests_at_once_have_their_own_answers(client: HttpClient) -> None:
    async def talk(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(200, asked.path.encode()))

    async with Loopback(talk) as remote:
        sent = [client.send(Request(f"{remote.url}/{number}")) for number in range(100)]
        got = await asyncio.gather(*sent)
    assert [one.body for one in got] == [f"/{number}".encode() for number in range(100)]


async def test_cancellation_hangs_up(client: HttpClient) -> None:
    reached = asyncio.Event()

    async def talk(asked: Asked, writer: asyncio.StreamWriter) -> None:
        reached.set()
        await silence(asked, writer)

    async with Loopback(talk) as remote:
        asking = asyncio.create_task(client.send(Request(remote.url, timeout_s=3600)))
        await reached.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        async with asyncio.timeout(LIMIT_S):
            await remote.hung_up.wait()


def test_a_client_serves_one_event_loop_after_the_other() -> None:
    client = HttpClient()

    async def look() -> int:
        async with Loopback(say(PLAIN)) as remote:
            return (await client.send(Request(remote.url))).status

    assert [asyncio.run(look()) for _ in range(3)] == [200, 200, 200]


async def test_closing_is_repeatable_and_a_closed_client_opens_again(client: HttpClient) -> None:
    await client.close()
    async with Loopback(say(PLAIN)) as remote:
        for _ in range(2):
            await client.send(Request(remote.url))
            await client.close()
            await client.close()
    assert remote.connections == 2


# ── redirects ────────────────────────────────────────────────────────────────────────────────────────────────────────


def moved(location: str, status: int = 302) -> bytes:
    return answer(status, b"elsewhere", {"Location": location})


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_reads_are_redirected_within_the_host(client: HttpClient, status: int, method: str) -> None:
    paths = {"/a": moved("b?x=1", status), "/b": moved("/c", status), "/c": answer(200, b"there")}
    if method == "HEAD":
        paths = {path: text.split(b"\r\n\r\n")[0] + b"\r\n\r\n" for path, text in paths.items()}
    async with Loopback(by_path(paths)) as remote:
        got = await client.send(Request(f"{remote.url}/a", method, {"X-Key": "${TOKEN}"}))
        assert (got.status, got.url) == (200, f"{remote.url}/c")
    assert remote.paths() == [f"{method} /a", f"{method} /b?x=1", f"{method} /c"]
    assert [one.headers["x-key"] for one in remote.asked] == ["s3cret"] * 3


async def test_a_redirect_is_the_answer_where_it_is_not_to_be_followed(client: HttpClient) -> None:
    async with Loopback(say(moved("/b"))) as remote:
        got = await client.send(Request(f"{remote.url}/a", follow_redirects=False))
        assert (got.status, got.body, got.headers["location"]) == (302, b"elsewhere", "/b")
        assert (await client.send(Request(f"{remote.url}/a", "POST", body=b"x"))).status == 302
    assert remote.paths() == ["GET /a", "POST /a"]


async def test_another_port_is_another_origin_and_gets_no_credentials(client: HttpClient) -> None:
    async with Loopback(say(PLAIN)) as other, Loopback(say(moved(f"{other.url}/b"))) as remote:
        url = remote.url.replace("//", "//ann:hunter2@")
        got = await client.send(Request(url, headers={"Cookie": "a=b", "X-Key": "${TOKEN}", "Accept": "text/html"}))
        assert got.url == f"{other.url}/b"
    assert remote.asked[0].headers["authorization"].startswith("Basic ")
    sent = other.asked[0].headers
    assert not {"authorization", "cookie", "x-key"} & set(sent)
    assert sent["accept"] == "text/html"


async def test_a_redirect_loop_and_too_many_redirects_are_said_so(client: HttpClient) -> None:
    async with Loopback(by_path({"/a": moved("/b"), "/b": moved("/a")})) as remote:
        with pytest.raises(NotReached, match="redirect loop over http") as error:
            await client.send(Request(f"{remote.url}/a"))
        assert error.value.kind is Kind.REDIRECT

        async def on_and_on(asked: Asked, writer: asyncio.StreamWriter) -> None:
            writer.write(moved(f"{asked.path}x"))

        remote.talk, remote.asked = on_and_on, []
        with pytest.raises(NotReached, match="more than 10 redirects"):
            await client.send(Request(f"{remote.url}/a"))
        assert len(remote.asked) == 11


# ── conditions ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_has_not_changed_is_not_sent_again(client: HttpClient) -> None:
    async def talk(asked: Asked, writer: asyncio.StreamWriter) -> None:
        is_known = asked.headers.get("if-none-match") == '"v1"'
        writer.write(answer(304, headers={"ETag": '"v1"'}) if is_known else answer(200, b"new", {"ETag": '"v1"'}))

    async with Loopback(talk) as remote:
        request = Request(remote.url)
        first = await client.send(request)
        validator = Validator.of(first)
        assert validator == Validator('"v1"')
        second = await client.send(validator.on(request))
    assert (second.is_unchanged, second.body, Validator.of(second)) == (True, b"", None)


async def test_a_name_is_needed() -> None:
    for url in ("", "/health", "http://", "http:///x", "https://:443/", "http://a..b/", "ws://a/"):
        with pytest.raises(BadInput):
            Request(url)
