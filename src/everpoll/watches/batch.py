"""Looks that are made together: one remote list call serves many due runs.

Promises: each run has its own verdict, or the error that the call raised. The call begins a moment after the first run
asks, so that those leased with it are in the same call. Never more than BATCH in one call.
"""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from everpoll.errors import BadInput
from everpoll.policy import shown
from everpoll.watches.context import LookContext

BATCH = 500
GATHER_S = 0.005


class Batch:
    """The looks of one watch that wait for each other."""

    def __init__(self, where: str, function: Callable[..., Any]) -> None:
        if not inspect.iscoroutinefunction(function):
            raise BadInput(f"{where}: look_many must be an async function")
        self._where = where
        self._function = function
        self._waiting: list[tuple[Any, LookContext, asyncio.Future[Any]]] = []
        self._calls: set[asyncio.Task[None]] = set()

    async def ask(self, op: Any, context: LookContext) -> Any:
        """The verdict on one run."""
        event_loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = event_loop.create_future()
        self._waiting.append((op, context, answer))
        if len(self._waiting) == 1:
            event_loop.call_later(GATHER_S, self._send)
        elif len(self._waiting) >= BATCH:
            self._send()
        return await answer

    def _send(self) -> None:
        batch, self._waiting = self._waiting, []
        batch = [one for one in batch if not one[2].done()]
        if batch:
            call = asyncio.get_running_loop().create_task(self._call(batch), name="everpoll-look-many")
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def _call(self, batch: list[tuple[Any, LookContext, "asyncio.Future[Any]"]]) -> None:
        try:
            verdicts = list(await self._function([(op, context) for op, context, _ in batch]))
            if len(verdicts) != len(batch):
                raise BadInput(
                    f"{self._where}: look_many was given {len(batch)} runs and returned {len(verdicts)} verdicts: "
                    f"{shown(verdicts)}; it returns one for each, in order"
                )
        except asyncio.CancelledError:
            for _, _, answer in batch:
                answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - every run hears of it
            for _, _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, _, answer), verdict in zip(batch, verdicts, strict=True):
            if answer.done():
                continue
            if isinstance(verdict, BaseException):
                answer.set_exception(verdict)
            else:
                answer.set_result(verdict)
