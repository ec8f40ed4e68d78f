"""`everpoll workers`: which are alive, and which process does not exist any more, at any width."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cli.monitored import LEASE_S, Monitored
from cli.shell import Shell
from everpoll.stores.contract import Store, WorkerCard


def dead_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@pytest.fixture
def database(tmp_path: Path) -> Monitored:
    monitored = Monitored(f"sqlite:///{tmp_path}/tasks.db")
    host = socket.gethostname()
    pids = {"mine": (host, os.getpid()), "killed": (host, dead_pid()), "elsewhere": ("h.example", 1)}

    async def write(store: Store) -> None:
        for number, (name, (where, pid)) in enumerate(pids.items(), 1):
            card = WorkerCard(
                incarnation=number,
                label=f"{name}-worker-with-a-long-name",
                host=where,
                pid=pid,
                queues=("everpoll.checks", "mail"),
                slots=1000,
                version="0",
            )
            await store.sign_on(card, LEASE_S)

    monitored.use(write)
    return monitored


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_killed_worker_is_gone_before_its_lease_is_over(shell: Shell, database: Monitored, columns: int) -> None:
    shell.columns(columns)
    ended = shell("workers", "--url", database.url)
    lines = ended.out.splitlines()
    assert max(map(len, lines)) <= columns
    states = {line.split()[0].partition("-")[0]: line.split()[1] for line in lines if "of 1000" in line}
    assert states == {"mine": "alive", "killed": "gone", "elsewhere": "alive"}
    assert ("h.example" in ended.out) is (columns == 120)
    assert "heartbeat" in lines[0]
