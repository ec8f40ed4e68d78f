"""Programs in processes of their own that start without imports, for a tenth of the CPU time: see `warm_server`.

`started` and `run` stand for `subprocess.Popen` and `subprocess.run` of `[sys.executable, …]`, for tests that prove
what a program does, not how it is imported. Tests of imports, of interpreter options and of the installed command use
`subprocess`.
"""

import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

TESTS = Path(__file__).parent
PIPE = subprocess.PIPE
Completed = subprocess.CompletedProcess


class Server:
    """The process that forks, one for each test process; it ends when its socket closes, with all its children."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self._socket = ours
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(TESTS / "warm_server.py"), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
            )

    def fork(self, arguments: Sequence[str], cwd: str, env: Mapping[str, str], streams: Sequence[int]) -> int:
        """Start a program; return the pipe on which the server writes its process id and, at its end, its exit code."""
        reader, writer = os.pipe()
        request = json.dumps({"arguments": list(arguments), "cwd": cwd, "env": dict(env)}).encode()
        try:
            with self._lock:
                socket.send_fds(self._socket, [request], [writer, *streams])
        finally:
            os.close(writer)
        return reader


@functools.cache
def _server() -> Server:
    return Server()


class WarmProcess:
    """A program that runs, with as much of `subprocess.Popen` as tests use."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | socket.socket | None = None,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
    ) -> None:
        """PIPE: we write or read that stream, as text. None: nothing comes in; what goes out goes where ours goes."""
        self.args = arguments
        self.returncode: int | None = None
        self.stdin: IO[str] | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        with contextlib.ExitStack() as until:
            streams = [self._opened(until, stdin)]
            for number, name, wanted in ((1, "stdout", stdout), (2, "stderr", stderr)):
                if wanted == PIPE:
                    ours, end = os.pipe()
                    until.callback(os.close, end)
                    setattr(self, name, open(ours, encoding="utf-8"))  # noqa: PTH123, SIM115 - a pipe
                elif wanted is None:
                    end = number
                else:
                    end = wanted if isinstance(wanted, int) else wanted.fileno()
                streams.append(end)
            environment = os.environ if env is None else env
            report = _server().fork(arguments, str(cwd or Path.cwd()), environment, streams)
        self._report = os.fdopen(report, "r")
        weakref.finalize(self, self._report.close)
        self._read = {"stdout": "", "stderr": ""}
        self._readers: list[threading.Thread] = []
        line = self._report.readline()
        assert line, f"the warm server has ended; it did not start {arguments}"
        self.pid = int(line)

    def _opened(self, until: contextlib.ExitStack, wanted: int | socket.socket | None) -> int:
        """Return the descriptor from which the program reads; it is closed here with `until`, unless it is given."""
        if isinstance(wanted, socket.socket):
            return wanted.fileno()
        if wanted == PIPE:
            end, ours = os.pipe()
            self.stdin = open(ours, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - a pipe
        else:
            assert wanted is None, "PIPE, a socket or None"
            end = os.open(os.devnull, os.O_RDONLY)
        until.callback(os.close, end)
        return end

    def poll(self) -> int | None:
        """Return the exit code, or None while the program runs."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return the exit code."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._report], [], [], timeout)[0]:
            line = self._report.readline()
            assert line, f"the warm server has ended; how {self.args} ended is unknown"
            self.returncode = int(line)
            self._report.close()
        return self.returncode

    def send_signal(self, which: int) -> None:
        """Send a signal, unless the program has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, which)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def communicate(self, said: str = "", timeout: float | None = None) -> tuple[str, str]:
        """Write what is said and close its input, read both streams to their end, wait; return what was read."""
        if self.stdin is not None and not self.stdin.closed:
            with contextlib.suppress(BrokenPipeError), self.stdin:
                self.stdin.write(said)
        if not self._readers:
            self._readers = [
                threading.Thread(target=self._drain, args=(name, stream), daemon=True)
                for name, stream in (("stdout", self.stdout), ("stderr", self.stderr))
                if stream is not None and not stream.closed
            ]
            for reader in self._readers:
                reader.start()
        self.wait(timeout)
        for reader in self._readers:
            reader.join(timeout)
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self._read["stdout"], self._read["stderr"]

    def _drain(self, name: str, stream: IO[str]) -> None:
        with stream:
            self._read[name] = stream.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()


def run(
    arguments: Sequence[str],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = False,
    timeout: float = 120.0,
) -> Completed[str]:
    """Run a program to its end, as `subprocess.run` does with `capture_output` and `text`."""
    process = WarmProcess(arguments, cwd=cwd, env=env, stdout=PIPE, stderr=PIPE)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert process.returncode is not None, "communicate waits for it"
    done = Completed([sys.executable, *arguments], process.returncode, out, err)
    if check:
        done.check_returncode()
    return done
