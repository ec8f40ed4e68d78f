"""Ports for servers that a test starts, stops and starts again, and for addresses where no server may listen.

A port that the kernel picks (port 0) is no longer reserved once its socket is closed: the kernel may give it to any
client connection or to a server of another test, before the test's own server takes it, or while that server is down.
So a reserved port lies below the range that the kernel picks from, and a lock file keeps it from other test processes.
"""

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

LOCKS = Path(tempfile.gettempdir()) / f"everpoll-test-ports-{os.getuid()}"
LOWEST = 12_000
PICKED_BY_THE_KERNEL = Path("/proc/sys/net/ipv4/ip_local_port_range")
DEFAULT_FIRST_PICKED = 32_768
TRIES = 1_000

_held: list[int] = []
"""The descriptors of the lock files: a lock ends with the process."""


def reserved_port() -> int:
    """Return a loopback port that nothing listens on and that no other test process gets while this one lives."""
    LOCKS.mkdir(mode=0o700, exist_ok=True)
    chance = random.SystemRandom()
    for _ in range(TRIES):
        port = chance.randrange(LOWEST, _first_picked())
        if _lock(port) and _is_free(port):
            return port
    raise RuntimeError(f"found no free port between {LOWEST} and {_first_picked()} in {TRIES} tries")


def _first_picked() -> int:
    """Return the lowest port that the kernel gives to sockets that ask for any."""
    if PICKED_BY_THE_KERNEL.exists():
        return max(LOWEST + TRIES, int(PICKED_BY_THE_KERNEL.read_text().split()[0]))
    return DEFAULT_FIRST_PICKED


def _lock(port: int) -> bool:
    descriptor = os.open(LOCKS / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    _held.append(descriptor)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
