"""Plain functions at the top of a module, for processes of their own; `everpoll run jobs.heavy:app` runs them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from msgspec import Struct

from everpoll import Backoff, Cancel, Everpoll, Hopeless, Retry, Snooze

app = Everpoll(
    os.environ.get("EVERPOLL_URL", "memory://"),
    lease="10s",
    slots=int(os.environ.get("HEAVY_SLOTS", "50")),
    processes=2,
)
ONCE = Retry(1)


class Image(Struct):
    width: int
    height: int


@app.job(run="process", retry=ONCE)
def resize(image: Image, by: int) -> Image:
    return Image(image.width * by, image.height * by)


@app.job(run="process", retry=ONCE)
def who() -> int:
    return os.getpid()


@app.job(run="process", retry=ONCE)
def loaded() -> list[str]:
    return sorted(name for name in sys.modules if name.startswith("pytest"))


@app.job(run="process", retry=Retry(2, Backoff("1ms")), fatal=(KeyError,))
def fails(how: str) -> None:
    if how == "raise":
        raise ValueError("not so")
    if how == "fatal":
        raise KeyError("gone")
    if how == "hopeless":
        raise Hopeless("never")
    if how == "exit":
        os._exit(3)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(7)


@app.job(run="process", retry=ONCE)
def odd(what: str) -> object:
    return {"snooze": Snooze("1h"), "cancel": Cancel("enough"), "object": object(), "none": None}[what]


@app.job(run="process", retry=ONCE)
def closes_its_output() -> str:
    sys.stdout.close()
    return "done"


def _forget_me() -> None:
    raise KeyError("gone")


forgetful = app.job(run="process", retry=Retry(2, Backoff("1ms")), fatal=(KeyError,), name="forgetful")(_forget_me)


@app.job(run="process", retry=ONCE)
def forks() -> str:
    child = os.fork()
    if child == 0:
        return "child"
    os.waitpid(child, 0)
    return "parent"


def _tell(file: str) -> None:
    Path(f"{file}.tmp").write_text(str(os.getpid()))
    Path(f"{file}.tmp").rename(file)


@app.job(run="process", retry=ONCE)
def spins(file: str) -> None:
    """Deaf to SIGTERM, in a loop that no exception of Python ends, with a process of its own beside it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    started = subprocess.Popen(["sleep", "300"])
    Path(f"{file}.started").write_text(str(started.pid))
    _tell(file)
    while True:
        time.sleep(1)


@app.job(run="process", retry=ONCE, timeout="500ms", name="spins_briefly")
def spins_briefly(file: str) -> None:
    _tell(file)
    while True:
        time.sleep(1)
