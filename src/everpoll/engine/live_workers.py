"""Which workers are alive, as far as this host can tell: a killed one looks alive to the store for a while."""

import os
import socket
from collections.abc import Sequence

from everpoll.stores.contract import WorkerInfo


def ended_here(workers: Sequence[WorkerInfo]) -> set[int]:
    """Return the incarnations of workers that signed on from this host and whose process does not exist any more."""
    host = socket.gethostname()
    return {one.incarnation for one in workers if one.host == host and not _exists(one.pid)}


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # the process belongs to another user, or the system does not tell: assume that it exists
    return True


def is_any_alive(workers: Sequence[WorkerInfo]) -> bool:
    """Return whether a live worker can do what a command asks for: every worker checks services, if there are any."""
    gone = ended_here(workers)
    return any(one.is_alive and one.incarnation not in gone for one in workers)
