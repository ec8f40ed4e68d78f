"""Health: whether an app does its work, with the metrics of its pollers."""

from msgspec import Struct

from everpoll.engine.meter import PollerHealth


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
