"""What waits where is read in one snapshot: a task that falls due meanwhile is in one place or the other."""

from collections.abc import Callable
from typing import Any

import pytest

from everpoll.stores.contract import QueueInfo
from everpoll.stores.postgres import PostgresStore
from stores.stage import HOUR_S, Stage


async def test_a_task_that_is_made_ready_between_two_statements_is_not_overlooked(
    stage: Stage, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each statement of the answer, a worker leases what has fallen due."""
    worker = await stage.worker(lease_s=HOUR_S)
    await stage.put_one(delay_s=60)
    await stage.pass_time(61)
    ask: Callable[..., Any] = store._queries.rows

    async def rows(*args: Any) -> Any:
        answer = await ask(*args)
        await stage.take(worker)
        return answer

    monkeypatch.setattr(store._queries, "rows", rows)
    [shown] = await store.queues()
    assert (shown.ready, shown.waiting, shown.running) == (1, 0, 0)
    assert await store.queues() == [QueueInfo(queue="default", ready=0, waiting=0, running=1)]
