"""A service that is not reached: the literal times of its looks, through backoff, open breaker, probes and recovery."""

from itertools import pairwise

from everpoll import Backoff, Breaker
from everpoll.monitors import Status
from everpoll.monitors.control import breaker_phase
from everpoll.monitors.decision import decide, wake
from everpoll.monitors.look import Look

from .scenes import NOON, Story, answer, refusal, service


def timeline(story: Story, looks: int) -> list[tuple[float, str, float]]:
    """Time of each refused look since the first one, phase of the breaker after it, and time of the next look."""
    lines, begin = [], story.due_at
    for _ in range(looks):
        at = story.due_at
        story.refuses()
        lines.append((round(at - begin, 6), story.phase(at), round(story.due_at - begin, 6)))
    return lines


def test_with_an_interval_of_30_seconds() -> None:
    """Waits of max(30 s, 1 s * 2^n) until the tenth failure opens the breaker; then one probe after each 5 minutes."""
    assert timeline(Story(service(every="30s")), looks=13) == [
        (0, "closed", 30),
        (30, "closed", 60),
        (60, "closed", 90),
        (90, "closed", 120),
        (120, "closed", 150),
        (150, "closed", 182),
        (182, "closed", 246),
        (246, "closed", 374),
        (374, "closed", 630),
        (630, "open", 930),
        (930, "open", 1230),
        (1230, "open", 1530),
        (1530, "open", 1830),
    ]


def test_with_an_interval_of_5_seconds() -> None:
    assert timeline(Story(service(every="5s")), looks=11) == [
        (0, "closed", 5),
        (5, "closed", 10),
        (10, "closed", 15),
        (15, "closed", 23),
        (23, "closed", 39),
        (39, "closed", 71),
        (71, "closed", 135),
        (135, "closed", 263),
        (263, "closed", 519),
        (519, "open", 819),
        (819, "open", 1119),
    ]


def test_with_an_interval_beyond_every_backoff() -> None:
    lines = timeline(Story(service(every="10m")), looks=11)
    assert [after - at for at, _, after in lines] == [600.0] * 9 + [300.0] * 2


