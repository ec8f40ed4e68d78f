"""Waiting for the results of jobs: one batched query serves every caller of this process."""

from collections.abc import Sequence

from everpoll.engine.waiters import QUERY_LIMIT, Cadence, Waiter, Waiters
from everpoll.policy import Backoff
from everpoll.stores.contract import Store, TaskInfo

__all__ = ["QUERY_LIMIT", "Results"]

# Most jobs end soon, so the first queries come quickly; a long wait costs one query a second for all callers. `sweep_s`
# is a little less than a second, because the query before may have been late.
CADENCE = Cadence(Backoff("20ms", factor=1.5, cap="1s", jitter=0), sweep_s=0.9, fresh_s=2.0)


class Results(Waiters[None, TaskInfo]):
    """The callers of one process that wait for jobs."""

    def __init__(self, store: Store) -> None:
        closed = "the app was closed before the task had ended; ask for its result again later"
        super().__init__(store, self._answer, CADENCE, closed)

    async def wait(self, task_id: int) -> TaskInfo:
        """Wait until the task has ended and return it."""
        return await self.ask(task_id, None)

    async def _answer(self, waiters: Sequence[Waiter[None, TaskInfo]]) -> list[int]:
        ended = await self._store.ended(list({one.task_id for one in waiters}))
        for one in waiters:
            if (task := ended.get(one.task_id)) is not None:
                one.resolve(task)
        return [task_id for task_id, task in ended.items() if task is None]
