"""Whatever looks find and however late: one probe a cooldown, Retry-After is a floor, and time goes on."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll import Backoff, Breaker
from everpoll.monitors import Status
from everpoll.monitors.control import Control, breaker_phase, read, write
from everpoll.monitors.decision import Decision, decide, register, wake
from everpoll.monitors.definition import Definition
from everpoll.monitors.look import MAX_RETRY_AFTER_S, Look
from everpoll.policy import BreakerPhase

from .scenes import NOON, service

reproducible = settings(derandomize=True, deadline=None, max_examples=100)

definitions = st.builds(
    service,
    every=st.sampled_from(("5s", "30s", "10m")),
    breaker=st.sampled_from((Breaker(10, "5m"), Breaker(1, "7s"), Breaker(3, "1h"), None)),
    backoff=st.sampled_from((Backoff("1s", cap="5m", jitter=0), Backoff("20s", cap="10m", jitter=0.5), None)),
)
durations_s = st.sampled_from((0.0, 0.2, 10.0))
found = st.fixed_dictionaries(
    {
        "reached": st.sampled_from((True, True, False, False, False, False, None)),
        "status": st.sampled_from(Status),
        "took_s": durations_s,
        "retry_after_s": st.sampled_from((None, None, None, 0.0, -3.0, 45.0, 7_200.0, 1e9, float("nan"))),
        "is_witnessed": st.sampled_from((None, None, True, False)),
    }
)
lateness_s = st.sampled_from((0.0, 0.0, 0.01, 3.0, 700.0))
steps = st.tuples(found, lateness_s, durations_s, st.booleans(), st.floats(0, 1, exclude_max=True))
stories = st.lists(steps, min_size=1, max_size=40)


class Observer:
    """Plays a story, and keeps what the rules are about apart from the memory that the decisions make."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.decision: Decision = register(definition, NOON)
        self.floor_at = 0.0
        self.cooled_at = 0.0
        self.in_a_row = 0

    @property
    def control(self) -> Control:
        return self.decision.control

    def step(self, what: dict[str, Any], late_s: float, write_s: float, is_forced: bool, chance: float) -> None:
        at = self.decision.next_at + late_s
        if is_forced:
            at = max(self.decision.next_at - 0.6 * self.definition.every_s, NOON)
            at = max(at, self.control.looked_at or 0.0)
        woken = wake(self.definition, self.control, at, is_forced=is_forced)
        assert woken.looks, "a look that is due is made"
        if not is_forced:
            assert at >= self.floor_at - 0.1, "a look before Retry-After allows it"
            assert at >= self.cooled_at - 0.1, "a second probe within one cooldown"
        assert woken.is_probe == (breaker_phase(self.definition, self.control, at) is not BreakerPhase.CLOSED)
        took_s = what["took_s"]
        look = Look(
            started_at=at,
            ended_at=at + took_s,
            reached=what["reached"],
            status=what["status"],
            retry_after_s=what["retry_after_s"] if what["reached"] else None,
            is_witnessed=what["is_witnessed"],
            is_forced=is_forced,
        )
        now = at + took_s + write_s
        self._check(look, now, chance)

    def _check(self, look: Look, now: float, chance: float) -> None:
        before = self.control
        decision = decide(self.definition, before, look, now, chance=chance)
        assert decision == decide(self.definition, read(write(before)), look, now, chance=chance)
        assert now < decision.next_at
        assert read(write(decision.control)) == decision.control
        self._count(look)
        assert decision.control.failures == self.in_a_row
        assert decision.next_at >= self.floor_at
        assert decision.next_at >= self.cooled_at
        self.decision = decision

    def _count(self, look: Look) -> None:
        breaker = self.definition.breaker
        if look.reached:
            self.in_a_row, self.cooled_at = 0, 0.0
            wait_s = look.retry_after_s
            self.floor_at = look.ended_at + min(wait_s, MAX_RETRY_AFTER_S) if wait_s and wait_s > 0 else 0.0
        elif look.is_conclusive:
            self.in_a_row += 1
            if breaker is not None and self.in_a_row >= breaker.failures:
                self.cooled_at = look.ended_at + breaker.cooldown_s


@reproducible
@given(definitions, stories)
def test_rules_of_time_hold_after_every_look(definition: Definition, story: list[Any]) -> None:
    observer = Observer(definition)
    for step in story:
        observer.step(*step)


@reproducible
@given(definitions, stories)
def test_a_failed_look_is_followed_no_earlier_than_the_interval_and_the_backoff(
    definition: Definition, story: list[Any]
) -> None:
    control = register(definition, NOON).control
    for what, late_s, write_s, _, chance in story:
        at = control.due_at + late_s
        look = Look(started_at=at, ended_at=at + what["took_s"], reached=False)
        now = at + what["took_s"] + write_s
        due_at, control = control.due_at, decide(definition, control, look, now, chance=chance).control
        if control.waits == "breaker":
            continue
        assert control.due_at >= due_at + definition.every_s - 1e-3
        if definition.backoff is not None:
            shortest_s = definition.backoff.wait_s(control.failures) * (1 - definition.backoff.jitter)
            assert control.due_at >= look.ended_at + shortest_s - 1e-3


def test_retry_after_is_a_floor_whatever_the_status() -> None:
    definition = service(every="30s")
    for status in Status:
        control = register(definition, NOON).control
        look = Look(started_at=NOON, ended_at=NOON + 1, reached=True, status=status, retry_after_s=120)
        decision = decide(definition, control, look, NOON + 1)
        assert decision.next_at == NOON + 121
        assert decision.control.waits == "retry_after"


def test_a_retry_after_that_is_shorter_than_the_interval_changes_nothing() -> None:
    definition = service(every="30s")
    control = register(definition, NOON).control
    plain = Look(started_at=control.due_at, ended_at=control.due_at, reached=True, status=Status.UP)
    asked = Look(started_at=control.due_at, ended_at=control.due_at, reached=True, status=Status.UP, retry_after_s=2)
    assert (
        decide(definition, control, plain, control.due_at).next_at
        == decide(definition, control, asked, control.due_at).next_at
    )


def test_a_retry_after_of_years_is_cut_to_a_day() -> None:
    definition = service(every="30s")
    control = register(definition, NOON).control
    look = Look(started_at=NOON, ended_at=NOON, reached=True, status=Status.DOWN, retry_after_s=1e12)
    assert decide(definition, control, look, NOON).next_at == NOON + 86_400
