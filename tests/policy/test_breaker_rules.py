"""The breaker opens on the Nth failure in a row, rests, lets exactly one probe through, and cannot be locked."""

import pytest

from everpoll.policy import Breaker, BreakerPhase, BreakerState

CLOSED, OPEN, HALF_OPEN = BreakerPhase.CLOSED, BreakerPhase.OPEN, BreakerPhase.HALF_OPEN
BREAKER = Breaker()  # The defaults: 10 failures, 5 minutes.


def opened(at: float = 0.0) -> BreakerState:
    state = BreakerState()
    for _ in range(10):
        state = BREAKER.failed(state, at)
    return state


def probing(at: float = 300.0) -> BreakerState:
    state, allowed = BREAKER.ask(opened(), at)
    assert allowed
    return state


def test_a_new_breaker_is_closed_and_lets_everything_through() -> None:
    state = BreakerState()
    assert BREAKER.phase(state, 0) is CLOSED
    assert BREAKER.ask(state, 0) == (state, True)
    assert BREAKER.ask(state, 0, force=True) == (state, True)
    assert BREAKER.retry_at(state, 7.0) == 7.0


def test_it_opens_on_the_tenth_failure_in_a_row_and_not_before() -> None:
    state = BreakerState()
    phases = []
    for now in range(10):
        state = BREAKER.failed(state, now)
        phases.append(BREAKER.phase(state, now))
    assert phases == [CLOSED] * 9 + [OPEN]


def test_a_success_in_between_starts_the_count_over() -> None:
    state = BreakerState(failures=9)
    state = BREAKER.failed(BREAKER.succeeded(state), 0)
    assert state == BreakerState(failures=1)


def test_it_refuses_until_the_cooldown_is_over_then_takes_one_probe() -> None:
    state = opened(at=0)
    assert BREAKER.ask(state, 299.999) == (state, False)
    assert BREAKER.phase(state, 299.999) is OPEN
    assert BREAKER.phase(state, 300) is HALF_OPEN
    state, allowed = BREAKER.ask(state, 300)
    assert allowed
    assert BREAKER.phase(state, 301) is HALF_OPEN
    assert BREAKER.ask(state, 301) == (state, False)


def test_a_probe_that_succeeds_closes_it() -> None:
    assert BREAKER.succeeded(probing()) == BreakerState()


def test_a_probe_that_fails_opens_it_with_a_fresh_cooldown() -> None:
    state = BREAKER.failed(probing(at=300), 310)
    assert BREAKER.phase(state, 609.9) is OPEN
    assert BREAKER.retry_at(state, 310) == 610
    assert BREAKER.ask(state, 610)[1]


def test_force_makes_the_call_the_probe_before_the_cooldown_is_over() -> None:
    state, allowed = BREAKER.ask(opened(at=0), 10, force=True)
    assert allowed
    assert BREAKER.phase(state, 10) is HALF_OPEN


@pytest.mark.parametrize("force", [False, True])
def test_nothing_passes_while_a_probe_is_out(force: bool) -> None:
    state = probing(at=300)
    assert BREAKER.ask(state, 599.9, force=force) == (state, False)


def test_a_silent_probe_counts_as_failed_after_one_cooldown() -> None:
    """The prober crashed at 300: given up at 600, refused until 900, whenever a caller asks in between."""
    state = probing(at=300)
    assert BREAKER.phase(state, 600) is OPEN
    assert BREAKER.ask(state, 899.9)[1] is False
    noticed, allowed = BREAKER.ask(state, 700)
    assert not allowed
    assert noticed == BreakerState(failures=11, opened_at=600)
    assert BREAKER.retry_at(state, 700) == BREAKER.retry_at(noticed, 700) == 900
    assert BREAKER.ask(state, 900)[1]
    assert BREAKER.ask(noticed, 900)[1]


def test_a_cancelled_probe_leaves_room_for_another_at_once() -> None:
    state = BREAKER.abandoned(probing(at=300))
    assert state == opened(at=0)
    assert BREAKER.ask(state, 301)[1]


def test_a_cancelled_forced_probe_does_not_shorten_the_cooldown() -> None:
    state, _ = BREAKER.ask(opened(at=0), 10, force=True)
    state = BREAKER.abandoned(state)
    assert BREAKER.ask(state, 20)[1] is False
    assert BREAKER.ask(state, 300)[1]


def test_abandoning_while_closed_changes_nothing() -> None:
    assert BREAKER.abandoned(BreakerState(failures=3)) == BreakerState(failures=3)


def test_a_straggler_that_fails_does_not_prolong_the_cooldown() -> None:
    """A call that left before the breaker opened reports its failure a minute later."""
    state = BREAKER.failed(opened(at=0), 60)
    assert BREAKER.retry_at(state, 60) == 300


def test_one_failure_can_be_enough() -> None:
    breaker = Breaker(1, "1s")
    assert breaker.phase(breaker.failed(BreakerState(), 5), 5) is OPEN
