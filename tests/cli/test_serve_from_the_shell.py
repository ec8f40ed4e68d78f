"""`everpoll serve`, `everpoll run --serve` and `everpoll token`."""

import signal
import socket
from functools import partial
from pathlib import Path

import httpx
import pytest

from cli.shell import Shell
from server.site import is_healthy, python, until
from servers.ports import reserved_port

APP = """
from everpoll import Everpoll
app = Everpoll({url!r})
@app.job()
async def double(number: int) -> int:
    return 2 * number
"""
TOKEN = "a-token-of-this-test"  # noqa: S105 - of no server


def test_a_token_is_long_and_another_one_each_time(shell: Shell) -> None:
    first, second = shell("token").out.strip(), shell("token").out.strip()
    assert len(first) >= 40
    assert first != second
    assert first.isprintable()
    assert " " not in first


def test_another_host_than_loopback_needs_a_token(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("EVERPOLL_TOKEN", raising=False)
    monkeypatch.chdir(tmp_path)
    ended = shell("serve", "--host", "0.0.0.0")  # noqa: S104 - is refused
    assert ended.code == 2
    assert "EVERPOLL_TOKEN" in ended.err


def test_a_port_that_is_taken_is_one_line(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = shell("serve", "--port", str(taken.getsockname()[1]))
    assert ended.code == 2
    assert "cannot listen" in ended.err
    assert "another program has this port; choose another --port" in ended.err


def test_memory_cannot_be_served_from_elsewhere(shell: Shell) -> None:
    ended = shell("serve", "--url", "memory://")
    assert ended.code == 2
    assert "run APP --serve" in ended.err


async def test_a_worker_elsewhere_and_a_server_here(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    (tmp_path / "shop.py").write_text(APP.format(url=url))
    first, second, third = reserved_port(), reserved_port(), reserved_port()
    everpoll = ["-m", "everpoll"]
    commands = [
        [*everpoll, "run", "shop:app", "--serve", "--port", str(first)],
        [*everpoll, "serve", "shop:app", "--port", str(second)],
        [*everpoll, "serve", "--url", url, "--port", str(third)],
    ]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with (
        python(commands[0], tmp_path, EVERPOLL_TOKEN=TOKEN) as worker,
        python(commands[1], tmp_path, EVERPOLL_TOKEN=TOKEN) as server,
        python(commands[2], tmp_path, EVERPOLL_TOKEN=TOKEN) as bare,
    ):
        for port in (first, second, third):
            await until(partial(is_healthy, f"http://127.0.0.1:{port}"))
        async with httpx.AsyncClient(headers=headers, timeout=60) as http:
            started = await http.post(
                f"http://127.0.0.1:{second}/api/jobs", json={"name": "double", "args": [21], "key": "k"}
            )
            assert started.status_code == 201

            async def result() -> bool:
                job = await http.get(f"http://127.0.0.1:{third}/api/jobs/{started.json()['id']}")
                return bool(job.json()["result"] == 42)

            await until(result)
            assert (await http.post(f"http://127.0.0.1:{third}/api/jobs", json={"name": "double"})).status_code == 409
        for process in (worker, server, bare):
            process.send_signal(signal.SIGTERM)
        for process in (worker, server, bare):
            assert process.wait(30) == 0
