"""The Postgres that tests and benchmarks use starts anywhere, survives what tests do to it, and leaves nothing."""

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

import asyncpg
import pytest

from servers.postgres import FAST, Cluster, _is_gone, binary_folders, cluster

GIVE_UP_S = 20.0
FORGETS_TO_CLOSE = """
import sys
from servers.postgres import Cluster, binary_folders
server = Cluster(binary_folders()[int(sys.argv[1])])
print(server.home, server._pid, flush=True)
sys.stdin.read()
"""


async def ask(url: str, question: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


def major_of(url: str) -> int:
    return int(str(asyncio.run(ask(url, "show server_version_num")))) // 10_000


def wait_until_gone(home: Path, pid: int) -> bool:
    give_up_at = time.monotonic() + GIVE_UP_S
    while home.exists() or not _is_gone(pid):
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.01)
    return True


def test_the_wheel_brings_a_postgres() -> None:
    """So `make test` needs none on the system."""
    assert max(binary_folders()) >= 18


@pytest.mark.parametrize("major", sorted(binary_folders()))
def test_survives_restarts_and_crashes_and_leaves_nothing(major: int) -> None:
    """Stopped, crashed and killed, it comes back on the same port with its data; closed, it is gone."""
    with cluster(major) as server:
        assert major_of(server.url()) == major_of(server.socket_url()) == major
        asyncio.run(ask(server.url(), "create table kept as select 7 as n"))
        server.restart()
        server.restart(signal.SIGQUIT)
        server.signal(signal.SIGKILL)
        server.stop()
        server.start()
        server.start()
        assert asyncio.run(ask(server.url(), "select n from kept")) == 7
        home, pid = server.home, server._pid
    server.close()
    assert not home.exists()
    assert _is_gone(pid)


def test_a_killed_parent_leaves_nothing() -> None:
    """No pid file, no atexit: the pipe closes, and that is enough."""
    parent = subprocess.Popen(
        [sys.executable, "-c", FORGETS_TO_CLOSE, str(max(binary_folders()))],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        home, pid = parent.stdout.readline().split()
        parent.kill()
    assert wait_until_gone(Path(home), int(pid))


def test_a_server_that_cannot_start_says_why() -> None:
    """The end of its own log is in the message, and its directory is gone."""
    with pytest.raises(RuntimeError, match="no_such_setting"):
        Cluster(binary_folders()[max(binary_folders())], {**FAST, "no_such_setting": "1"})
