"""Plain looks need no aiohttp, keep a bounded number of connections, and never take one answer for another."""

import asyncio
import errno
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from everpoll.http import HttpClient, NotAsked, Request
from everpoll.http.lean_connection import LeanConnection
from everpoll.http.lean_exchange import LeanExchange
from everpoll.http.lean_pool import LeanPool, max_idle
from everpoll.http.redirects import Hop
from everpoll.http.urls import target_of
from http_room.loopback import LIMIT_S, Asked, Loopback, answer, by_path, say

PLAIN = answer(200, b"fine")


async def test_plain_looks_do_not_need_the_full_exchange() -> None:
    client = HttpClient()
    paths = {
        "/plain": PLAIN,
        "/moved": answer(302, b"", {"Location": "/plain"}),
        "/empty-header": answer(200, b"fine", {"X-Empty": "", "X-Next": "b"}),
        "/hint": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + PLAIN,
        "/down": answer(503, b"busy"),
        "/old": b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nfine",
    }
    async with Loopback(by_path(paths)) as remote:
        got = {path: await client.send(Request(remote.url + path)) for path in paths}
        await client.send(Request(f"{remote.url}/plain", "HEAD"))
        await client.close()
    assert {path: one.body for path, one in got.items()} == dict.fromkeys(paths, b"fine") | {"/down": b"busy"}
    assert (got["/empty-header"].headers["x-empty"], got["/empty-header"].headers["x-next"]) == ("", "b")
    assert "link" not in got["/hint"].headers
    assert client._full is None


def test_the_room_does_not_import_aiohttp_before_it_is_needed() -> None:
    program = "import sys, everpoll.http; everpoll.http.HttpClient(); print('aiohttp' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"


async def test_an_answer_that_a_strict_reader_refuses_is_asked_for_again_in_full() -> None:
    """Line ends without a carriage return: aiohttp knows them."""
    client = HttpClient()
    async with Loopback(say(b"HTTP/1.1 200 OK\nContent-Length: 4\n\nfine")) as remote:
        assert (await client.send(Request(remote.url))).body == b"fine"
        await client.close()
    assert client._full is not None


async def test_a_second_answer_is_not_taken_for_the_next_one() -> None:
    """A server that says more than it was asked is not believed twice."""
    client = HttpClient()
    async with Loopback(say(PLAIN + answer(200, b"evil"))) as remote:
        for _ in range(3):
            assert (await client.send(Request(remote.url))).body == b"fine"
        await client.close()
    assert remote.connections == 3


async def test_what_is_said_unasked_closes_the_connection() -> None:
    client, go_on = HttpClient(), asyncio.Event()
    said = asyncio.Event()

    async def talk(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(PLAIN)
        if asked.connection == 1:
            await go_on.wait()
            writer.write(answer(200, b"evil"))
            said.set()
            await asyncio.Event().wait()

    async with Loopback(talk) as remote:
        await client.send(Request(remote.url))
        go_on.set()
        await said.wait()
        async with asyncio.timeout(LIMIT_S):
            await remote.hung_up.wait()
        assert (await client.send(Request(remote.url))).body == b"fine"
        await client.close()
    assert remote.connections == 2


# ── the pool ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def hop_to(url: str) -> Hop:
    return Hop(target_of(url), {}, None, Request(url).reach, None)


async def looked(exchange: LeanExchange, url: str) -> None:
    now = asyncio.get_running_loop().time()
    await exchange.exchange(Request(url), hop_to(url), now, now + LIMIT_S)


async def test_only_so_many_connections_wait_and_the_oldest_makes_room() -> None:
    exchange = LeanExchange(max_idle=2)
    async with Loopback(say(PLAIN)) as first, Loopback(say(PLAIN)) as second, Loopback(say(PLAIN)) as third:
        for remote in (first, second, third):
            await looked(exchange, remote.url)
        async with asyncio.timeout(LIMIT_S):
            await first.hung_up.wait()
        for remote in (third, second, first):
            await looked(exchange, remote.url)
        await exchange.close()
    assert [first.connections, second.connections, third.connections] == [2, 1, 1]


async def test_connections_that_are_too_old_are_closed_while_they_wait() -> None:
    pool = LeanPool(10)
    young, old = (LeanConnection(pool.loop, pool.loop.time() + age_s) for age_s in (LIMIT_S, -1))
    for one in (young, old):
        one.is_open = True
        pool.give("key", one)
    pool._sweep()
    assert (len(pool), young.is_open, old.is_open) == (1, True, False)
    assert pool.take("key", pool.loop.time()) is young
    assert pool.take("key", pool.loop.time()) is None
    await pool.close()


def test_a_part_of_the_file_descriptors_is_left_to_others() -> None:
    assert 64 <= max_idle() <= 16_384


def out_of(number: int, times: int) -> Callable[..., socket.socket]:
    real, left = socket.socket, [times]

    class Scarce(real):  # type: ignore[misc,valid-type]  # the class that it replaces
        def __init__(self, *args: object, **kwargs: object) -> None:
            if left[0] > 0 and not kwargs.get("fileno") and len(args) < 4:
                left[0] -= 1
                raise OSError(number, "scripted")
            super().__init__(*args, **kwargs)

    return Scarce


async def test_without_file_descriptors_idle_connections_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    client = HttpClient()
    async with Loopback(say(PLAIN)) as idle, Loopback(say(PLAIN)) as remote:
        await client.send(Request(idle.url))
        with monkeypatch.context() as scarce:
            scarce.setattr("everpoll.http.connecting.socket.socket", out_of(errno.EMFILE, 1))
            got = await client.send(Request(remote.url))
        assert got.body == b"fine"
        async with asyncio.timeout(LIMIT_S):
            await idle.hung_up.wait()
        await client.close()


async def test_a_process_without_resources_says_nothing_of_the_other_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not down because this process has no file descriptor left."""
    client = HttpClient()
    async with Loopback(say(PLAIN)) as remote:
        with monkeypatch.context() as scarce:
            scarce.setattr("everpoll.http.connecting.socket.socket", out_of(errno.EMFILE, 9))
            with pytest.raises(NotAsked, match="this process has no resources left"):
                await client.send(Request(remote.url))
        await client.close()
