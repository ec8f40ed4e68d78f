"""Processes that run plain functions: a few children, reused, each of which can be ended.

    start ──▶ idle ──request──▶ busy ──answer──▶ idle
                                  ├── timeout, cancel ──▶ SIGTERM, then SIGKILL, with all that it started
                                                                   └── it exits ──▶ exit code or signal, in the error

Promises: a child is a new interpreter, so nothing of the worker's memory is copied. A call that times out or is
canceled returns once its process has ended. A child exits when its worker has ended. There are never more children than
`limit`; calls wait for a free one. Requests and answers are JSON. The timeout of a call counts from the moment at which
the child has imported the function's module.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from everpoll.errors import JobTimeout, ProcessEnded

logger = logging.getLogger("everpoll.engine")

TERM_S = 1.0
"""How long a child may take to end after SIGTERM."""
CLOSE_S = 2.0
HEAD_BYTES = 4
START_S = 120.0
"""How long a child may take to start and to import the module of its function."""


class Child:
    """One process."""

    def __init__(self, process: "subprocess.Popen[bytes]", reader: asyncio.StreamReader, writer: Any) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls, module: str) -> "Child":
        """Start a new interpreter that runs this module of everpoll."""
        ours, theirs = socket.socketpair()
        starting = asyncio.ensure_future(asyncio.to_thread(_started, module, theirs))
        try:
            process = await asyncio.shield(starting)
        except BaseException:
            # A thread cannot be canceled: the process may exist already, and ends once it reads the end of its pipe.
            ours.close()
            starting.add_done_callback(_leave)
            raise
        reader, writer = await asyncio.open_connection(sock=ours)
        return cls(process, reader, writer)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    async def ask(self, request: bytes) -> bytes:
        """Send a request. Return b"" once its function begins, or an error that the child answers before that."""
        with contextlib.suppress(ConnectionError):  # the process has ended: the read below tells how
            self._writer.write(len(request).to_bytes(HEAD_BYTES, "big") + request)
            await self._writer.drain()
        return await self.answer()

    async def answer(self) -> bytes:
        """Return the answer; raise `ProcessEnded` if the process has ended without one."""
        try:
            size = int.from_bytes(await self._reader.readexactly(HEAD_BYTES), "big")
            return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise ProcessEnded(_end(await self._waited())) from None

    async def end(self) -> None:
        """End the process and all that it started: SIGTERM, then SIGKILL.

        Returns once it has ended, even if canceled.
        """
        ending = asyncio.ensure_future(self._end())
        while not ending.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(ending)

    async def _end(self) -> None:
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, TERM_S)
        # Also if the process itself has ended: processes that it started may still run.
        self._signal(signal.SIGKILL)
        await self._waited()
        self._writer.close()

    async def end_idle(self) -> None:
        """Make an idle process exit."""
        self._writer.close()
        try:
            await asyncio.to_thread(self._process.wait, CLOSE_S)
        except subprocess.TimeoutExpired:
            await self.end()

    async def _waited(self) -> int:
        return await asyncio.to_thread(self._process.wait)

    def _signal(self, which: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, which)


class ChildProcesses:
    """The children of one app. They run `module`, and there are at most `limit` of them; None: one per CPU."""

    def __init__(self, module: str, limit: int | None) -> None:
        self._module = module
        self.limit = limit or os.cpu_count() or 1
        self._idle: list[Child] = []
        self._all: set[Child] = set()
        self._permits: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    def __len__(self) -> int:
        return sum(child.is_alive for child in self._all)

    @property
    def busy(self) -> int:
        """How many children start, or run a function."""
        return len(self) - sum(child.is_alive for child in self._idle)

    async def call(self, request: Any, timeout_s: float | None, on_begin: Callable[[], None]) -> bytes:
        """Run a request in a free child. The timeout counts from the start of its function, which also calls
        `on_begin`.

        Raises `JobTimeout` or `ProcessEnded`. At the timeout, or if the caller is canceled, it ends the child first.
        """
        async with self._permit():
            child = await self._child()
            start, limit = asyncio.timeout(START_S), asyncio.timeout(timeout_s)
            try:
                async with start:
                    answer = await child.ask(msgspec.json.encode(request))
                on_begin()
                if not answer:
                    async with limit:
                        answer = await child.answer()
            except BaseException as error:
                self._all.discard(child)
                await child.end()
                if isinstance(error, TimeoutError) and start.expired():
                    raise JobTimeout(
                        f"its module was not imported within {START_S:g} s; its process was ended"
                    ) from None
                if isinstance(error, TimeoutError) and limit.expired():
                    raise JobTimeout(
                        f"took longer than its timeout of {timeout_s:g} s; its process was ended"
                    ) from None
                raise
            self._idle.append(child)
            return answer

    async def _child(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
            self._all.discard(child)
            await child.end()
        child = await Child.start(self._module)
        self._all.add(child)
        return child

    def _permit(self) -> asyncio.Semaphore:
        # A semaphore belongs to the event loop on which a task first had to wait for it.
        event_loop = asyncio.get_running_loop()
        if self._permits is None or self._permits[0] is not event_loop:
            self._permits = (event_loop, asyncio.Semaphore(self.limit))
            self._idle.clear()
        return self._permits[1]

    async def close(self) -> None:
        """Stop all children; a later call starts new ones."""
        idle, self._idle, self._all = self._idle, [], set()
        await asyncio.gather(*(child.end_idle() for child in idle))


def _started(module: str, theirs: socket.socket) -> "subprocess.Popen[bytes]":
    # Closed here and nowhere else: until the process has it, no other file may get its number.
    with theirs:
        return subprocess.Popen(  # noqa: S603 - our own interpreter, our own module
            [sys.executable, "-m", module, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            # A process group of its own: processes that it starts end with it, and Ctrl-C reaches only the worker.
            start_new_session=True,
        )


def _leave(starting: "asyncio.Future[subprocess.Popen[bytes]]") -> None:
    """Wait in a thread for the end of a process whose call was canceled while it started."""
    if not starting.cancelled() and starting.exception() is None:
        threading.Thread(target=starting.result().wait, name="everpoll-reaper", daemon=True).start()


def _end(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code} before it answered"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    memory = "; perhaps the system ran out of memory" if -code == signal.SIGKILL else ""
    return f"its process was killed by {name} ({-code}){memory}"
