"""Any events in any order: one run at a time, one deadline exactly while it waits, failures counted by results only."""

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll import Adaptive, Breaker
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
from everpoll.loops.options import LoopPolicy
from everpoll.loops.reducer import initial, stale_once_resumed, step
from everpoll.loops.state import Life, LoopState, Outcome, OutcomeKind, Phase
from everpoll.policy import LONGEST_S, PauseReason

reproducible = settings(derandomize=True, deadline=None, max_examples=400)

times_s = st.sampled_from((0.5, 1.0, 7.0, 30.0, 3600.0))
policies = st.builds(
    LoopPolicy,
    every_s=times_s,
    cap=st.sampled_from((None, 1.0, 3.0, 8.0)),
    jitter=st.sampled_from((0.0, 0.1, 1.0)),
    first_s=st.sampled_from((None, 0.0, 5.0)),
    fixed_rate=st.booleans(),
    slow_when_hidden=st.sampled_from((None, 1.0, 4.0)),
    adaptive=st.sampled_from((None, Adaptive(1, 600))),
    breaker=st.sampled_from((None, Breaker(1, 20), Breaker(3, 100))),
    safety_every_s=st.sampled_from((None, 300.0)),
)
kinds: list[OutcomeKind] = ["ok", "ok", "failed", "failed", "failed", "snoozed", "stopped", "skipped", "canceled"]
outcomes = st.builds(
    Outcome,
    kind=st.sampled_from(kinds),
    reason=st.just("drawn"),
    delay_s=st.sampled_from((0.0, 0.0, 5.0, 1000.0)),
    changed=st.sampled_from((None, True, False)),
)
reasons = st.sampled_from(PauseReason)
# A result is drawn as its outcome; which run it belongs to is known only when it is applied.
happenings: st.SearchStrategy[Any] = st.one_of(
    outcomes,
    outcomes,
    st.just("late result"),
    st.just("overran"),
    st.just(Start()),
    st.builds(Tick, condition=st.sampled_from((True, True, True, False, "drawn"))),
    st.just("tick when due"),
    st.builds(Trigger, force=st.booleans()),
    st.builds(Pause, reason=reasons),
    st.builds(Resume, reason=reasons, position=st.integers(0, 3)),
    st.builds(Resume, reason=reasons),
    st.just(Reset()),
    st.just(Replace()),
    st.just(PushUp()),
    st.just(PushDown()),
    st.just(Close()),
)
chances = st.floats(0, 1, exclude_max=True, allow_subnormal=False)
stories = st.lists(st.tuples(happenings, st.sampled_from((0.0, 0.1, 3.0, 40.0, 30_000.0)), chances), max_size=60)
NEVER_COUNT = {"snoozed", "stopped", "skipped", "canceled"}


def event_of(happening: Any, state: LoopState, began: int) -> Event:
    """`began` is the generation in which the run under way began."""
    if isinstance(happening, Outcome):
        return Finished(state.in_flight, began, happening)
    if happening == "late result":
        return Finished(max(0, state.in_flight - 1), began, Outcome("failed", "late"))
    if happening == "overran":
        return Overran(state.in_flight, began, Outcome("failed", "timeout"))
    event: Event = Tick() if happening == "tick when due" else happening
    return event


@reproducible
@given(policies, policies, stories)
def test_invariants_hold_after_every_event(
    first: LoopPolicy, second: LoopPolicy, story: list[tuple[Any, float, float]]
) -> None:
    policy, state, now, began = first, initial(first), 0.0, 0
    state, _ = step(policy, state, Start(), now)
    for happening, passed_s, chance in story:
        now += passed_s
        if happening == "tick when due" and state.next_due is not None:
            now = max(now, state.next_due)
        event = event_of(happening, state, began)
        if isinstance(event, Replace):
            policy = second if policy is first else first
        before = state
        state, effect = step(policy, before, event, now, chance)
        assert (state, effect) == step(policy, before, event, now, chance)
        check_runs(before, event, state, effect)
        check_deadline(policy, before, event, state, now)
        check_failures(policy, before, event, state)
        if effect is Effect.RUN:
            began = state.generation


def check_runs(before: LoopState, event: Event, after: LoopState, effect: Effect) -> None:
    ended = isinstance(event, Finished) and bool(before.in_flight) and event.run == before.in_flight
    if effect is Effect.RUN:
        assert not before.in_flight or ended
        assert after.in_flight == after.runs > 0
        assert after.life is Life.LIVE
        assert PauseReason.SHUTDOWN not in after.pauses
    elif ended:
        assert after.in_flight == 0
    else:
        assert after.in_flight == before.in_flight
    assert (effect is Effect.CANCEL) == (isinstance(event, Close) and bool(before.in_flight))
    assert effect is not Effect.JOIN or (isinstance(event, Trigger) and after.in_flight)


def check_deadline(policy: LoopPolicy, before: LoopState, event: Event, after: LoopState, now: float) -> None:
    assert (after.next_due is not None) == (after.phase in (Phase.WAITING, Phase.OPEN))
    if after.next_due is None:
        return
    assert math.isfinite(after.next_due)
    longest_s = LONGEST_S * (1 + policy.jitter) * after.slowdown
    assert after.next_due <= now + longest_s + 1000
    ours = isinstance(event, Finished) and before.in_flight and event.generation == before.generation
    if ours and event.run == before.in_flight:  # type: ignore[union-attr]
        assert after.next_due >= now
        outcome = event.outcome  # type: ignore[union-attr]
        if outcome.kind in ("failed", "snoozed") and not before.overran:
            assert after.next_due - now >= outcome.delay_s * (1 - 1e-9)
    if isinstance(event, Tick) and before.next_due is not None and now >= before.next_due:
        assert after.next_due >= now


def check_failures(policy: LoopPolicy, before: LoopState, event: Event, after: LoopState) -> None:
    cap = math.inf if policy.cap is None else policy.cap
    if after.failures and after.failures != before.failures:
        assert after.multiplier == min(2.0**after.failures, cap)
    if not after.failures:
        assert after.multiplier == 1.0
        assert after.breaker.opened_at is None
    silent = isinstance(event, Pause | Resume | Trigger | PushUp | PushDown | Close)
    if isinstance(event, Finished):
        late = event.run != before.in_flight or event.generation != before.generation or before.life is Life.CLOSED
        silent = late or before.overran or event.outcome.kind in NEVER_COUNT
        assert not after.overran or event.run != before.in_flight
    if isinstance(event, Overran):
        counts = after is not before
        assert after.failures == before.failures + counts
        assert not counts or (after.overran and not before.overran)
    if isinstance(event, Tick):
        silent = isinstance(event.condition, bool)
    if silent:
        assert (after.failures, after.multiplier, after.base_s) == (before.failures, before.multiplier, before.base_s)
    assert after.missed_ticks >= before.missed_ticks


@reproducible
@given(policies, stories, reasons)
def test_stale_is_what_resuming_would_run_now(
    policy: LoopPolicy, story: list[tuple[Any, float, float]], reason: PauseReason
) -> None:
    state, now = initial(policy), 0.0
    state, _ = step(policy, state, Start(), now)
    for happening, passed_s, chance in story:
        now += passed_s
        state, _ = step(policy, state, event_of(happening, state, state.generation), now, chance)
    paused, _ = step(policy, state, Pause(reason), now)
    resumed, effect = step(policy, paused, Resume(reason), now + 10)
    assert effect is Effect.NONE
    if stale_once_resumed(policy, paused, reason, now + 10):
        assert resumed.next_due == now + 10
    elif resumed.next_due is not None:
        assert resumed.next_due > now + 10
