"""Loop: the public object of one loop, a thin asyncio shell around the reducer.

Promises: the function never overlaps itself. A thread, or a function that suppresses its cancellation, may go on after
it was canceled: the run counts as under way until it has really ended.
Never decides anything itself: it reads the clock, calls the reducer, and carries out the effect.
"""

import asyncio
import contextvars
import inspect
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from everpoll.errors import NotRunning
from everpoll.logs.context import SUBJECT, Labels
from everpoll.loops import events
from everpoll.loops.calling import ask, ask_at_once, call_hook, call_in_thread
from everpoll.loops.change_log import log_changes, logger
from everpoll.loops.events import Effect, Event
from everpoll.loops.options import LoopPolicy, users_reason
from everpoll.loops.outcome import SUCCESS, TIMED_OUT, Ok, failure, judge
from everpoll.loops.reducer import CANCELED, initial, step
from everpoll.loops.registration import Registration
from everpoll.loops.run import Run, Triggered
from everpoll.loops.state import Life, LoopState, Outcome, OutcomeKind
from everpoll.policy import Duration, PauseReason, shown

if TYPE_CHECKING:
    from everpoll.loops.registry import Loops

_TICK = events.Tick()
_NO_VALUE = object()
STRIP = 120
"""How many of the latest outcomes are kept, one letter each."""
LETTERS: dict[OutcomeKind, str] = {
    "ok": "o",
    "failed": "f",
    "snoozed": "z",
    "stopped": "s",
    "skipped": "-",
    "canceled": "c",
}


