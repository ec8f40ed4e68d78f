"""An error without an answer says whether the other side may have received the request."""

import asyncio
import pickle
import socket

import pytest

from everpoll.http import HttpClient, NotReached, Request
from http_room.loopback import Loopback, listening, silence


async def failure_of(client: HttpClient, url: str, timeout_s: float = 5.0) -> NotReached:
    with pytest.raises(NotReached) as caught:
        await client.send(Request(url, method="POST", body=b"{}", timeout_s=timeout_s))
    return caught.value


async def test_a_refused_connection_and_an_unknown_name_sent_nothing(
    runner: asyncio.Runner, client: HttpClient
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        refused = await failure_of(client, f"http://127.0.0.1:{taken.getsockname()[1]}/")
    unknown = await failure_of(client, "http://nowhere.invalid/")
    assert (refused.is_unsent, unknown.is_unsent) == (True, True)
    assert pickle.loads(pickle.dumps(refused)).is_unsent  # noqa: S301 - our own


async def test_a_failed_handshake_sent_nothing(runner: asyncio.Runner, client: HttpClient) -> None:
    async with Loopback(silence) as remote:
        error = await failure_of(client, f"https://127.0.0.1:{remote.port}/", timeout_s=0.3)
    assert error.is_unsent


async def test_silence_and_a_closed_connection_after_the_request_may_have_received_it(
    runner: asyncio.Runner, client: HttpClient
) -> None:
    async with Loopback(silence) as remote:
        # Enough to send the request in, whatever else the machine does.
        assert not (await failure_of(client, remote.url, timeout_s=2.0)).is_unsent
        assert len(remote.asked) == 1

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with listening(hang_up) as port:
        assert not (await failure_of(client, f"http://127.0.0.1:{port}/")).is_unsent
