"""One competitor in one setting, measured in a process of its own and in an environment of its own.

The process prints `ready` when it is set up, as often as it wants, and waits for the order to go on. It answers with
one line of JSON, and stays until the next order, so that the CPU time of its database sessions can be read.

    started ──▶ ready ──go()──▶ … ──▶ answered ──go()──▶ … ──▶ ended
"""

import atexit
import functools
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.environments import node_of, python_of
from bench.quiet import machine_cpu_s, process_cpu_s, wait_until_quiet

ROOT = Path(__file__).parent.parent
LIMIT_S = 240.0
ERROR_CHARS = 2_000

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Arm:
    """The system that is measured, and its settings."""

    name: str
    peer: str
    """Its environment."""
    module: str
    """Its file in bench/arms/: a module of Python, or `….mjs` for Node."""
    options: dict[str, Any] = field(default_factory=dict)
    commit: str | None = None
    """The revision of the src/ that it runs; None: the working tree of this folder."""


class ArmFailed(Exception):
    """The process ended or hung instead of answering."""

    @property
    def brief(self) -> str:
        """One line: its first, and what it ended with."""
        lines = str(self).strip().split("\n")
        return f"{lines[0]} {lines[-1]}" if len(lines) > 1 else lines[0]


@functools.cache
def frozen_source(commit: str | None = None) -> Path:
    """A copy of src/ as it is now: what one run compares must be the same from its first round to its last.

    With a commit: as it was then.
    """
    folder = tempfile.mkdtemp(prefix="everpoll-source-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if commit is not None:
        packed = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
        return Path(folder) / "src"
    return Path(shutil.copytree(ROOT / "src", Path(folder) / "src", ignore=shutil.ignore_patterns("__pycache__")))


class Process:
    """A running arm; leaving the block ends it."""

    def __init__(self, arm: Arm, **order: Any) -> None:
        self.arm = arm
        self.quiet_starts: list[bool] = []
        self.our_cpu_s: Callable[[], float] = lambda: process_cpu_s(self.pid)
        """The processes of the measurement; a benchmark that runs a server adds that one."""
        self._before = (0.0, 0.0, 0.0)
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self.limit_s = LIMIT_S
        """How long it may take to say something."""
        command = [*_program(arm), json.dumps({**arm.options, **order})]
        # Only everpoll and the bare references need src/: peers must not see it.
        places = [str(frozen_source(arm.commit))] if arm.peer == "everpoll" else []
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is None:
                self.go()
                self._process.wait(self.limit_s)
        except (OSError, subprocess.TimeoutExpired):
            pass
        finally:
            self._process.kill()
            self._process.communicate()
            self._errors.close()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def ready(self) -> None:
        """Wait until it says so."""
        line = self.line()
        if line.get("is_ready") is not True:
            raise ArmFailed(f"{self.arm.name} was to become ready, and answered {line}")

    def go(self) -> None:
        """Tell it to go on."""
        assert self._process.stdin is not None, "it was asked for"
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def send_off(self) -> None:
        """Start the arm when the machine is quiet."""
        self.quiet_starts.append(wait_until_quiet())
        self._before = (*machine_cpu_s(), self.our_cpu_s())
        self.go()

    def foreign_share(self) -> float:
        """How much of the machine others have used since it was sent off: near 0 on a quiet one."""
        used, there_was = machine_cpu_s()
        used_then, there_was_then, ours = self._before
        foreign_s = used - used_then - (self.our_cpu_s() - ours)
        return max(0.0, foreign_s / max(there_was - there_was_then, 1e-9))

    def answer(self, *, gated: bool = True) -> Answer:
        """Its next answer; each time it becomes ready before that, it is sent off when the machine is quiet."""
        while True:
            line = self.line()
            if line.get("is_ready") is not True:
                return line
            if gated:
                self.send_off()
            else:
                self.go()

    def line(self) -> Answer:
        """What it says next."""
        watchdog = threading.Timer(self.limit_s, self._process.kill)
        watchdog.start()
        try:
            assert self._process.stdout is not None, "it was asked for"
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            said = self._errors.read()[-ERROR_CHARS:]
            raise ArmFailed(f"{self.arm.name} ended with {self._process.returncode} and said:\n{said}")
        answer: Answer = json.loads(line)
        return answer


def _program(arm: Arm) -> list[str | Path]:
    if not arm.module.endswith(".mjs"):
        try:
            python = python_of(arm.peer)
        except subprocess.CalledProcessError as error:
            raise ArmFailed(f"{arm.name}: its packages cannot be installed: {error}") from error
        return [python, "-m", f"bench.arms.{arm.module}"]
    # Node looks for packages beside the file that imports them.
    node, folder = node_of(arm.peer)
    return [node, shutil.copy(ROOT / "bench" / "arms" / arm.module, folder)]
