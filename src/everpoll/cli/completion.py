"""Shell completion: completes words, and names from the database.

Promises: a lookup in the database takes at most `LIMIT_S`, changes nothing and prints nothing. If the database is
unavailable, locked or missing, no names are offered.
"""

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable

import typer

from everpoll.cli.session import with_store
from everpoll.monitors.kinds import CHECK_KIND
from everpoll.policy.visible_texts import visible
from everpoll.stores.contract import END_STATES, LIVE_STATES, Store, TaskFilter

LIMIT_S = 1.0
NEWEST = 200
"""How many jobs, or services, are read for their names."""


def job_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the newest jobs."""

    async def names(store: Store) -> Iterable[str]:
        return [task.name for task in (await store.tasks(TaskFilter(kind="job"), NEWEST)).tasks]

    return _starting_with(incomplete, _looked_up(context, names))


def queue_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the queues that have tasks, are paused, or have a worker."""

    async def names(store: Store) -> Iterable[str]:
        served = [queue for worker in await store.workers() if worker.is_alive for queue in worker.queues]
        return [*(queue.queue for queue in await store.queues()), *served]

    return _starting_with(incomplete, _looked_up(context, names))


def service_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of monitored services."""

    async def names(store: Store) -> Iterable[str]:
        page = await store.tasks(TaskFilter(kind=CHECK_KIND), NEWEST)
        return [task.key for task in page.tasks if task.ended_at is None and task.key is not None]

    return _starting_with(incomplete, _looked_up(context, names))


def job_states(incomplete: str) -> list[str]:
    """Return the states of jobs."""
    return _starting_with(incomplete, (*LIVE_STATES, *END_STATES))


def end_states(incomplete: str) -> list[str]:
    """Return the states of jobs that have ended."""
    return _starting_with(incomplete, END_STATES)


def _starting_with(incomplete: str, words: Iterable[str]) -> list[str]:
    """Return the matching words, each once and in order; words with control characters are left out."""
    return sorted({word for word in words if word.startswith(incomplete) and visible(word) == word})


def _looked_up(context: typer.Context, names: Callable[[Store], Awaitable[Iterable[str]]]) -> Iterable[str]:
    """Ask the database for names; after LIMIT_S, or if it cannot answer, there are none."""
    found: list[str] = []

    def look() -> None:
        # Ignore all errors: they would be printed in the middle of the line that the user types.
        with contextlib.suppress(BaseException):
            found.extend(with_store(context.params.get("url"), names))

    logging.disable()
    looking = threading.Thread(target=look, name="everpoll-completion", daemon=True)
    looking.start()
    looking.join(LIMIT_S)
    if looking.is_alive():
        # A lookup of a host name that hangs would keep the process from ending, and with it the shell's prompt.
        sys.stdout.flush()
        os._exit(0)
    return found
