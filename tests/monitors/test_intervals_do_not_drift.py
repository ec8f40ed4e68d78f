"""An interval is kept from start to start: on average exactly, without bursts, and together with equal requests."""

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll.monitors import Status
from everpoll.monitors.control import Control
from everpoll.monitors.decision import decide, register, wake
from everpoll.monitors.definition import Change, change
from everpoll.monitors.next_look import look_due_at

from .scenes import NOON, Story, answer, refusal, service

reproducible = settings(derandomize=True, deadline=None, max_examples=200)
intervals = st.sampled_from(("5s", "7s", "30s", "61s", "1h"))


@pytest.mark.parametrize("every_s", [5.0, 7.5, 30.0, 3600.0])
def test_a_thousand_looks_take_a_thousand_intervals(every_s: float) -> None:
    story = Story(service(every=every_s))
    story.answers()
    begin = story.due_at
    for _ in range(1_000):
        story.answers(took_s=0.3)
    assert story.due_at - begin == pytest.approx(1_000 * every_s, abs=1e-3)


@reproducible
@given(intervals, st.lists(st.tuples(st.floats(0, 4), st.floats(0, 4)), min_size=1, max_size=50))
def test_lateness_and_slow_looks_move_no_later_look(every: str, delays: list[tuple[float, float]]) -> None:
    """Every look is due on the grid of its interval, however late the ones before it began and ended."""
    definition = service(every=every)
    story = Story(definition)
    story.answers()
    grid = story.due_at
    for late_s, took_s in delays:
        at = story.due_at + late_s
        story.look(answer(at, took_s=took_s))
        off_grid_s = (story.due_at - grid) % definition.every_s
        assert min(off_grid_s, definition.every_s - off_grid_s) < 1e-4
        assert at + took_s < story.due_at <= at + took_s + definition.every_s + 1e-3


def test_looks_that_are_always_late_still_keep_the_rate() -> None:
    """Three seconds late each time, of an interval of five: one look an interval all the same."""
    story = Story(service(every="5s"))
    story.answers()
    begin = story.due_at
    for _ in range(100):
        story.look(answer(story.due_at + 3, took_s=1))
    assert story.due_at - begin == pytest.approx(500, abs=1e-3)


def test_missed_slots_are_skipped_and_not_caught_up() -> None:
    """No worker for an hour: one look, and the next a whole interval later at most."""
    story = Story(service(every="5s"))
    story.answers()
    at = story.due_at + 3_600
    story.look(answer(at))
    assert at < story.due_at <= at + 5
    gaps = []
    for _ in range(10):
        before = story.due_at
        story.answers()
        gaps.append(round(story.due_at - before, 6))
    assert gaps == [5.0] * 10


def test_a_look_that_takes_longer_than_the_interval_skips_the_slots_it_covers() -> None:
    story = Story(service(every="5s"))
    story.answers()
    at = story.due_at
    story.answers(took_s=12)
    assert story.due_at == pytest.approx(at + 15, abs=1e-4)


def test_a_failing_service_keeps_its_interval_without_drift() -> None:
    story = Story(service(every="30s", breaker=None, backoff=None))
    begin = story.due_at
    for _ in range(200):
        story.look(refusal(story.due_at + 1.7, took_s=2.3))
    assert story.due_at - begin == pytest.approx(200 * 30, abs=1e-3)


def test_a_failed_look_that_is_very_late_skips_what_it_missed() -> None:
    story = Story(service(every="30s"))
    due_at = story.due_at
    at = due_at + 10.5 * 30
    story.look(refusal(at, took_s=1))
    assert story.due_at == pytest.approx(due_at + 11 * 30, abs=1e-3)


def test_a_look_that_begins_a_little_early_is_not_made_twice() -> None:
    """The clocks of worker and store differ by 50 ms."""
    story = Story(service(every="5s"))
    story.answers()
    at = story.due_at
    assert wake(story.definition, story.control, at - 0.05).looks
    story.look(answer(at - 0.05, took_s=0.01))
    assert story.due_at == pytest.approx(at + 5, abs=1e-4)


