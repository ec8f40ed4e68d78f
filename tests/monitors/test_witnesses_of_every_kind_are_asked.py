"""A witness may be any address that can be asked; the fault is ours only if none of them answers."""

import socket
from collections.abc import Iterator

import pytest

from everpoll import Everpoll
from servers.ports import reserved_port


@pytest.fixture
def open_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    return reserved_port()


async def status_with(witness: list[str], closed_port: int) -> str:
    app = Everpoll("memory://")
    service = app.service("billing", f"tcp://127.0.0.1:{closed_port}", witness=witness)
    async with app:
        return (await service.check()).status


async def test_a_witness_that_answers_makes_the_service_down(open_port: int, closed_port: int) -> None:
    gone = f"tcp://127.0.0.1:{closed_port}"
    assert await status_with([gone, f"tcp://127.0.0.1:{open_port}"], closed_port) == "down"
    assert await status_with(["dns://localhost"], closed_port) == "down"


@pytest.mark.parametrize("scheme", ["tcp", "tls", "http"])
async def test_witnesses_that_do_not_answer_leave_the_service_unknown(scheme: str, closed_port: int) -> None:
    assert await status_with([f"{scheme}://127.0.0.1:{closed_port}"], closed_port) == "unknown"
