"""`make newcomer`: the README's way from `pip install` to a job that is done, in a fresh environment, in seconds.

Clones the last commit into a temporary folder, makes a virtual environment there, and types what the README says:
install, start a worker, enqueue from another program, ask why. It needs Python and git, nothing of `.venv`.
"""

import argparse
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROMISED_S = 120.0
STEP_S = 900.0
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STARTED = "signed on"
DONE = "It is done"


class Failed(Exception):
    """A step of the README did not do what the README says."""


class Newcomer:
    """A person with an empty folder and a clone."""

    def __init__(self, folder: Path, extra: str) -> None:
        self._clone = folder / "clone"
        self._own = folder / "own"
        self._own.mkdir()
        self._extra = extra
        self._bin = self._own / "venv" / "bin"
        # Neither this machine's database nor its modules: the newcomer has none.
        hidden = ("EVERPOLL_", "PYTHONPATH", "VIRTUAL_ENV")
        self._env = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}

    def clone(self) -> None:
        self._run("git", "clone", "--quiet", str(ROOT), str(self._clone))

    def install(self) -> None:
        self._run(sys.executable, "-m", "venv", "venv")
        target = f"{self._clone}[{self._extra}]" if self._extra else str(self._clone)
        self._run(str(self._bin / "pip"), "install", "--quiet", "--disable-pip-version-check", target)

    def save_files(self) -> None:
        """Save the README's first two blocks: the module with the job, and the program that enqueues."""
        shop, order, *_ = BLOCK.findall((self._clone / "README.md").read_text(encoding="utf-8"))
        (self._own / "shop.py").write_text(shop, encoding="utf-8")
        (self._own / "order.py").write_text(order, encoding="utf-8")

    def job_done(self) -> None:
        """Start a worker, enqueue from another program, which waits for the result, and stop the worker."""
        command = [str(self._bin / "everpoll"), "run", "shop:app"]
        with subprocess.Popen(command, cwd=self._own, env=self._env, stderr=subprocess.PIPE, text=True) as worker:
            try:
                assert worker.stderr is not None
                log = [*_through(worker.stderr, STARTED)]
                if STARTED not in log[-1]:
                    raise Failed(f"the worker ended before it started:\n{''.join(log)}")
                self._run(str(self._bin / "python"), "order.py")
            finally:
                worker.send_signal(signal.SIGTERM)

    def ask_why(self) -> None:
        answer = self._run(str(self._bin / "everpoll"), "why", "1")
        if not answer.startswith(DONE):
            raise Failed(f"`everpoll why 1` does not begin with {DONE!r}: {answer}")

    def _run(self, *command: str) -> str:
        ended = subprocess.run(
            command, cwd=self._own, env=self._env, capture_output=True, text=True, timeout=STEP_S, check=False
        )
        if ended.returncode:
            raise Failed(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
        return ended.stdout


def _through(lines: Iterable[str], wanted: str) -> Iterator[str]:
    """Yield lines up to the first that has these words; all of them, and an empty one, if none has."""
    for line in lines:
        yield line
        if wanted in line:
            return
    yield ""


def timed(label: str, step: Callable[[], None]) -> float:
    """Run a step, print how long it took, and return that."""
    began, busy = time.perf_counter(), _cpu_s()
    step()
    took_s = time.perf_counter() - began
    print(f"{took_s:7.1f} s, {_cpu_s() - busy:5.1f} s of CPU  {label}", flush=True)
    return took_s


def _cpu_s() -> float:
    """Return the CPU time of all processes that were started here and have ended: a busy machine adds nothing to it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extra", default="", help="an extra to install, such as server")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="everpoll-newcomer-") as folder:
        newcomer = Newcomer(Path(folder), options.extra)
        try:
            timed("git clone (not counted)", newcomer.clone)
            total_s = timed("make a virtual environment, pip install", newcomer.install)
            newcomer.save_files()
            total_s += timed("start a worker, enqueue from another program, get the result", newcomer.job_done)
            total_s += timed("everpoll why 1", newcomer.ask_why)
        except Failed as error:
            print(error, file=sys.stderr)
            return 1
    print(f"{total_s:7.1f} s  from pip install to a job done; promised: under {PROMISED_S:.0f} s")
    return 0 if total_s < PROMISED_S else 1


if __name__ == "__main__":
    sys.exit(main())
