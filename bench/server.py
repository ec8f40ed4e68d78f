"""The one Postgres on which a run compares: durable commits, a fresh database for every measurement."""

import asyncio
import itertools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg

sys.path.append(str(Path(__file__).parent.parent / "tests"))  # its throw-away server serves here too

from bench.quiet import schedule_s
from servers.postgres import DURABLE, Cluster, cluster

SETTINGS = {**DURABLE, "synchronous_commit": "on", "fsync": "on"}
LOGGED = {"log_statement": "all", "log_line_prefix": "[%d] "}
"""For counting statements: one line each, with its database."""


class Server:
    """A running Postgres."""

    def __init__(self, running: Cluster) -> None:
        self._cluster = running
        self._numbers = itertools.count(1)

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a new database for the length of the block. The checkpoint is taken before it is filled.

        One between filling and draining would double the WAL by page images, for the system that is measured next.
        """
        name = f"bench_{next(self._numbers)}"
        self.order(f"create database {name}")
        self.order("checkpoint")
        try:
            yield self._cluster.url(name)
        finally:
            self.order(f"drop database {name} with (force)")

    def order(self, sql: str, url: str | None = None) -> None:
        """Run one statement."""
        asyncio.run(_order(url or self._cluster.url(), sql))

    def cpu_s(self) -> float:
        """What all its processes have used so far; those that have ended do not count."""
        return sum(schedule_s(process) for process in self._processes())

    def log(self) -> str:
        """What it wrote so far."""
        return self._cluster.log()

    def version(self) -> str:
        """As it says itself."""
        return asyncio.run(_version(self._cluster.url()))

    def _processes(self) -> Iterator[Path]:
        data = str(self._cluster.home / "data")
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if str((process / "cwd").readlink()) == data:
                    yield process
            except OSError:
                continue


@contextmanager
def postgres(**settings: str) -> Iterator[Server]:
    """The newest Postgres found here, up for the length of the block."""
    with cluster(settings={**SETTINGS, **settings}) as running:
        yield Server(running)


async def _order(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


async def _version(url: str) -> str:
    connection = await asyncpg.connect(url)
    try:
        return str(await connection.fetchval("show server_version"))
    finally:
        await connection.close()


def resident_mb(pid: int) -> float:
    """The resident set of one process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
