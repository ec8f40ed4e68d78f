"""A worker is called dead only by a watcher that has beaten all along while the other did not."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everpoll.policy.liveness import Observations, OtherWorker, Verdict, judge

LEASE_S = 30.0
BEAT_S = 10.0
WHO = 7


def looked(
    observations: Observations, at: float, beats: int, *, answer_s: float = 0.0, lease_s: float = LEASE_S
) -> Verdict:
    return judge(observations, at, at + answer_s, [OtherWorker(WHO, beats, lease_s)])


def watched(looks: Iterable[tuple[float, int]], **options: float) -> list[float]:
    """The times at which the other was called dead, in a series of (when, its number)."""
    observations, dead = Observations(), []
    for at, beats in looks:
        verdict = looked(observations, at, beats, **options)
        observations = verdict.observations
        if verdict.dead:
            assert verdict.dead == ((WHO, beats),)
            dead.append(at)
    return dead


def test_a_number_that_stands_still_over_a_whole_lease_is_dead() -> None:
    assert watched([(0, 5), (10, 5), (20, 5), (29.9, 5), (30, 5)]) == [30]


def test_a_number_that_changes_starts_over() -> None:
    assert watched([(0, 5), (10, 5), (20, 5), (29, 6), (39, 6), (49, 6), (58.9, 6), (59, 6)]) == [59]


def test_a_worker_that_beats_is_never_dead() -> None:
    assert watched([(at * BEAT_S, at) for at in range(1_000)]) == []


@pytest.mark.parametrize("outage_s", [16, 20, 60, 86_400])
def test_a_watcher_that_was_cut_off_itself_starts_over(outage_s: float) -> None:
    """However soon its next looks come: hurried ones prove nothing about the others."""
    back = 10 + outage_s
    assert watched([(0, 5), (10, 5), (back, 5), (back + 0.6, 5), (back + 0.9, 5), (back + 12, 6)]) == []
    dead = watched([(0, 5), (10, 5), *((back + step * BEAT_S, 5) for step in range(4))])
    assert dead == [back + LEASE_S]


def test_an_answer_that_hung_counts_as_a_gap_and_not_as_watching() -> None:
    """The question was sent in time and answered 20 s later: what it shows may be from either end."""
    first = looked(Observations(), 0, 5)
    hung = looked(first.observations, 10, 5, answer_s=20.0)
    assert hung.dead == ()
    assert [looked(hung.observations, at, 5).dead for at in (30, 40)] == [(), ()]


def test_an_answer_that_hung_counts_in_the_gap_before_the_next_answer_too() -> None:
    """It may tell of the moment at which it was asked for."""
    first = looked(Observations(), 10, 5)
    hung = looked(first.observations, 10.5, 5, answer_s=14.0)
    after = looked(hung.observations, 26, 5)
    assert [looked(after.observations, at, 5).dead for at in (41, 41.5)] == [(), ()]


def test_three_shared_outages_in_a_row_kill_no_worker() -> None:
    looks = []
    at, beats = 0.0, 0
    for _ in range(3):
        looks += [(at, beats), (at + BEAT_S, beats + 1)]
        at, beats = at + BEAT_S + 60, beats + 1
        # Back: the watcher is first, and hurried; the other is heard a beat later.
        looks += [(at, beats), (at + 0.6, beats), (at + 1.2, beats), (at + BEAT_S, beats + 1)]
        at, beats = at + 2 * BEAT_S, beats + 2
    assert watched(looks) == []


def test_the_watcher_looks_again_just_when_the_verdict_is_due() -> None:
    first = looked(Observations(), 0.0, 5, answer_s=0.5)
    assert first.check_again_s is None
    second = looked(first.observations, 10.0, 5)
    assert second.check_again_s == pytest.approx(10.0)
    third = looked(second.observations, 20.0, 5)
    fourth = looked(third.observations, 30.0, 5)
    assert fourth.dead == ()
    assert fourth.check_again_s == pytest.approx(0.5)
    assert looked(fourth.observations, 30.5, 5).dead == ((WHO, 5),)


def test_another_with_a_shorter_lease_is_watched_closely_before_it_is_called_dead() -> None:
    """A look every 10 s cannot tell an outage of 9 s from a death of a worker with a lease of 3 s."""
    observations = looked(Observations(), 0, 5, lease_s=3.0).observations
    verdict = looked(observations, 10, 5, lease_s=3.0)
    assert (verdict.dead, verdict.check_again_s) == ((), 1.0)
    for at in (11, 12):
        verdict = looked(verdict.observations, at, 5, lease_s=3.0)
        assert verdict.dead == ()
    assert looked(verdict.observations, 13, 5, lease_s=3.0).dead == ((WHO, 5),)


def test_a_worker_that_is_not_seen_any_more_is_forgotten() -> None:
    observations = looked(Observations(), 0, 5).observations
    assert judge(observations, 10, 10, []).observations.standstills == {}


OUTAGES = st.lists(st.tuples(st.floats(1.0, 400.0), st.floats(0.0, 200.0)), max_size=6)


@given(outages=OUTAGES, phase=st.floats(0.0, BEAT_S), hurries=st.lists(st.floats(0.0, 900.0), max_size=10))
def test_whatever_outages_two_live_workers_share_neither_calls_the_other_dead(
    outages: list[tuple[float, float]], phase: float, hurries: list[float]
) -> None:
    """Both beat every 10 s and retry every second; the database is away for any spans; wake-ups hurry the watcher."""
    away, at = [], 0.0
    for pause_s, span_s in outages:
        away.append((at + pause_s, at + pause_s + span_s))
        at += pause_s + span_s

    def is_up(now: float) -> bool:
        return not any(start <= now < end for start, end in away)

    def beats(start: float, extra: list[float]) -> list[float]:
        heard, now = [], start
        while now < at + 100.0:
            heard += [now] if is_up(now) else []
            now += BEAT_S if is_up(now) else 1.0
        return sorted([*heard, *(one for one in extra if is_up(one))])

    other = beats(phase, [])
    looks = [(now, sum(one <= now for one in other)) for now in beats(0.0, hurries)]
    assert watched(looks) == []


FREEZES = st.lists(st.tuples(st.floats(0.0, 100.0), st.floats(0.5, 60.0), st.booleans(), st.booleans()), max_size=8)
"""From the end of the one before; how long; whether what the watcher asks then is done at once, and the other's."""


@given(freezes=FREEZES, phase=st.floats(0.0, BEAT_S))
def test_whatever_hangs_in_the_network_neither_of_two_live_workers_calls_the_other_dead(
    freezes: list[tuple[float, float, bool, bool]], phase: float
) -> None:
    """What is asked while the network hangs is answered when it goes on. The database has done it then, or earlier."""
    spans, end = [], 0.0
    for pause_s, span_s, *early in freezes:
        spans.append((end + pause_s, end + pause_s + span_s, early))
        end += pause_s + span_s

    def beats(start: float, who: int) -> list[tuple[float, float, float]]:
        """When each beat was asked, done and answered."""
        found, now = [], start
        while now < end + 100.0:
            until, early = next(((b, early[who]) for a, b, early in spans if a <= now < b), (now, False))
            found.append((now, now if early else until, until))
            now = max(now + BEAT_S, until)
        return found

    others, observations = beats(phase, 1), Observations()
    for asked_at, done_at, answered_at in beats(0.0, 0):
        number = sum(done <= done_at for _, done, _ in others)
        verdict = judge(observations, asked_at, answered_at, [OtherWorker(WHO, number, LEASE_S)])
        observations = verdict.observations
        assert verdict.dead == (), f"called dead at {answered_at} s"
