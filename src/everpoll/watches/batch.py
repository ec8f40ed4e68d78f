"""Batched looks: one call of `look_many` serves many due runs.

Promises: each run gets its own verdict, or the error that the call raised. The call begins GATHER_S after the first run
joins it, so that runs leased together share it. A call has at most BATCH runs, and counts once for the remote's rate. A
run that is canceled or times out does not disturb the others. Once no run waits for a call, the call is canceled.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from everpoll.errors import BadInput, JobTimeout
from everpoll.logs.context import SUBJECT, Subject
from everpoll.policy import shown
from everpoll.watches.context import LookContext

BATCH = 500
GATHER_S = 0.005

Waiting = tuple[Any, LookContext, "asyncio.Future[Any]"]


class Batch:
    """The runs of one watch that wait for the next call of `look_many`."""

    def __init__(self, where: str, function: Callable[..., Any], subject: Subject | None = None) -> None:
        self._where = where
        self._function = function
        self._subject = subject
        self._waiting: list[Waiting] = []
        self._send_timer: asyncio.TimerHandle | None = None
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self._remotes: set[str] = set()
        self._number = 0

    def is_gathering_for(self, remote: str) -> bool:
        """Return True if runs for a call to this remote are being gathered: another run causes no further call."""
        return self._event_loop is asyncio.get_running_loop() and bool(self._waiting) and remote in self._remotes

    async def look(self, op: Any, context: LookContext, remote: str, limit_s: float) -> Any:
        """Join the next call and return the verdict on this run; raise `JobTimeout` after `limit_s`."""
        event_loop = asyncio.get_running_loop()
        if self._event_loop is not event_loop:
            # Runs that waited on an earlier event loop ended with it.
            self._event_loop, self._send_timer, self._waiting, self._calls = event_loop, None, [], set()
            self._remotes = set()
        answer: asyncio.Future[Any] = event_loop.create_future()
        self._waiting.append((op, context, answer))
        self._remotes.add(remote)
        if len(self._waiting) >= BATCH:
            self._send()
        elif self._send_timer is None:
            self._send_timer = event_loop.call_later(GATHER_S, self._send)
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                return await answer
        except TimeoutError as error:
            if limit.expired():
                raise JobTimeout(f"look_many took longer than the timeout of {round(limit_s, 3):g} s") from error
            raise

    def _send(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
        batch, self._waiting, self._send_timer = self._waiting, [], None
        self._remotes = set()
        batch = [one for one in batch if not one[2].done()]
        if batch:
            call = asyncio.get_running_loop().create_task(self._call(batch), name="everpoll-look-many")
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
            left = len(batch)

            def cancel_if_unwanted(_answer: "asyncio.Future[Any]") -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    call.cancel()

            for _, _, answer in batch:
                answer.add_done_callback(cancel_if_unwanted)

    async def _call(self, batch: list[Waiting]) -> None:
        SUBJECT.set(self._subject)  # without this, log lines of the call would name its first run
        self._number += 1
        for _, context, _ in batch:
            context.call = self._number
        try:
            verdicts = await self._function([(op, context) for op, context, _ in batch])
            if not isinstance(verdicts, Iterable) or isinstance(verdicts, str | Mapping):
                raise BadInput(f"{self._where}: look_many returned {shown(verdicts)}; it returns a list of verdicts")
            verdicts = list(verdicts)
            if len(verdicts) != len(batch):
                raise BadInput(
                    f"{self._where}: look_many was given {len(batch)} runs and returned {len(verdicts)} verdicts: "
                    f"{shown(verdicts)}; it returns one verdict for each run, in the same order"
                )
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            for _, _, answer in batch:
                _answer(answer, error)
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        for (_, _, answer), verdict in zip(batch, verdicts, strict=True):
            _answer(answer, verdict)


def _answer(answer: "asyncio.Future[Any]", verdict: Any) -> None:
    if answer.done():
        return
    if isinstance(verdict, (StopIteration, GeneratorExit)):
        # A future cannot carry these: they would end the coroutine that awaits it.
        answer.set_exception(RuntimeError(f"look_many has raised {type(verdict).__name__}"))
    elif isinstance(verdict, BaseException):
        answer.set_exception(verdict)
    else:
        answer.set_result(verdict)
