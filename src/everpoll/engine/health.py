"""Health: whether an app does its work, with the metrics of its pollers."""

from collections.abc import Sequence

from msgspec import Struct

from everpoll.engine.meter import PollerHealth
from everpoll.engine.threads import DaemonThreads


class Health(Struct, frozen=True, kw_only=True):
    """Whether the app does its work, with the poller's metrics."""

    healthy: bool
    worker: PollerHealth | None
    tables: dict[str, PollerHealth] = {}
    """The pollers of adopted tables, by name."""
    services: PollerHealth | None = None
    """The poller of health checks; None where there is no service."""
    loops: int
    threads_left_behind: int = 0
    """Threads of plain functions that have not returned from a function past its timeout."""
    start_error: str | None = None
    """Why `app.run()` could not start its work yet; it keeps trying."""


def health_of(
    worker: PollerHealth | None,
    tables: dict[str, PollerHealth],
    services: PollerHealth | None,
    *,
    loops: int,
    threads: Sequence[DaemonThreads],
    start_error: str | None,
) -> Health:
    """Return the health of an app with these parts: healthy, if each of them is."""
    pollers = [one for one in (worker, services, *tables.values()) if one is not None]
    return Health(
        healthy=all(one.healthy for one in pollers) and start_error is None and all(one.is_healthy for one in threads),
        worker=worker,
        tables=tables,
        services=services,
        loops=loops,
        threads_left_behind=sum(one.left_behind for one in threads),
        start_error=start_error,
    )
