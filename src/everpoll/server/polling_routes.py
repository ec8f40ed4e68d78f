"""What polling costs, over HTTP."""

from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from everpoll.http.stored_secrets import without_secrets
from everpoll.server.route import ApiCall, Route
from everpoll.server.shapes import instant_example
from everpoll.stores.contract import TaskFilter
from everpoll.watches.polling_cost import PollingCost, polling_costs
from everpoll.watches.run_info import run_info

RUNS_LIMIT = 500
"""How many runs are read: with logs of up to 40 decisions each, this takes about 20 ms."""


class PollingQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """A filter of runs."""

    watch: str | None = None


class PollingAnswer(Struct, frozen=True, kw_only=True):
    """The cost of polling, by watch and host, most looks first."""

    items: tuple[PollingCost, ...]
    runs: int
    """How many runs were read, newest first: at most 500."""
    is_capped: bool
    """True: there are more runs."""
    since: datetime | None
    """When the oldest of these runs was begun."""


async def show_polling(call: ApiCall) -> PollingAnswer:
    """Answer `GET /api/polling`."""
    store = await call.serving.store()
    page = await store.tasks(TaskFilter(name=call.query.watch, kind="watch", indexed=True), RUNS_LIMIT, None)
    infos = [run_info(task) for task in page.tasks]
    return PollingAnswer(
        items=tuple(_safe(one) for one in polling_costs(infos)),
        runs=len(infos),
        is_capped=page.after is not None,
        since=min((one.created_at for one in infos), default=None),
    )


def _safe(cost: PollingCost) -> PollingCost:
    """Mask secrets in the host, which a remote may have written."""
    return replace(cost, host=without_secrets(cost.host))


_COST: dict[str, Any] = {
    "watch": "shell_query",
    "host": "shell.example.com",
    "runs": 12,
    "looks": 480,
    "changes": 36,
    "floors": [{"floor_s": 10.0, "looks": 200, "saved": 280, "later_s": 2.5}],
}

POLLING_ROUTES = [
    Route(
        method="GET",
        path="/api/polling",
        noun="runs",
        summary="Show the cost of polling by watch and host: looks, useful changes, savings by longer waits.",
        handler=show_polling,
        query=PollingQuery,
        answer=PollingAnswer,
        example={"items": [_COST], "runs": 12, "is_capped": False, "since": instant_example(0)},
    ),
]
