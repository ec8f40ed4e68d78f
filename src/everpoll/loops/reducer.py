"""Reducer: every decision about a loop, (state, event, now) → (state, effect).

Pure: the time and the random number for jitter are arguments, so the same conformance vectors test this implementation
and the TypeScript one. Promises:

- one deadline; a tick that does not match it decides nothing, so no forgotten timer can start a run;
- at most one run is under way; triggers during a run become at most one follow-up run;
- a result is counted once, and only if its run and generation are current; other results are dropped;
- skips, snoozes and cancellations never change the failure count.
"""

import math
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from everpoll.loops.events import (
    Close,
    Effect,
    Event,
    Finished,
    Overran,
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
from everpoll.loops.next_run import floor_s, off_grid, on_grid, retried, scheduled
from everpoll.loops.options import LoopPolicy
from everpoll.loops.state import Followup, Life, LoopState, Outcome
from everpoll.policy import (
    STAGGER_S,
    BreakerState,
    PauseReason,
    growth,
    paused,
    resumed,
    spread,
)

Step = tuple[LoopState, Effect]
CONDITION_SKIP = Outcome("skipped", "condition")
CANCELED = Outcome("canceled")


def initial(policy: LoopPolicy) -> LoopState:
    """Return the state of a newly registered loop."""
    return LoopState(base_s=policy.every_s)


def step(policy: LoopPolicy, state: LoopState, event: Event, now: float, chance: float = 0.5) -> Step:
    """Return the next state and effect. `chance` in [0, 1) is the random number for jitter; 0.5 changes no delay."""
    return _RULES[type(event)](policy, state, event, now, chance)


def stale_once_resumed(policy: LoopPolicy, state: LoopState, reason: PauseReason, now: float) -> bool:
    """Return whether the loop is overdue and would run at once if this pause reason were removed."""
    after, _ = _resume(policy, state, Resume(reason), now, 0.5)
    return reason in state.pauses and after.due_from == now and after.delay_s == 0.0 and after.next_due is not None


def _start(policy: LoopPolicy, state: LoopState, _event: Start, now: float, chance: float) -> Step:
    if state.life is Life.LIVE or state.life is Life.STOPPED:
        return state, Effect.NONE
    return _start_over(policy, state, now, chance), Effect.NONE


def _replace(policy: LoopPolicy, state: LoopState, _event: Replace, now: float, chance: float) -> Step:
    if state.life is Life.IDLE or state.life is Life.CLOSED:
        return _with_held(policy, replace(state, generation=state.generation + 1, base_s=policy.every_s)), Effect.NONE
    return _start_over(policy, state, now, chance), Effect.NONE


def _start_over(policy: LoopPolicy, state: LoopState, now: float, chance: float) -> LoopState:
    """Reset failures, base and deadline. Pause reasons stay; a run under way goes on, and the next run waits for it."""
    first_s = spread(policy.every_s, policy.jitter, chance) if policy.first_s is None else policy.first_s
    return _with_held(
        policy,
        replace(
            state,
            generation=state.generation + 1,
            life=Life.LIVE,
            base_s=policy.every_s,
            failures=0,
            multiplier=1.0,
            unchanged=0,
            due_from=now,
            delay_s=first_s,
            tick_at=now + (policy.every_s if policy.first_s is None else policy.first_s),
            push_alive=False,
            breaker=BreakerState(),
            stop_reason=None,
            not_before=None,
        ),
    )


def _tick(policy: LoopPolicy, state: LoopState, event: Tick, now: float, chance: float) -> Step:
    due = state.next_due
    if due is None or now < due:
        return state, Effect.NONE
    if event.condition is False:
        return _settled(policy, state, CONDITION_SKIP, now, chance), Effect.NONE
    if policy.breaker is None:
        breaker, allowed = state.breaker, True
    else:
        breaker, allowed = policy.breaker.ask(state.breaker, now)
    if event.condition is not True:
        # The breaker is asked first: if the condition raises when the probe is due, the probe has failed.
        failed = Outcome("failed", f"condition: {event.condition}")
        return _settled(policy, replace(state, breaker=breaker), failed, now, chance), Effect.NONE
    if policy.breaker is None:
        return _run(state, now), Effect.RUN
    if allowed:
        return _run(replace(state, breaker=breaker), now), Effect.RUN
    wait_s = policy.breaker.retry_at(breaker, now) - now
    return replace(state, breaker=breaker, due_from=now, delay_s=wait_s), Effect.NONE


def _run(state: LoopState, now: float) -> LoopState:
    number = state.runs + 1
    return replace(state, runs=number, in_flight=number, last_started=now, followup=Followup.NONE)


def _trigger(policy: LoopPolicy, state: LoopState, event: Trigger, now: float, _chance: float) -> Step:
    wanted = Followup.FORCED if event.force else Followup.WANTED
    if refusal := _refusal(state, wanted):
        return _refused(state, refusal), Effect.SKIP
    if state.in_flight:
        return replace(state, followup=max(state.followup, wanted)), Effect.JOIN
    return _probe(policy, state, now), Effect.RUN


def _probe(policy: LoopPolicy, state: LoopState, now: float) -> LoopState:
    """Run now. With an open breaker this run is the probe. It does not replace a tick of a fixed rate."""
    if policy.breaker is not None:
        breaker, _ = policy.breaker.ask(state.breaker, now, force=True)
        state = replace(state, breaker=breaker)
    return _run(off_grid(policy, state, now), now)


def _refusal(state: LoopState, wanted: Followup) -> str | None:
    """Return why a trigger does not run, or None. `hidden` does not stop it: the caller wants fresh data."""
    if state.life is not Life.LIVE:
        return "stopped"
    if PauseReason.SHUTDOWN in state.pauses:
        return "paused"
    if PauseReason.OPERATOR in state.pauses and wanted is not Followup.FORCED:
        return "paused"
    return None


def _refused(state: LoopState, reason: str) -> LoopState:
    if reason == "paused":
        return replace(state, skipped_paused=state.skipped_paused + 1)
    return replace(state, skipped_stopped=state.skipped_stopped + 1)


def _finished(policy: LoopPolicy, state: LoopState, event: Finished, now: float, chance: float) -> Step:
    if not state.in_flight or event.run != state.in_flight:
        return state, Effect.NONE
    overran, state = state.overran, replace(state, overran=False) if state.overran else state
    if event.generation != state.generation or state.life is Life.CLOSED:
        state = replace(state, in_flight=0)
    elif overran:
        # Its failure was counted at the timeout. The delay counts from now, when the thread is free.
        state = retried(policy, state, now, chance, floor_s(state, now))
    else:
        state = _settled(policy, state, event.outcome, now, chance)
    if state.followup is Followup.NONE:
        return state, Effect.NONE
    if refusal := _refusal(state, state.followup):
        return replace(_refused(state, refusal), followup=Followup.NONE), Effect.SKIP
    return _probe(policy, state, now), Effect.RUN


def _overran(policy: LoopPolicy, state: LoopState, event: Overran, now: float, _chance: float) -> Step:
    """Count the failure at the timeout. The run stays under way, so that the loop never overlaps its own thread."""
    is_ours = state.in_flight and event.run == state.in_flight and event.generation == state.generation
    if not is_ours or state.overran or state.life is not Life.LIVE:
        return state, Effect.NONE
    return replace(_count_failure(policy, state, event.outcome, now), overran=True), Effect.NONE


def _settled(policy: LoopPolicy, state: LoopState, outcome: Outcome, now: float, chance: float) -> LoopState:
    """Count the outcome and set the one deadline."""
    match outcome.kind:
        case "ok":
            return _succeeded(policy, state, outcome, now, chance)
        case "failed":
            return _failed(policy, state, outcome, now, chance)
        case "snoozed":
            snoozed = replace(_without_result(policy, state), last_completed=now, in_flight=0)
            delay_s = max(outcome.delay_s, floor_s(state, now))
            return replace(on_grid(policy, snoozed, now + delay_s), due_from=now, delay_s=delay_s)
        case "stopped":
            return replace(
                _without_result(policy, state),
                last_completed=now,
                due_from=None,
                life=Life.STOPPED,
                stop_reason=outcome.reason,
                in_flight=0,
            )
        case "skipped":
            # An async condition is asked inside the run; if it says no, the run does not count.
            runs = state.runs - bool(state.in_flight)
            counted = replace(_without_result(policy, state), runs=runs, skipped_condition=state.skipped_condition + 1)
            return scheduled(policy, counted, now, chance, floor_s(state, now))
        case "canceled":
            return scheduled(policy, _without_result(policy, state), now, chance, floor_s(state, now))


def _without_result(policy: LoopPolicy, state: LoopState) -> LoopState:
    """Release the breaker's probe after a run without a result, so that another run can be the probe."""
    if policy.breaker is None:
        return state
    return replace(state, breaker=policy.breaker.abandoned(state.breaker))


def _succeeded(policy: LoopPolicy, state: LoopState, outcome: Outcome, now: float, chance: float) -> LoopState:
    base_s, unchanged = state.base_s, state.unchanged
    if policy.adaptive is not None and outcome.changed is not None:
        base_s, unchanged = policy.adaptive.next_base(base_s, unchanged, outcome.changed)
    plain = policy.safety_every_s is None and not policy.fixed_rate and policy.breaker is None
    if plain and not state.failures:
        # Nearly every run ends here: one new snapshot instead of two.
        delay_s = spread(base_s, policy.jitter, chance)
        return replace(
            state,
            in_flight=0,
            last_completed=now,
            last_ok=now,
            due_from=now,
            delay_s=delay_s,
            base_s=base_s,
            unchanged=unchanged,
        )
    better = replace(
        state,
        failures=0,
        multiplier=1.0,
        not_before=None,
        breaker=BreakerState(),
        last_completed=now,
        last_ok=now,
        base_s=base_s,
        unchanged=unchanged,
    )
    return scheduled(policy, better, now, chance)


def _failed(policy: LoopPolicy, state: LoopState, outcome: Outcome, now: float, chance: float) -> LoopState:
    worse = _count_failure(policy, state, outcome, now)
    return retried(policy, worse, now, chance, outcome.delay_s)


def _count_failure(policy: LoopPolicy, state: LoopState, outcome: Outcome, now: float) -> LoopState:
    """Count a failure."""
    failures = state.failures + 1
    breaker = state.breaker if policy.breaker is None else policy.breaker.failed(state.breaker, now)
    return replace(
        state,
        failures=failures,
        multiplier=_multiplier(policy, failures),
        last_completed=now,
        last_error=outcome.reason,
        not_before=now + outcome.delay_s if outcome.delay_s else None,
        breaker=breaker,
    )


def _multiplier(policy: LoopPolicy, failures: int) -> float:
    return min(growth(2.0, failures), math.inf if policy.cap is None else policy.cap)


def _pause(policy: LoopPolicy, state: LoopState, event: Pause, _now: float, _chance: float) -> Step:
    return _with_held(policy, replace(state, pauses=paused(state.pauses, event.reason))), Effect.NONE


def _resume(policy: LoopPolicy, state: LoopState, event: Resume, now: float, _chance: float) -> Step:
    if event.reason not in state.pauses:
        return state, Effect.NONE
    state = _with_held(policy, replace(state, pauses=resumed(state.pauses, event.reason)))
    due = state.next_due
    if due is None or due > now:
        return state, Effect.NONE
    # Only the deadline moves: if the loop is hidden again before it, it does not run.
    state = replace(state, due_from=now, delay_s=event.position * STAGGER_S)
    # Ticks that passed during a pause do not count as missed.
    return on_grid(policy, state, now), Effect.NONE


def _with_held(policy: LoopPolicy, state: LoopState) -> LoopState:
    """Derive from the pause reasons whether the loop is held or slowed down."""
    slows = policy.slow_when_hidden is not None and PauseReason.HIDDEN in state.pauses
    stopping = resumed(state.pauses, PauseReason.HIDDEN) if slows else state.pauses
    slowdown = policy.slow_when_hidden if slows and policy.slow_when_hidden else 1.0
    return replace(state, held=bool(stopping), slowdown=slowdown)


def _reset(policy: LoopPolicy, state: LoopState, _event: Reset, now: float, chance: float) -> Step:
    fresh = replace(
        state,
        failures=0,
        multiplier=1.0,
        base_s=policy.every_s,
        unchanged=0,
        breaker=BreakerState(),
        stop_reason=None,
        not_before=None,
    )
    if state.life is Life.STOPPED:
        fresh = replace(fresh, life=Life.LIVE)
    if fresh.life is not Life.LIVE or fresh.in_flight:
        return fresh, Effect.NONE
    return scheduled(policy, off_grid(policy, fresh, now), now, chance), Effect.NONE


def _push_up(policy: LoopPolicy, state: LoopState, _event: PushUp, now: float, _chance: float) -> Step:
    """Run once at once, for changes missed while push was not connected. A backoff still holds."""
    if state.push_alive or state.life is not Life.LIVE:
        return state, Effect.NONE
    alive = replace(state, push_alive=True)
    if state.in_flight:
        return replace(alive, followup=max(state.followup, Followup.WANTED)), Effect.NONE
    if state.failures:
        return alive, Effect.NONE
    return replace(off_grid(policy, alive, now), due_from=now, delay_s=0.0), Effect.NONE


def _push_down(policy: LoopPolicy, state: LoopState, _event: PushDown, now: float, chance: float) -> Step:
    """Return to the ordinary interval, counted from the last run: an overdue loop runs now."""
    if not state.push_alive:
        return state, Effect.NONE
    alone = replace(state, push_alive=False)
    if state.in_flight or state.last_completed is None or state.life is not Life.LIVE:
        return alone, Effect.NONE
    # After a failure the delay is a backoff or a Retry-After, which push did not change.
    if state.failures:
        return alone, Effect.NONE
    due_from, delay_s = state.last_completed, spread(state.base_s, policy.jitter, chance)
    due = due_from + delay_s * state.slowdown
    if due <= now:
        due_from, delay_s, due = now, 0.0, now
    if state.due_from is not None and due >= state.due_from + state.delay_s * state.slowdown:
        return alone, Effect.NONE
    return replace(off_grid(policy, alone, due), due_from=due_from, delay_s=delay_s), Effect.NONE


def _close(_policy: LoopPolicy, state: LoopState, _event: Close, _now: float, _chance: float) -> Step:
    closed = replace(state, life=Life.CLOSED, due_from=None, followup=Followup.NONE, push_alive=False)
    return closed, Effect.CANCEL if state.in_flight else Effect.NONE


_RULES: dict[type[Any], Callable[[LoopPolicy, LoopState, Any, float, float], Step]] = {
    Start: _start,
    Tick: _tick,
    Finished: _finished,
    Overran: _overran,
    Trigger: _trigger,
    Pause: _pause,
    Resume: _resume,
    Reset: _reset,
    Replace: _replace,
    PushUp: _push_up,
    PushDown: _push_down,
    Close: _close,
}