class Loop:
    """A named function that runs again and again; `state` is its current snapshot."""

    # One process may have 100,000 loops: `__slots__` keeps each small.
    __slots__ = (
        "_followup",
        "_last_value",
        "_loops",
        "_name",
        "_registration",
        "_run",
        "_state",
        "_strip",
        "_warned",
        "entry",
    )

    def __init__(self, loops: "Loops", name: str, registration: Registration) -> None:
        self._loops = loops
        self._name = name
        self._state = initial(registration.policy)
        self._run: Run | None = None
        self._followup: asyncio.Future[Outcome] | None = None
        self.entry: object | None = None
        self._use(registration)

    def __repr__(self) -> str:
        return f"<Loop {self._name!r} {self._state.phase.value}>"

    @property
    def name(self) -> str:
        """The name of the loop, unique in the app."""
        return self._name

    @property
    def policy(self) -> LoopPolicy:
        """The checked options of the loop."""
        return self._registration.policy

    @property
    def state(self) -> LoopState:
        """A frozen snapshot of this instant."""
        return self._state

    @property
    def next_due_at(self) -> datetime | None:
        """When the loop runs next, by the wall clock. For display only: decisions use the monotonic clock."""
        return self._on_wall(self._state.next_due)

    @property
    def last_ok_at(self) -> datetime | None:
        """When the loop last succeeded, by the wall clock."""
        return self._on_wall(self._state.last_ok)

    def trigger(self, *, force: bool = False) -> Triggered:
        """Run now, regardless of delay, condition and breaker. Awaiting the returned outcome is optional.

        During a run, any number of triggers become one run after it. A loop that an operator paused does not run
        unless `force` is set; the outcome is then "skipped".
        """
        event_loop = self._loops._event_loop_for(f"trigger loop {self._name!r}")
        if asyncio._get_running_loop() is not event_loop:
            raise NotRunning(
                f"loop {self._name!r}: trigger() was called from another thread; "
                "use event_loop.call_soon_threadsafe(loop.trigger)"
            )
        answer = self._followup or event_loop.create_future()
        effect = self._step(events.Trigger(force))
        if effect is Effect.RUN and self._run is not None:
            self._run.answer = answer
        elif effect is Effect.JOIN:
            self._followup = answer
        else:
            answer = event_loop.create_future()
            answer.set_result(self._skipped())
        return Triggered(answer, self._is_own)

    def _is_own(self) -> bool:
        return self._run is not None and self._run.task is asyncio.current_task()

    def pause(self, reason: PauseReason | str = PauseReason.OPERATOR) -> None:
        """Start no more runs until every pause reason is removed; a run under way goes on."""
        self._step(events.Pause(users_reason(reason)))

    def resume(self, reason: PauseReason | str = PauseReason.OPERATOR) -> None:
        """Remove one pause reason. An overdue loop runs at once; any other keeps its remaining delay."""
        self._step(events.Resume(users_reason(reason)))

    def reset(self) -> None:
        """Forget failures, breaker and adapted interval; a stopped loop starts again."""
        self._step(events.Reset())

    def push_connected(self) -> None:
        """Note that push works: run once now, then every `safety_every` only. Call `trigger()` for each push."""
        self._step(events.PushUp())

    def push_lost(self) -> None:
        """Note that push is lost: return to the ordinary interval, counted from the last run."""
        self._step(events.PushDown())

    async def close(self, grace: Duration = 0) -> None:
        """Remove this loop; a run under way gets the grace period to end, then it is canceled."""
        if self._name in self._loops and self._loops[self._name] is self:
            await self._loops.remove(self._name, grace)

    # The methods below are for the registry.

    def _start(self) -> None:
        """Schedule the first run."""
        self._step(events.Start())

    def _take_over(self, registration: Registration) -> None:
        """Replace the function. A run of the old one ends first, and its result is dropped."""
        self._use(registration)
        self._step(events.Replace())

    def _pause(self, reason: PauseReason) -> None:
        """Pause for any reason, everpoll's own included."""
        self._step(events.Pause(reason))

    def _resume(self, reason: PauseReason, position: int = 0) -> None:
        """Resume; `position` is this loop's place among the overdue loops that resume together."""
        self._step(events.Resume(reason, position))

    def _due(self, now: float) -> None:
        """Handle a deadline that has come."""
        condition = self._registration.condition
        if condition is None or not self._registration.asks_at_once:
            self._step(_TICK, now)
            return
        try:
            # In a copy of the context: all loops share the timer's context.
            context = contextvars.copy_context()
            context.run(SUBJECT.set, Labels(kind="loop", name=self._name))
            answer = context.run(ask_at_once, condition)
        except BaseException as error:
            # The exception passes through, but the loop gets a new deadline first: a loop never dies silently.
            self._step(events.Tick(failure(error).reason or ""), now)
            raise
        self._step(events.Tick(answer), now)

    def _end(self) -> None:
        """Close the loop: cancel the run under way and answer every waiting trigger."""
        effect = self._step(events.Close())
        run = self._run
        _answer(self._followup, CANCELED)
        self._followup = None
        if run is not None:
            _answer(run.answer, CANCELED)
            run.answer = None
            if effect is Effect.CANCEL and run.task is not None and not run.task.get_loop().is_closed():
                run.task.cancel()

    def _forget_run(self, event_loop: asyncio.AbstractEventLoop) -> None:
        """Drop a run of a closed event loop, with the triggers that waited for it. A thread of that run may go on."""
        run = self._run
        self._followup = self.entry = None
        self._step(events.Close())
        if run is not None:
            run.answer = None
            if any(work.get_loop() is event_loop for work in run.under_way()):
                return
            if run.thread is not None and not run.thread.withdraw():
                # The event loop that ran it may have closed before it registered this callback.
                run.thread.when_over(lambda: self._loops._soon(self._ended, run, CANCELED))
                return
            self._run = None
        self._step(events.Finished(self._state.in_flight, self._state.generation, CANCELED))

    def _under_way(self) -> "list[asyncio.Future[Any]]":
        """Return the tasks and threads that must end before this loop is at rest."""
        return [] if self._run is None else self._run.under_way()

    def _is_over(self) -> bool:
        """Return whether no run of this loop is left."""
        return self._run is None or self._run.is_over()

    def _use(self, registration: Registration) -> None:
        self._registration = registration
        self._last_value: object = _NO_VALUE
        self._strip = ""
        self._warned = False

    def _step(self, event: Event, now: float | None = None) -> Effect:
        loops = self._loops
        before = self._state
        if now is None:
            now = loops.now()
        after, effect = step(self._registration.policy, before, event, now, loops._chance())
        if after is before:
            return effect
        self._state = after
        loops._set_deadline(self, after.next_due)
        if effect is Effect.RUN:
            # A triggered run inherits the context of the caller of trigger(); any other run that of start().
            context = contextvars.copy_context() if isinstance(event, events.Trigger) else None
            self._begin(after, context, ask=event is _TICK)
        log_changes(self._name, before, after, now)
        return effect

    def _begin(self, state: LoopState, context: contextvars.Context | None, *, ask: bool) -> None:
        # Read everything that the run needs now: the loop may be replaced before the task begins.
        self._run = run = Run(state.in_flight, state.generation, self._registration, self._followup)
        self._followup = None
        ask = ask and run.registration.condition is not None
        run.task = self._loops._running().spawn(self._execute(run, ask), self._name, context)
        run.task.add_done_callback(self._never_began)

    async def _execute(self, run: Run, ask: bool) -> None:
        hook = run.registration.hook
        outcome = CANCELED
        SUBJECT.set(Labels(kind="loop", name=self._name))  # for the log, in the context that this run has to itself
        try:
            decided = await self._asked(run) if ask else None
            outcome = await self._outcome(run) if decided is None else decided
            if decided is None and hook is not None:
                await call_hook(hook, self._name, outcome, run.registration.policy.timeout_s)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                logger.warning("loop %r: its function raised CancelledError by itself; not counted", self._name)
            raise
        finally:
            self._ended(run, outcome)

    async def _asked(self, run: Run) -> Outcome | None:
        """Ask an async condition; return the outcome if the run ends here, else None."""
        condition = run.registration.condition
        assert condition is not None, "only a run with a condition asks it"
        if (outcome := await ask(condition, run.registration.policy.timeout_s)) is not None:
            return outcome
        # If the loop was replaced or closed meanwhile, the function must not run.
        return None if self._is_current(run) and self._state.life is not Life.CLOSED else CANCELED

    def _is_current(self, run: Run) -> bool:
        return run.generation == self._state.generation

    async def _outcome(self, run: Run) -> Outcome:
        function, in_loop = run.registration.function, run.registration.in_loop
        timeout_s = run.registration.policy.timeout_s
        limit = None if timeout_s is None else asyncio.timeout(timeout_s)
        try:
            if limit is None:
                result = await (function() if in_loop else call_in_thread(run, self._loops._running()))
            else:
                async with limit:
                    result = await (function() if in_loop else call_in_thread(run, self._loops._running()))
            # A function that suppresses the cancellation at its timeout has still failed.
            return TIMED_OUT if limit is not None and limit.expired() else self._judged(result, run)
        except Exception as error:  # noqa: BLE001 - whatever a user's function or its result raises is its failure
            logger.debug("loop %r raised", self._name, exc_info=error)
            return TIMED_OUT if limit is not None and limit.expired() else failure(error)

    def _judged(self, result: object, run: Run) -> Outcome:
        outcome = judge(result)
        if not self._is_current(run):
            return outcome or SUCCESS  # Replaced meanwhile: do not touch the last value of the new function.
        if outcome is None:
            if not self._warned:
                self._warned = True
                logger.warning(
                    "loop %r returned %s, which says nothing: it counts as success%s. Return None or True for success, "
                    "False for failure, or Ok(value), Failed(reason), Snooze(delay), Stop(reason)",
                    self._name,
                    shown(result),
                    " (is an await missing?)" if inspect.isawaitable(result) else "",
                )
            return SUCCESS
        if run.registration.policy.adaptive is not None and isinstance(result, Ok):
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

    def _never_began(self, task: "asyncio.Task[None]") -> None:
        """End the run of a task that was canceled before its first step: it never enters `_execute`."""
        error = None if task.cancelled() else task.exception()
        # The event loop raises those two itself. Reading exception() above keeps asyncio from logging them again.
        if error is not None and not isinstance(error, SystemExit | KeyboardInterrupt):
            context = {"message": f"loop {self._name!r}: not counted", "exception": error, "task": task}
            task.get_loop().call_exception_handler(context)
        run = self._run
        if run is not None and run.task is task and run.thread is None:
            self._ended(run, CANCELED)

    def _ended(self, run: Run, outcome: Outcome) -> None:
        if run is not self._run:
            return  # Dropped with its event loop: another run may have begun since.
        if run.thread is not None and not run.thread.withdraw():
            why = outcome.reason or outcome.kind
            logger.warning("loop %r: its thread goes on after %s; no run until it ends", self._name, why)
            run.thread.leave_behind()
            if outcome.kind == "failed":
                self._step(events.Overran(run.number, run.generation, outcome))
                _answer(run.answer, outcome)
            run.thread.when_over(lambda: self._loops._soon(self._ended, run, outcome))
            return
        self._run = None
        self._strip = (self._strip + LETTERS[outcome.kind])[-STRIP:]
        effect = self._step(events.Finished(run.number, run.generation, outcome))
        if effect is not Effect.RUN:
            _answer(self._followup, self._skipped())
            self._followup = None
        _answer(run.answer, outcome)
        if self._state.life is Life.CLOSED:
            self._loops._forget(self)

    def _skipped(self) -> Outcome:
        return Outcome("skipped", "paused" if self._state.life is Life.LIVE else self._state.life.value)

    def _on_wall(self, instant: float | None) -> datetime | None:
        """Return an instant of the state by the wall clock."""
        if instant is None:
            return None
        try:
            return datetime.fromtimestamp(self._loops._wall() + instant - self._loops.now(), UTC)
        except (OverflowError, ValueError, OSError):
            return datetime.max.replace(
                tzinfo=UTC
            )  # A long delay with a large slowdown may exceed the last date of a calendar.


def _answer(future: "asyncio.Future[Outcome] | None", outcome: Outcome) -> None:
    if future is not None and not future.done() and not future.get_loop().is_closed():
        future.set_result(outcome)
