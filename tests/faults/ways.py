"""What may stand between the workers and Postgres, in a process of its own: it can be frozen with all it carries.

    python -m faults.ways proxy postgresql://…        forwards bytes
    python -m faults.ways pooler postgresql://…       deals every transaction to another connection

It prints the address to use, and ends when its standard input is closed.
"""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from stores.postgres.pooler import Pooler
from stores.postgres.proxy import Proxy

TESTS = Path(__file__).parent.parent
POOL_SIZE = 12


class Way:
    """The process, for the length of a block."""

    def __init__(self, kind: str, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "faults.ways", kind, url],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # it tells of every connection that ended in the middle of something
        )
        assert self._process.stdout is not None, "it was asked for"
        self.url = self._process.stdout.readline().decode().strip()
        assert self.url, f"the {kind} did not start"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def freeze(self) -> None:
        """SIGSTOP; returns when it has stopped."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def thaw(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)


async def serve(kind: str, url: str) -> None:
    """Until standard input is closed."""
    async with Pooler(url, POOL_SIZE) if kind == "pooler" else Proxy(url) as way:
        sys.stdout.write(f"{way.url}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
