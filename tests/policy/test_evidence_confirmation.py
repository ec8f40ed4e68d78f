"""A sighting counts only after enough of them, far enough apart, with nothing contrary in between."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll.policy import Confirm, Confirmation

TWICE = Confirm(times=2, gap="15s")
reproducible = settings(derandomize=True, deadline=None)


def verdicts(confirm: Confirm, sightings: list[tuple[float, bool | None]]) -> list[bool]:
    state, answers = Confirmation(), []
    for now, seen in sightings:
        state, confirmed = confirm.observe(state, seen, now)
        answers.append(confirmed)
    return answers


@pytest.mark.parametrize(
    ("sightings", "expected"),
    [
        pytest.param([(0, True), (15, True)], [False, True], id="twice, 15 s apart"),
        pytest.param([(0, True), (14.9, True)], [False, False], id="too close"),
        pytest.param([(0, True), (10, True), (15, True)], [False, False, True], id="one too close does not restart"),
        pytest.param([(0, True), (15, False), (30, True)], [False] * 3, id="contrary starts over"),
        pytest.param([(0, True), (7, None), (15, True)], [False, False, True], id="unknown does not reset"),
        pytest.param([(0, True), (15, None)], [False, False], id="unknown does not confirm"),
        pytest.param([(0, True), (15, True), (16, True)], [False, True, True], id="stays confirmed while seen"),
        pytest.param(
            [(0, True), (15, True), (16, None)], [False, True, False], id="unknown does not count as a sighting"
        ),
        pytest.param([(0, True), (15, True), (16, False), (31, True)], [False, True, False, False], id="can be lost"),
    ],
)
def test_when_it_is_confirmed(sightings: list[tuple[float, bool | None]], expected: list[bool]) -> None:
    assert verdicts(TWICE, sightings) == expected


def test_once_is_enough_when_one_time_is_asked_for() -> None:
    assert verdicts(Confirm(times=1, gap="1h"), [(0, True)]) == [True]


def test_the_hint_is_the_first_instant_that_could_confirm() -> None:
    """A pending confirmation asks for the next look after 15 s, where the bare backoff would make it 30."""
    assert TWICE.hint_at(Confirmation()) is None
    state, _ = TWICE.observe(Confirmation(), True, 100)
    assert TWICE.hint_at(state) == 115
    assert TWICE.observe(state, True, 115)[1]


def test_there_is_no_hint_once_it_is_confirmed_or_lost() -> None:
    pending, _ = TWICE.observe(Confirmation(), True, 0)
    confirmed, _ = TWICE.observe(pending, True, 15)
    lost, _ = TWICE.observe(pending, False, 15)
    assert TWICE.hint_at(confirmed) is None
    assert TWICE.hint_at(lost) is None


def test_a_confirmed_state_stays_as_it_is() -> None:
    """Sightings after the confirmation write nothing new into the row."""
    state, _ = TWICE.observe(Confirmation(count=1, last_at=0), True, 15)
    assert TWICE.observe(state, True, 300) == (state, True)


@reproducible
@given(
    st.integers(1, 4),
    st.sampled_from([0, 5, 15]),
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from([True, True, True, False, None])), max_size=40),
)
def test_it_never_confirms_early(times: int, gap_s: int, steps: list[tuple[int, bool | None]]) -> None:
    """Against an independent count: the sightings since the last contrary one, taken greedily a gap apart."""
    confirm, state, now = Confirm(times, gap_s), Confirmation(), 0
    counted: list[int] = []
    for later_s, seen in steps:
        now += later_s
        if seen is False:
            counted = []
        elif seen is True and (not counted or now - counted[-1] >= gap_s):
            counted.append(now)
        state, confirmed = confirm.observe(state, seen, now)
        assert confirmed == (seen is True and len(counted) >= times)
