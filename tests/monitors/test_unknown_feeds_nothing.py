"""A look that says nothing about the service, by our own fault, turns it unknown, and nothing else."""

import pytest

from everpoll.monitors import Status
from everpoll.monitors.alerting import Alert
from everpoll.monitors.control import are_reports_stale, shown_status, stale_at
from everpoll.monitors.look import Look, verdict

from .scenes import NOON, Story, dependency, refusal, report, service


def unwitnessed(at: float) -> Look:
    return refusal(at, is_witnessed=False)


def not_asked(at: float) -> Look:
    return Look(started_at=at, ended_at=at, reached=None, error="no file descriptor is left")


@pytest.mark.parametrize("nothing", [unwitnessed, not_asked])
def test_it_turns_the_status_unknown_and_says_why(nothing: type) -> None:
    story = Story(service(witness="https://example.com"))
    story.answers()
    decision = story.look(nothing(story.due_at))
    assert decision.control.status is Status.UNKNOWN
    assert decision.control.error is not None
    assert ("ours" in decision.control.error) or ("not asked" in decision.control.error)
    assert [event.kind for event in decision.events] == ["status:change"]
    assert story.answers().control.status is Status.UP


@pytest.mark.parametrize("nothing", [unwitnessed, not_asked])
def test_it_feeds_neither_breaker_nor_backoff_nor_incident(nothing: type) -> None:
    story = Story(service(every="5s", alert=Alert(after=1)))
    story.answers()
    begin = story.due_at
    for _ in range(50):
        decision = story.look(nothing(story.due_at))
        assert decision.opened == ()
        assert decision.control.failures == 0
    assert story.due_at - begin == pytest.approx(250, abs=1e-3)
    assert "circuit:open" not in story.kinds()


def test_it_neither_interrupts_nor_lengthens_a_row_of_failures() -> None:
    story = Story(service(every="5s", alert=Alert(after=3)))
    story.refuses()
    story.refuses()
    for _ in range(5):
        assert story.look(unwitnessed(story.due_at)).opened == ()
    assert story.control.failures == 2
    assert len(story.refuses().opened) == 1


def test_it_does_not_close_an_incident() -> None:
    story = Story(service(alert=Alert(after=1)))
    assert len(story.refuses().opened) == 1
    for _ in range(5):
        assert story.look(unwitnessed(story.due_at)).closed == ()
    assert len(story.answers().closed) == 1


def test_an_inconclusive_probe_is_followed_by_another_one_interval_later() -> None:
    story = Story(service(every="30s"))
    for _ in range(10):
        story.refuses()
    at = story.due_at
    story.look(unwitnessed(at))
    assert story.phase(story.due_at) == "half_open"
    assert story.due_at == pytest.approx(at + 30, abs=1e-3)
    story.refuses()
    assert story.phase(story.due_at - 1) == "open"
    assert story.due_at == pytest.approx(at + 330, abs=1e-3)


def test_a_witness_that_answers_makes_the_outage_the_services_own() -> None:
    assert verdict(refusal(NOON, is_witnessed=True)) == (Status.DOWN, "connection refused")
    assert verdict(refusal(NOON)) == (Status.DOWN, "connection refused")


def test_an_answer_counts_whatever_the_witness_does() -> None:
    look = Look(started_at=NOON, ended_at=NOON, reached=True, status=Status.UP, is_witnessed=False)
    assert verdict(look) == (Status.UP, None)


def test_an_error_is_cut_to_what_a_row_may_keep() -> None:
    look = Look(started_at=NOON, ended_at=NOON, reached=False, error="x" * 100_000)
    assert len(verdict(look)[1] or "") == 500


def test_a_status_is_stale_after_three_intervals_without_a_look() -> None:
    story = Story(service(every="30s"))
    assert stale_at(story.definition, story.control) is None
    at = story.due_at
    story.answers()
    assert shown_status(story.definition, story.control, at + 89) is Status.UP
    assert shown_status(story.definition, story.control, at + 136) == "stale"


def test_a_service_that_is_down_is_not_stale_while_its_breaker_is_open() -> None:
    story = Story(service(every="30s"))
    for _ in range(10):
        story.refuses()
    assert shown_status(story.definition, story.control, story.due_at - 1) is Status.DOWN
    assert shown_status(story.definition, story.control, story.due_at + 61) == "stale"


def test_an_unknown_status_is_stale_after_three_intervals_without_one_that_says_anything() -> None:
    story = Story(service(every="30s"))
    story.answers()
    at = story.control.judged_at
    assert at is not None
    while story.due_at < at + 89:
        story.look(unwitnessed(story.due_at))
    assert shown_status(story.definition, story.control, at + 89) is Status.UNKNOWN
    assert shown_status(story.definition, story.control, at + 91) == "stale"


def test_what_a_service_said_of_its_dependencies_is_stale_three_intervals_after_its_last_answer() -> None:
    """Looks that fail must not freeze dependencies at their last state."""
    story = Story(service(every="30s"))
    story.answers(report=report(dependency()))
    answered_at = story.control.answered_at
    assert answered_at is not None
    for _ in range(5):
        story.refuses()
    assert not are_reports_stale(story.definition, story.control, answered_at + 90)
    assert are_reports_stale(story.definition, story.control, answered_at + 91)
    story.answers()
    assert not are_reports_stale(story.definition, story.control, story.control.due_at)
