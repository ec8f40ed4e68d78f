"""Health and readiness, for load balancers and orchestrators."""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from everpoll.engine.health import Health
from everpoll.engine.meter import PollerHealth
from everpoll.http.stored_secrets import without_secrets
from everpoll.server.answers import Reply
from everpoll.server.prober import StoreHealth
from everpoll.server.route import ApiCall, Route

HIDDEN = "an error; callers with a token see its text"


class HealthAnswer(Struct, frozen=True, kw_only=True):
    """Whether this process does its work, with the metrics of its pollers."""

    healthy: bool
    store: StoreHealth | None
    """Whether the database answers; null if the app has no work in one."""
    worker: PollerHealth | None
    tables: dict[str, PollerHealth]
    services: PollerHealth | None
    loops: int
    threads_left_behind: int
    start_error: str | None


class Ready(Struct, frozen=True):
    """Whether this process can take requests."""

    ready: bool
    why: str | None = None


async def show_health(call: ApiCall) -> Reply:
    """Answer `GET /health`."""
    app, prober = call.serving.app, call.serving.prober
    store: StoreHealth | None = None
    if call.serving.needs_store:
        await prober.begin()
        store = prober.health()
    answer = _answer(app.health(), store, shows_errors=call.role is not None)
    return Reply(answer, 200 if answer.healthy else 503, {"Cache-Control": "no-store"})


async def show_readiness(call: ApiCall) -> Reply:
    """Answer `GET /ready`."""
    app, prober = call.serving.app, call.serving.prober
    why = app.health().start_error
    if call.serving.needs_store and why is None:
        await prober.begin()
        why = None if prober.is_answered else prober.health().last_error
    ready = Ready(why is None, None if why is None else str(without_secrets(why)))
    return Reply(ready, 200 if ready.ready else 503, {"Cache-Control": "no-store"})


def _answer(health: Health, store: StoreHealth | None, *, shows_errors: bool) -> HealthAnswer:
    def safe_error(error: str | None) -> str | None:
        return None if error is None else str(without_secrets(error)) if shows_errors else HIDDEN

    def safe(one: PollerHealth | None) -> PollerHealth | None:
        return None if one is None else replace(one, last_error=safe_error(one.last_error))

    return HealthAnswer(
        healthy=health.healthy and (store is None or store.healthy),
        store=None if store is None else replace(store, last_error=safe_error(store.last_error)),
        worker=safe(health.worker),
        tables={name: safe(one) or one for name, one in health.tables.items()},
        services=safe(health.services),
        loops=health.loops,
        threads_left_behind=health.threads_left_behind,
        start_error=safe_error(health.start_error),
    )


_POLLER: dict[str, Any] = {
    "healthy": True,
    "polling": True,
    "consecutive_errors": 0,
    "last_error": None,
    "polls_per_minute": 12.0,
    "rows_per_poll": 0.4,
    "lease_success_rate": 1.0,
    "lease_latency_s": 0.002,
    "push": True,
    "waiting_s": 30.0,
    "running": 1,
    "slots": 50,
    "stopping": 0,
    "heartbeat_age_s": 3.2,
    "is_fenced": False,
}

HEALTH_ROUTES = [
    Route(
        method="GET",
        path="/health",
        noun="health",
        summary="Tell whether this process does its work. 503: it does not, or its database is unavailable.",
        handler=show_health,
        answer=HealthAnswer,
        also=(503,),
        access="public",
        example={
            "healthy": True,
            "store": {"healthy": True, "consecutive_errors": 0, "last_error": None},
            "worker": _POLLER,
            "tables": {},
            "services": None,
            "loops": 2,
            "threads_left_behind": 0,
            "start_error": None,
        },
        limit_s=5.0,
    ),
    Route(
        method="GET",
        path="/ready",
        noun="health",
        summary="Tell whether this process can take requests: it has started, and its database answers.",
        handler=show_readiness,
        answer=Ready,
        also=(503,),
        example={"ready": True, "why": None},
        limit_s=5.0,
    ),
]
