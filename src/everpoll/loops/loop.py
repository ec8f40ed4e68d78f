"""One loop as its user holds it: a thin asyncio shell around the reducer.

Promises: the function never overlaps itself, whatever is called when, even where a thread or a function that
suppresses its cancellation goes on after it was canceled: the run counts as under way until it has really ended.
Never: a decision of its own. It reads the clock, asks the reducer, and does what the effect says.
"""

import asyncio
import contextvars
import inspect
import reprlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from everpoll.loops.events import (
    Close,
    Effect,
    Event,
    Finished,
    Pause,
    PushDown,
    PushUp,
    Replace,
    Reset,
    Resume,
    Start,
    Tick,
    Trigger,
)
from everpoll.loops.narration import logger, narrate
from everpoll.loops.options import Condition, Hook, LoopPolicy, pause_reason
from everpoll.loops.outcome import SUCCESS, TIMED_OUT, Ok, failure, judge, short
from everpoll.loops.reducer import CANCELED, CONDITION_SKIP, initial, step
from everpoll.loops.state import Life, LoopState, Outcome
from everpoll.policy import Duration, PauseReason

if TYPE_CHECKING:
    from everpoll.loops.registry import Loops

_TICK = Tick()
_NO_VALUE = object()


class Loop:
    """A named function that runs again and again; see `state` for where it stands."""

    # 100,000 of these live in one process: slots, and lists only while somebody waits.
    __slots__ = (
        "_asks_at_once",
        "_condition",
        "_function",
        "_hook",
        "_in_loop",
        "_joined",
        "_last_value",
        "_loops",
        "_name",
        "_policy",
        "_state",
        "_task",
        "_thread",
        "_waiting",
        "_warned",
        "entry",
    )

    def __init__(self, loops: "Loops", name: str, function: Callable[[], Any], policy: LoopPolicy) -> None:
        self._loops = loops
        self._name = name
        self._state = initial(policy)
        self._task: asyncio.Task[None] | None = None
        self._thread: asyncio.Future[Any] | None = None
        self._waiting: list[asyncio.Future[Outcome]] | None = None
        self._joined: list[asyncio.Future[Outcome]] | None = None
        self.entry: object | None = None
        self._become(function, policy, None, None)

    def __repr__(self) -> str:
        return f"<Loop {self._name!r} {self._state.phase.value}>"

    @property
    def name(self) -> str:
        """Its name, unique in the app."""
        return self._name

    @property
    def policy(self) -> LoopPolicy:
        """The options that it was registered with, checked."""
        return self._policy

    @property
    def state(self) -> LoopState:
        """A frozen snapshot of this instant."""
        return self._state

    @property
    def next_due_at(self) -> datetime | None:
        """When it runs next, by the wall clock: for display, decisions are made on the monotonic one."""
        return self._on_wall(self._state.next_due)

    @property
    def last_ok_at(self) -> datetime | None:
        """When it succeeded last, by the wall clock."""
        return self._on_wall(self._state.last_ok)

    def trigger(self, *, force: bool = False) -> "asyncio.Future[Outcome]":
        """Run now, whatever the delay, the condition or the breaker say; await the answer, or do not.

        During a run, any number of triggers become one run after it. A loop that an operator paused is left alone
        unless `force` is set; the answer then says "skipped".
        """
        event_loop = self._loops._event_loop_for(f"trigger loop {self._name!r}")
        answer: asyncio.Future[Outcome] = event_loop.create_future()
        match self._step(Trigger(force)):
            case Effect.RUN:
                self._waiting = [answer]
            case Effect.JOIN:
                self._joined = [*(self._joined or ()), answer]
            case _:
                answer.set_result(self._skipped())
        return answer

    def pause(self, reason: PauseReason | str = PauseReason.OPERATOR) -> None:
        """Start no more runs until every reason is gone; a run under way goes on."""
        self._step(Pause(pause_reason(reason)))

    def resume(self, reason: PauseReason | str = PauseReason.OPERATOR) -> None:
        """Take one reason away. A loop whose time is over runs at once, another keeps the time that remains."""
        self._step(Resume(pause_reason(reason)))

    def reset(self) -> None:
        """Forget failures, breaker and adapted interval; a stopped loop starts again."""
        self._step(Reset())

    def push_connected(self) -> None:
        """Push works: look once now, then poll at `safety_every` only. Call `trigger()` for each push."""
        self._step(PushUp())

    def push_lost(self) -> None:
        """Push is gone: polling carries alone, at once if the last look is too old already."""
        self._step(PushDown())

    async def close(self, grace: Duration = 0) -> None:
        """Remove this loop; a run under way gets the grace period to end, then it is canceled."""
        if self._name in self._loops and self._loops[self._name] is self:
            await self._loops.remove(self._name, grace)

    # What follows is the registry's side of a loop.

    def _start(self) -> None:
        """Schedule the first run."""
        self._step(Start())

    def _take_over(
        self, function: Callable[[], Any], policy: LoopPolicy, condition: Condition | None, hook: Hook | None
    ) -> None:
        """Carry another function under the same name; a run of the old one ends first, its result is dropped."""
        self._become(function, policy, condition, hook)
        self._step(Replace())

    def _resume_at(self, position: int, reason: PauseReason) -> None:
        """Resume as the one at this position among those that are stale."""
        self._step(Resume(reason, position))

    def _due(self, now: float) -> None:
        """The deadline has come."""
        if self._asks_at_once:
            self._step(Tick(self._ask()), now)
        else:
            self._step(_TICK, now)

    def _end(self) -> None:
        """Close: no more runs, and whoever waits is told."""
        effect = self._step(Close())
        for answers in (self._waiting, self._joined):
            _answer(answers, CANCELED)
        self._waiting = self._joined = None
        if effect is Effect.CANCEL and self._task is not None:
            self._task.cancel()

    def _forget_run(self, event_loop: asyncio.AbstractEventLoop) -> None:
        """A run whose event loop is gone is gone too, with whoever waited for it; one left behind on this is not."""
        if any(work.get_loop() is event_loop for work in self._under_way()):
            return
        self._task = self._thread = self._waiting = self._joined = self.entry = None
        self._step(Close())
        self._step(Finished(self._state.in_flight, self._state.generation, CANCELED))

    def _under_way(self) -> "list[asyncio.Future[Any]]":
        """What must end before this loop is at rest."""
        return [work for work in (self._task, self._thread) if work is not None and not work.done()]

    def _become(
        self, function: Callable[[], Any], policy: LoopPolicy, condition: Condition | None, hook: Hook | None
    ) -> None:
        self._function = function
        self._in_loop = is_async(function)
        self._policy = policy
        self._condition = condition
        self._asks_at_once = condition is not None and not is_async(condition)
        self._hook = hook
        self._last_value: object = _NO_VALUE
        self._warned = False

    def _step(self, event: Event, now: float | None = None) -> Effect:
        loops = self._loops
        before = self._state
        if now is None:
            now = loops.now()
        after, effect = step(self._policy, before, event, now, loops._chance())
        if after is before:
            return effect
        self._state = after
        loops._set_deadline(self, after.next_due)
        if effect is Effect.RUN:
            ask = event is _TICK and self._condition is not None
            self._task = loops._spawn(self._execute(after.in_flight, ask), self._name)
            self._task.add_done_callback(self._never_began)
        narrate(self._name, before, after, now)
        return effect

    def _ask(self) -> bool | str:
        """The condition's answer, or the error that it raised."""
        try:
            answer = cast("Callable[[], object]", self._condition)()
            if inspect.iscoroutine(answer):
                answer.close()
                return "it returned a coroutine: declare the condition with async def"
            return bool(answer)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever it raises is the loop's failure
            # A timer asks, no task: there is nothing to cancel here, and the deadline would be lost.
            return failure(error).reason or ""

    async def _execute(self, run: int, ask: bool) -> None:
        # Read with the function, not when the run was decided: a loop may be replaced between the two.
        generation, hook = self._state.generation, self._hook
        outcome = CANCELED
        try:
            decided = await self._asked(generation) if ask else None
            outcome = await self._outcome(generation) if decided is None else decided
            if decided is None and hook is not None:
                await self._tell(hook, outcome)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                logger.warning("loop %r: its function raised CancelledError by itself; not counted", self._name)
            raise
        finally:
            self._ended(run, generation, outcome)

    async def _asked(self, generation: int) -> Outcome | None:
        """The outcome that an async condition decides, within the loop's timeout; None: go on."""
        try:
            async with asyncio.timeout(self._policy.timeout_s):
                wanted = await cast("Awaitable[object]", cast("Condition", self._condition)())
        except Exception as error:  # noqa: BLE001 - as in _ask
            return Outcome("failed", short(f"condition: {failure(error).reason}"))
        if not wanted:
            return CONDITION_SKIP
        # Replaced while the condition was asked: neither function has run.
        return None if generation == self._state.generation else CANCELED

    async def _outcome(self, generation: int) -> Outcome:
        limit = None if self._policy.timeout_s is None else asyncio.timeout(self._policy.timeout_s)
        try:
            if limit is None:
                result = await (self._function() if self._in_loop else self._call_in_thread())
            else:
                async with limit:
                    result = await (self._function() if self._in_loop else self._call_in_thread())
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises is its failure
            logger.debug("loop %r raised", self._name, exc_info=error)
            return TIMED_OUT if limit is not None and limit.expired() else failure(error)
        # A function that suppressed the cancellation at its timeout has failed all the same.
        return TIMED_OUT if limit is not None and limit.expired() else self._judged(result, generation)

    async def _call_in_thread(self) -> object:
        context = contextvars.copy_context()
        self._thread = self._loops._in_thread(context.run, self._function)
        result = await asyncio.shield(self._thread)
        return await result if inspect.isawaitable(result) else result

    def _judged(self, result: object, generation: int) -> Outcome:
        outcome = judge(result)
        if generation != self._state.generation:
            return outcome or SUCCESS  # Replaced meanwhile: what the new function is compared with is not ours.
        if outcome is None:
            if not self._warned:
                self._warned = True
                logger.warning(
                    "loop %r returned %s, which says nothing: it counts as success. Return None or True for success, "
                    "False for failure, or Ok(value), Failed(reason), Snooze(delay), Stop(reason)",
                    self._name,
                    reprlib.repr(result),  # Bounded, and never raises what a result's own repr may raise.
                )
            return SUCCESS
        if self._policy.adaptive is not None and isinstance(result, Ok):
            return Outcome("ok", changed=self._changed(result.value))
        return outcome

    def _changed(self, value: object) -> bool | None:
        last, self._last_value = self._last_value, value
        if last is _NO_VALUE:
            return None
        try:
            return bool(last != value)
        except Exception:  # noqa: BLE001 - values that cannot be compared count as changed
            return True

    async def _tell(self, hook: Hook, outcome: Outcome) -> None:
        try:
            told = hook(outcome)
            if inspect.isawaitable(told):
                await told
        except Exception:  # noqa: BLE001 - a hook's trouble is not the loop's
            logger.exception("loop %r: its on_outcome hook raised; the outcome stands", self._name)

    def _never_began(self, task: "asyncio.Task[None]") -> None:
        """A task that is canceled before its first step never enters `_execute`: then its run ends here."""
        error = None if task.cancelled() else task.exception()
        # Those two the event loop has raised already; asked for above, so that asyncio does not log them once more.
        if error is not None and not isinstance(error, SystemExit | KeyboardInterrupt):
            told = {"message": f"loop {self._name!r}: not counted", "exception": error, "task": task}
            task.get_loop().call_exception_handler(told)
        if self._task is task:
            self._ended(self._state.in_flight, self._state.generation, CANCELED)

    def _ended(self, run: int, generation: int, outcome: Outcome) -> None:
        if run != self._state.in_flight:
            return  # Forgotten with its event loop: another run may have taken the place.
        self._task = None
        thread = self._thread
        if thread is not None and not thread.done():
            why = outcome.reason or outcome.kind
            logger.warning("loop %r: its thread goes on after %s; no run until it ends", self._name, why)
            thread.add_done_callback(lambda _: self._ended(run, generation, outcome))
            return
        self._thread = None
        waiting, self._waiting = self._waiting, self._joined
        self._joined = None
        effect = self._step(Finished(run, generation, outcome))
        if effect is not Effect.RUN:
            _answer(self._waiting, self._skipped())
            self._waiting = None
        _answer(waiting, outcome)

    def _skipped(self) -> Outcome:
        return Outcome("skipped", "paused" if self._state.life is Life.LIVE else self._state.life.value)

    def _on_wall(self, instant: float | None) -> datetime | None:
        if instant is None:
            return None
        return datetime.fromtimestamp(self._loops._wall() + instant - self._loops.now(), UTC)


def is_async(function: Callable[..., Any]) -> bool:
    """Is calling it cheap and answered by an awaitable? Everything else runs in a thread."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _answer(answers: "list[asyncio.Future[Outcome]] | None", outcome: Outcome) -> None:
    for answer in answers or ():
        if not answer.done():
            answer.set_result(outcome)