def test_without_a_breaker_the_backoff_ends_at_its_cap() -> None:
    lines = timeline(Story(service(every="5s", breaker=None)), looks=12)
    assert [after - at for at, _, after in lines] == [5, 5, 5, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert {phase for _, phase, _ in lines} == {"closed"}


def test_without_a_backoff_the_interval_holds() -> None:
    lines = timeline(Story(service(every="5s", backoff=None, breaker=None)), looks=12)
    assert [after - at for at, _, after in lines] == [5.0] * 12


def test_the_phases_between_the_looks() -> None:
    story = Story(service(every="30s"))
    timeline(story, looks=10)
    opened_at = story.due_at - 300
    assert [story.phase(opened_at + later_s) for later_s in (0, 299.9, 300, 301)] == [
        "open",
        "open",
        "half_open",
        "half_open",
    ]


def test_no_look_is_due_while_the_breaker_is_open() -> None:
    story = Story(service(every="30s"))
    timeline(story, looks=10)
    opened_at, probe_at = story.due_at - 300, story.due_at
    for later_s in (0.1, 30, 150, 299):
        woken = wake(story.definition, story.control, opened_at + later_s)
        assert not woken.looks
        assert woken.decision is not None
        assert woken.decision.next_at == probe_at
    woken = wake(story.definition, story.control, probe_at)
    assert woken.looks
    assert woken.is_probe


def test_a_probe_that_is_answered_closes_the_breaker_and_the_interval_holds_again() -> None:
    story = Story(service(every="30s"))
    timeline(story, looks=11)
    story.answers()
    assert story.phase(story.control.due_at) == "closed"
    assert story.control.failures == 0
    slots = [story.due_at]
    for _ in range(5):
        story.answers()
        slots.append(story.due_at)
    assert [round(after - before, 6) for before, after in pairwise(slots)] == [30.0] * 5
    assert [kind for kind in story.kinds() if kind.startswith("circuit")] == ["circuit:open", "circuit:close"]


def test_a_success_starts_the_backoff_over() -> None:
    story = Story(service(every="5s"))
    timeline(story, looks=6)
    story.answers()
    assert [after - at for at, _, after in timeline(story, looks=5)] == [5, 5, 5, 8, 16]


def test_an_answer_that_says_down_feeds_neither_breaker_nor_backoff() -> None:
    story = Story(service(every="5s"))
    begin = story.due_at
    for number in range(30):
        assert round(story.due_at - begin, 6) == number * 5
        story.answers(Status.DOWN, error="HTTP 503")
    assert story.control.failures == 0
    assert story.phase(story.due_at) == "closed"
    assert story.control.status is Status.DOWN


def test_any_answer_closes_an_open_breaker() -> None:
    story = Story(service(every="30s"))
    timeline(story, looks=10)
    story.answers(Status.DOWN, error="HTTP 500")
    assert story.phase(story.due_at) == "closed"
    assert story.control.status is Status.DOWN


def test_the_cooldown_counts_from_the_failure_and_not_from_the_start_of_the_look() -> None:
    """Ten seconds until the look times out, and three more until its result is written."""
    story = Story(service(every="30s", breaker=Breaker(1, "5m")))
    at = story.due_at
    story.look(refusal(at, took_s=10), now=at + 13)
    assert story.due_at == at + 310


def test_a_backoff_counts_from_the_failure_and_an_interval_from_the_due_time() -> None:
    story = Story(service(every="30s", backoff=Backoff("40s", factor=1, jitter=0)))
    at = story.due_at
    story.refuses(took_s=10)
    assert story.due_at == at + 50
    story = Story(service(every="30s"))
    at = story.due_at
    story.refuses(took_s=10)
    assert story.due_at == at + 30


def test_jitter_displaces_a_backoff_by_the_chance_that_is_handed_in() -> None:
    definition = service(every="5s", backoff=Backoff("60s", factor=1, jitter=0.1))
    for chance, wait_s in ((0.0, 54), (0.5, 60), (0.75, 63)):
        story = Story(definition)
        at = story.due_at
        story.look(refusal(at), chance=chance)
        assert round(story.due_at - at, 6) == wait_s


def test_a_forced_look_is_made_while_the_breaker_is_open_and_is_the_probe() -> None:
    definition = service(every="30s")
    story = Story(definition)
    timeline(story, looks=10)
    at = story.due_at - 200
    woken = wake(definition, story.control, at, is_forced=True)
    assert woken.looks
    assert woken.is_probe
    failed = decide(definition, story.control, refusal(at, is_forced=True), at)
    assert failed.next_at == at + 300
    answered = decide(definition, story.control, answer(at, is_forced=True), at)
    assert breaker_phase(definition, answered.control, at) == "closed"
    assert at + 15 <= answered.next_at <= at + 45


def test_a_forced_look_that_learns_nothing_does_not_shorten_the_cooldown() -> None:
    definition = service(every="30s")
    story = Story(definition)
    timeline(story, looks=10)
    probe_at = story.due_at
    at = probe_at - 200
    nothing = Look(started_at=at, ended_at=at, reached=None, is_forced=True)
    assert decide(definition, story.control, nothing, at).next_at == probe_at


def test_another_target_is_due_at_once_and_starts_over() -> None:
    story = Story(service(every="30s"))
    timeline(story, looks=10)
    now = story.due_at - 250
    moved = service(target="http://127.0.0.1:9090/health", every="30s")
    woken = wake(moved, story.control, now)
    assert woken.looks
    assert not woken.is_probe
    decision = decide(moved, story.control, refusal(now), now)
    assert decision.control.failures == 1
    assert decision.next_at == now + 30
    assert [event.kind for event in decision.events] == ["circuit:close"]
    assert breaker_phase(moved, decision.control, now) == "closed"


def test_the_story_begins_where_the_tests_say() -> None:
    assert NOON < Story(service()).due_at <= NOON + 5