def test_the_first_look_comes_within_five_seconds_and_all_are_spread() -> None:
    waits = [register(service(f"s{n}", f"https://s{n}.example/health"), NOON).next_at - NOON for n in range(5_000)]
    assert min(waits) > 0
    assert max(waits) <= 5
    seconds = Counter(int(wait) for wait in waits)
    assert all(850 < seconds[second] < 1_150 for second in range(5))


def test_looks_are_spread_over_the_whole_interval() -> None:
    slots = Counter()  # type: ignore[var-annotated]
    for number in range(3_000):
        story = Story(service(f"s{number}", f"https://s{number}.example/health", every="30s"))
        story.answers()
        slots[int(story.due_at % 30)] += 1
    assert all(60 < slots[second] < 140 for second in range(30))


def test_services_with_the_same_request_meet_whenever_they_were_registered() -> None:
    stories = [
        Story(service("one", every="30s"), NOON),
        Story(service("two", every="30s"), NOON + 1_234.5),
        Story(service("three", every="5s"), NOON + 77.7),
    ]
    for story in stories:
        while story.due_at < NOON + 2_000:
            story.answers()
    phases = [round(story.due_at % 5, 3) for story in stories]
    assert len(set(phases)) == 1
    assert round(stories[0].due_at % 30, 3) == round(stories[1].due_at % 30, 3)


def test_other_headers_are_another_request_with_another_phase() -> None:
    plain, other = service(every="1h"), service(every="1h", headers={"X-Tenant": "7"})
    assert plain.phase_s != other.phase_s


def test_a_forced_look_stands_for_the_slot_that_is_near() -> None:
    story = Story(service(every="30s"))
    story.answers()
    due_at = story.due_at
    early = decide(story.definition, story.control, answer(due_at - 25, is_forced=True), due_at - 25)
    assert early.next_at == pytest.approx(due_at, abs=1e-4)
    shortly_before = decide(story.definition, story.control, answer(due_at - 2, is_forced=True), due_at - 2)
    assert shortly_before.next_at == pytest.approx(due_at + 30, abs=1e-4)


def test_another_interval_holds_at_once() -> None:
    slow, fast = service(every="1h"), service(every="5s")
    assert change(slow, fast) is Change.INTERVAL
    story = Story(slow)
    story.answers()
    now = story.control.looked_at
    assert now is not None
    woken = wake(fast, story.control, now + 1)
    if not woken.looks:
        assert woken.decision is not None
        assert now + 1 < woken.decision.next_at <= now + 5.001
    assert wake(fast, story.control, now + 5.1).looks
    back = Story(fast)
    back.answers()
    now = back.due_at
    woken = wake(slow, back.control, now)
    assert not woken.looks
    assert woken.decision is not None
    assert now < woken.decision.next_at <= now + 3_600
    assert woken.decision.control.due_at == look_due_at(slow, woken.decision.control, now)


def test_another_interval_ends_no_backoff_no_cooldown_and_no_retry_after() -> None:
    story = Story(service(every="30s"))
    for _ in range(10):
        story.refuses()
    assert look_due_at(service(every="5s"), story.control, story.due_at - 299) == story.due_at
    story = Story(service(every="30s"))
    for _ in range(7):
        story.refuses()
    assert look_due_at(service(every="5s"), story.control, story.due_at) == story.due_at
    story = Story(service(every="30s"))
    story.answers(Status.DOWN, retry_after_s=500)
    assert look_due_at(service(every="5s"), story.control, story.due_at) == story.due_at


def test_a_memory_of_nothing_is_looked_at_and_planned_like_any_other() -> None:
    definition = service()
    assert wake(definition, Control(), NOON).looks
    decision = decide(definition, Control(), answer(NOON), NOON)
    assert NOON < decision.next_at <= NOON + 45


@reproducible
@given(st.integers(0, 2**32 - 1))
def test_no_two_looks_are_closer_than_half_an_interval(seed: int) -> None:
    rng = random.Random(seed)
    story = Story(service(every=rng.choice([5, 30, 60])))
    times = []
    for _ in range(40):
        times.append(story.due_at)
        if rng.random() < 0.6:
            story.answers()
        else:
            story.refuses(took_s=rng.random())
    every_s = story.definition.every_s
    assert all(after - before >= every_s / 2 - 1e-3 for before, after in pairwise(times))
