"""Calling the user's functions of a watch, each within its time.

Promises: no call takes longer than the timeout of its watch, nor, but for a moment, than what is left of the budget
that it uses up: that of the run, of its cancel or of its cleanup. What a function returns after the pool has abandoned
it is ignored.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from everpoll.watches.context import LookContext
from everpoll.watches.functions import UserFunction
from everpoll.watches.planning import Planning
from everpoll.watches.schedule import call_limit_s


class Calling(Planning):
    """One lease of one run, and the calls that it makes."""

    @property
    def _cancel_left_s(self) -> float:
        """What is left of the cancel's budget."""
        since = self._memory.canceling_at
        return self._policy.cancel_s - (0.0 if since is None else max(0.0, self._now - since))

    async def _ask(self, context: LookContext, remote: str) -> Any:
        """Look at the operation."""
        self._asking = remote
        self._memory.remote = None if remote == self._watch.name else remote
        began = asyncio.get_running_loop().time()
        try:
            return await self._within("look", lambda limit_s: self._watch.ask(limit_s, self._op, context, remote))
        finally:
            self._look_took_s = round(asyncio.get_running_loop().time() - began, 6)

    async def _call(self, what: str, function: UserFunction, w: LookContext | None = None) -> Any:
        """Call one of the other functions."""
        memory = self._memory

        def call(limit_s: float) -> Coroutine[Any, Any, Any]:
            return function(limit_s, self._op, key=self._key, handle=memory.handle, outcome=memory.outcome, w=w)

        return await self._within(what, call)

    async def _within(self, what: str, call: Callable[[float], Coroutine[Any, Any, Any]]) -> Any:
        run = self._run
        self._calling, self._limit_s = what, call_limit_s(self._policy.timeout_s, *self._left())
        run.ends_by(asyncio.get_running_loop().time() + self._limit_s)
        try:
            answer = await call(self._limit_s)
        finally:
            run.ends_by(None)
        if run.is_abandoned:
            raise asyncio.CancelledError(f"{what} has ended after it was abandoned")
        return answer

    def _left(self) -> tuple[float, float]:
        """What is left of the budget that a call uses up now, and the whole of it."""
        memory, now, policy = self._memory, self._now, self._policy
        if memory.outcome is not None:
            since = now if memory.cleanup_at is None else memory.cleanup_at
            return policy.cleanup.remaining_s(now - since), policy.cleanup.time_s
        if self._lease.cancel_requested:
            return self._cancel_left_s, policy.cancel_s
        return policy.budget.remaining_s(memory.elapsed_s(now)), policy.budget.time_s
