"""Streams end with their server and with their client, and a client that does not read holds up no other."""

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from everpoll import Everpoll
from everpoll.server import running, streams
from everpoll.server.feed_hub import BUFFER_BYTES
from everpoll.stores.contract import NewEvent, NewTask, encode
from server.site import TOKEN, SentEvent, Site, events_of, example_app, is_healthy, python, site, until
from servers.ports import reserved_port

GRACE_S = 120.0
"""Far more than the end takes, also on a busy machine: a stream that is waited for takes all of it."""
APP = """
import asyncio
from everpoll import Everpoll
app = Everpoll({url!r})
@app.job()
async def work(): ...
"""
MOUNTED = """
import sys
import uvicorn
from fastapi import FastAPI
from shop import app
site = FastAPI()
site.mount("/polls", app.asgi(token={token!r}))
uvicorn.run(site, port=int(sys.argv[1]), log_level="warning")
"""
END_S = 1.0
STREAMS = ("/api/events", "/api/changes")


@contextlib.asynccontextmanager
async def _open(base: str, count: int, prefix: str = "") -> AsyncIterator[list[AsyncIterator[SentEvent]]]:
    """That many open streams, each of which has told something."""
    limits = httpx.Limits(max_connections=None)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with contextlib.AsyncExitStack() as until_end:
        http = httpx.AsyncClient(base_url=base, headers=headers, timeout=60, limits=limits)
        await until_end.enter_async_context(http)
        opened = []
        for number in range(count):
            path = prefix + STREAMS[number % 2]
            answer = await until_end.enter_async_context(http.stream("GET", path))
            reported = events_of(answer)
            await anext(reported)
            opened.append(reported)
        yield opened


async def _read_to_the_end(reported: AsyncIterator[SentEvent]) -> None:
    """The server ends it as HTTP has it: a connection that breaks raises."""
    async for _ in reported:
        pass


async def test_closing_the_server_ends_every_stream_long_before_its_grace_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "STOP_S", GRACE_S)  # else connections are broken before that
    async with site(example_app("memory://")) as here, _open(here.server.url, 100) as opened:
        async with asyncio.timeout(GRACE_S / 2):
            stopping = asyncio.create_task(here.server.stop(GRACE_S))
            await asyncio.gather(*map(_read_to_the_end, opened))
            await stopping


async def test_a_stream_that_begins_while_the_server_ends_is_over_at_once() -> None:
    """A browser connects again as soon as its stream has ended."""
    async with site(example_app("memory://")) as here:
        here.server.http_app.end_streams()
        for path in STREAMS:
            async with asyncio.timeout(GRACE_S / 2), here.http.stream("GET", path) as answer:
                await _read_to_the_end(events_of(answer))


@pytest.mark.prove
async def test_every_stream_ends_within_a_second_of_the_shutdown() -> None:
    async with site(example_app("memory://")) as here, _open(here.server.url, 100) as opened:
        began = time.monotonic()
        stopping = asyncio.create_task(here.server.stop(GRACE_S))
        await asyncio.gather(*map(_read_to_the_end, opened))
        assert time.monotonic() - began < END_S
        await stopping


@pytest.mark.parametrize("mounted", [False, True])
async def test_a_terminated_process_ends_within_its_grace_although_streams_are_open(
    tmp_path: Path, mounted: bool
) -> None:
    (tmp_path / "shop.py").write_text(APP.format(url=f"sqlite:///{tmp_path / 'tasks.db'}"))
    (tmp_path / "mounted.py").write_text(MOUNTED.format(token=TOKEN))
    port = reserved_port()
    command = (
        ["mounted.py", str(port)]
        if mounted
        else ["-m", "everpoll", "run", "shop:app", "--serve", "--port", str(port), "--grace", f"{GRACE_S:g}s"]
    )
    prefix = "/polls" if mounted else ""
    with python(command, tmp_path, EVERPOLL_TOKEN=TOKEN) as process:
        base = f"http://127.0.0.1:{port}"
        await until(lambda: is_healthy(base + prefix))
        async with _open(base, 100, prefix) as opened:
            process.send_signal(signal.SIGTERM)
            await asyncio.gather(*map(_read_to_the_end, opened))
            await asyncio.to_thread(process.wait, GRACE_S / 2)
    assert process.returncode in {0, -signal.SIGTERM}


async def test_a_client_that_leaves_is_forgotten() -> None:
    async with site(example_app("memory://")) as here:
        serving = here.server.http_app.serving()
        async with _open(here.server.url, 10):
            assert len(serving._streams) == 10

        async def is_forgotten() -> bool:
            return not serving._streams and serving.hub._reader is None and serving.changes._ticking is None

        await until(is_forgotten)


async def test_a_client_that_does_not_read_holds_up_no_other_and_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STUCK_S", 1.0)
    monkeypatch.setattr(running, "UNREAD_S", 3_600.0)  # the server drops it, and not the kernel
    async with site(example_app("memory://"), works=False) as here:
        port = int(here.server.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            request = f"GET /api/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
            stuck.sendall(request.encode())
            await until(lambda: _has_streams(here, 1))
            async with _open(here.server.url, 1) as [reported]:
                for _ in range(20):
                    await _write_a_mebibyte(here)
                    for _ in range(16):
                        await anext(reported)
                await until(lambda: _has_streams(here, 1))
                assert here.server.http_app.serving().hub._bytes < 2 * BUFFER_BYTES


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the kernel of Linux closes such connections")
async def test_the_connection_of_a_client_that_does_not_read_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dropped stream alone would leave its buffer and its socket with the server for as long as the client lives."""
    monkeypatch.setattr(streams, "STUCK_S", 0.5)
    monkeypatch.setattr(running, "UNREAD_S", 1.0)
    async with site(example_app("memory://"), works=False) as here:
        port = int(here.server.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            request = f"GET /api/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
            stuck.sendall(request.encode())
            await until(lambda: _has_streams(here, 1))
            for _ in range(20):
                await _write_a_mebibyte(here)
            await until(lambda: _has_connections(here, 0))


async def _has_connections(here: Site, count: int) -> bool:
    assert here.server._server is not None
    return len(here.server._server.server_state.connections) == count


async def _write_a_mebibyte(here: Site) -> None:
    store = await here.app.store()
    body = encode({"text": "x" * 65_536})
    tasks = [NewTask(name="export", kind="watch", delay_s=3600, events=(NewEvent(1, body),)) for _ in range(16)]
    await store.enqueue(tasks)


async def _has_streams(here: Site, count: int) -> bool:
    return len(here.server.http_app.serving()._streams) == count


async def test_a_quiet_stream_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everpoll.server.feed_hub.KEEP_ALIVE_S", 0.05)
    monkeypatch.setattr("everpoll.server.changes.KEEP_ALIVE_S", 0.05)
    async with site(Everpoll("memory://"), works=False) as here:
        for path in STREAMS:
            async with asyncio.timeout(30), here.http.stream("GET", path) as answer:
                async for line in answer.aiter_lines():
                    if line == ": keep-alive":
                        break
