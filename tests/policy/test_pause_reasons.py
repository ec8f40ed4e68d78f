"""A pause is a set of reasons: lifting one keeps the others, equal sets are one object, short intervals go first."""

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll.policy import NOT_PAUSED, STAGGER_S, PauseReason, PauseReasons, paused, resume_order, resumed

reproducible = settings(derandomize=True, deadline=None)
reasons = st.sampled_from(PauseReason)


def all_of(chosen: tuple[PauseReason, ...]) -> PauseReasons:
    held = NOT_PAUSED
    for reason in chosen:
        held = paused(held, reason)
    return held


def test_lifting_one_reason_keeps_the_others() -> None:
    both = all_of((PauseReason.HIDDEN, PauseReason.OPERATOR))
    assert resumed(both, PauseReason.HIDDEN) == {PauseReason.OPERATOR}
    assert resumed(resumed(both, PauseReason.HIDDEN), PauseReason.OPERATOR) is NOT_PAUSED


def test_pausing_twice_needs_one_resume() -> None:
    twice = all_of((PauseReason.HIDDEN, PauseReason.HIDDEN))
    assert resumed(twice, PauseReason.HIDDEN) is NOT_PAUSED


def test_lifting_what_is_not_there_changes_nothing() -> None:
    assert resumed(NOT_PAUSED, PauseReason.SHUTDOWN) is NOT_PAUSED


def test_equal_sets_are_one_object_whatever_the_order() -> None:
    assert len({id(all_of(order)) for order in permutations(PauseReason)}) == 1


@reproducible
@given(st.lists(st.tuples(st.booleans(), reasons), max_size=50))
def test_there_are_eight_sets_and_no_more(events: list[tuple[bool, PauseReason]]) -> None:
    shared = {id(all_of(chosen)) for size in range(4) for chosen in permutations(PauseReason, size)}
    assert len(shared) == 8
    held, expected = NOT_PAUSED, set[PauseReason]()
    for pausing, reason in events:
        held = paused(held, reason) if pausing else resumed(held, reason)
        expected = expected | {reason} if pausing else expected - {reason}
        assert held == expected
        assert id(held) in shared


def test_shortest_interval_first_and_equal_ones_in_their_order() -> None:
    stale = [(60.0, "slow"), (5.0, "b"), (1.0, "fast"), (5.0, "a")]
    assert resume_order(stale) == ["fast", "b", "a", "slow"]


def test_keys_need_not_be_comparable() -> None:
    first, second = object(), object()
    assert resume_order([(5.0, first), (5.0, second)]) == [first, second]
    assert resume_order([]) == []


def test_resumed_loops_are_150_ms_apart() -> None:
    assert STAGGER_S == 0.150
