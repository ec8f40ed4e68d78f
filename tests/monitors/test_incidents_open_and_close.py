"""From looks to incidents: in a row, X of Y, or for a time; opened once, closed once, the same id after a crash."""

from typing import Any

import pytest

from everpoll import Breaker
from everpoll.monitors import Status
from everpoll.monitors.alerting import Alert
from everpoll.monitors.control import CALM, Control
from everpoll.monitors.decision import decide, remove, wake
from everpoll.monitors.look import Look

from .scenes import NOON, Story, answer, dependency, refusal, report, service

DOWN = dependency("db", Status.DOWN, error_message="too many connections")
UP = dependency("db", Status.UP)


def changes(story: Story, looks: str) -> str:
    """Play a text of looks (+ good, - failed, ? unknown); answer what each did: O opened, C closed, . nothing."""
    seen = ""
    for look in looks:
        if look == "?":
            decision = story.look(refusal(story.due_at, is_witnessed=False))
        else:
            decision = story.answers(Status.UP if look == "+" else Status.DOWN)
        seen += "O" * len(decision.opened) + "C" * len(decision.closed) or "."
    return seen


@pytest.mark.parametrize(
    ("alert", "looks", "seen"),
    [
        (Alert(), "+--++--+", "..OC..OC"),
        (Alert(after=1), "-+-+", "OCOC"),
        (Alert(after=3), "--+--+---", "........O"),
        (Alert(after=2, recover=3), "--++-+++", ".O.....C"),
        (Alert(after=3, within=5), "-+-+-+", "....OC"),
        (Alert(after=3, within=5), "-++-++-++", "........."),
        (Alert(after=2, within=4, recover=2), "-+-+++-", "..O.C.."),
        (Alert(), "-?-", "..O"),
        (Alert(), "-?+?-?-", "......O"),
        (Alert(), "--?+", ".O.C"),
        (Alert(after=2, recover=2), "--+?+", ".O..C"),
        (Alert(after=3, within=5), "-?-?-", "....O"),
    ],
)
def test_rows_of_looks(alert: Alert, looks: str, seen: str) -> None:
    assert changes(Story(service(every="5s", alert=alert)), looks) == seen


def test_degraded_is_not_failed() -> None:
    story = Story(service(alert=Alert(after=1)))
    assert story.answers(Status.DEGRADED).opened == ()
    assert len(story.answers(Status.DOWN).opened) == 1
    assert len(story.answers(Status.DEGRADED).closed) == 1


def test_an_incident_says_what_it_is_about() -> None:
    story = Story(service(alert=Alert(after=2, to=["ops"])))
    first_at = story.due_at
    story.refuses()
    at = story.due_at
    (incident,) = story.refuses().opened
    assert (incident.service, incident.dependency) == ("billing", None)
    assert (incident.since, incident.opened_at) == (first_at, at)
    assert incident.error == "connection refused"
    assert incident.alert == story.definition.alert


def test_an_incident_that_opens_by_time_needs_no_further_look() -> None:
    """The breaker is open, so no look comes for five minutes; the incident opens after one all the same."""
    definition = service(every="30s", breaker=Breaker(1, "5m"), alert=Alert(lasting="1m"))
    story = Story(definition)
    failed_at = story.due_at
    decision = story.refuses()
    assert decision.opened == ()
    assert decision.next_at == failed_at + 60
    assert story.control.due_at == failed_at + 300
    assert not wake(definition, story.control, failed_at + 60).looks
    decision = story.sleeps_until(failed_at + 60)
    assert [incident.since for incident in decision.opened] == [failed_at]
    assert decision.next_at == failed_at + 300
    assert [event.kind for event in decision.events] == ["incident:open"]
    assert len(story.answers().closed) == 1


def test_an_incident_by_time_does_not_open_if_a_good_look_comes_first() -> None:
    story = Story(service(every="30s", alert=Alert(lasting="5m")))
    story.refuses()
    story.answers()
    for _ in range(20):
        assert story.answers().opened == ()
    assert story.control.streak == CALM


def test_an_incident_by_time_does_not_open_while_nothing_is_known() -> None:
    story = Story(service(every="30s", alert=Alert(lasting="45s")))
    failed_at = story.due_at
    assert story.refuses().next_at == pytest.approx(failed_at + 30, abs=1e-3)
    decision = story.look(refusal(failed_at + 30, is_witnessed=False))
    assert decision.next_at == pytest.approx(failed_at + 60, abs=1e-3)
    woken = wake(story.definition, story.control, failed_at + 46).decision
    assert woken is not None
    assert woken.opened == ()
    assert len(story.refuses().opened) == 1


def test_a_time_and_a_count_must_both_be_reached() -> None:
    story = Story(service(every="10m", backoff=None, alert=Alert(after=2, lasting="1m")))
    assert story.refuses().next_at == story.control.due_at
    assert len(story.refuses().opened) == 1


def test_a_decision_that_is_repeated_after_a_crash_gives_the_same_id() -> None:
    story = Story(service(alert=Alert(after=1)))
    at = story.due_at
    ids = set()
    for late_s in (0.0, 31.0, 77.7):
        late = Look(started_at=at + late_s, ended_at=at + late_s, reached=False, error=f"refused {late_s}")
        (incident,) = decide(story.definition, story.control, late, at + late_s + 1).opened
        ids.add(incident.id)
    assert len(ids) == 1


def test_every_further_incident_has_another_id() -> None:
    story = Story(service(alert=Alert(after=1)))
    ids = []
    for _ in range(10):
        ids += [incident.id for incident in story.refuses().opened]
        assert [closing.id for closing in story.answers().closed] == ids[-1:]
    assert len(set(ids)) == 10
    again = Story(service(alert=Alert(after=1)), NOON + 100_000)
    assert again.refuses().opened[0].id not in ids, "a service that was removed and registered again"


def test_another_target_forgets_failed_looks_and_keeps_an_open_incident() -> None:
    moved = service(target="https://other.example/health")
    story = Story(service())
    story.refuses()
    decision = decide(moved, story.control, refusal(story.due_at), story.due_at)
    assert decision.opened == ()
    story.refuses()
    assert story.control.streak.incident is not None
    decision = decide(moved, story.control, answer(story.due_at), story.due_at)
    assert [closing.why for closing in decision.closed] == ["recovered"]


def test_another_alert_rule_holds_from_the_next_look() -> None:
    story = Story(service(alert=Alert(after=5)))
    story.answers(Status.DOWN)
    story.definition = service(alert=Alert(after=2))
    assert len(story.answers(Status.DOWN).opened) == 1


def test_a_dependency_has_incidents_of_its_own() -> None:
    story = Story(service(alert=Alert(after=2)))
    story.answers(report=report(UP))
    assert story.answers(Status.DEGRADED, report=report(DOWN, status=Status.DEGRADED)).opened == ()
    (incident,) = story.answers(Status.DEGRADED, report=report(DOWN, status=Status.DEGRADED)).opened
    assert (incident.service, incident.dependency) == ("billing", "db")
    assert incident.error == "too many connections"
    decision = story.answers(report=report(UP))
    assert [(closing.id, closing.dependency) for closing in decision.closed] == [(incident.id, "db")]
    assert story.control.dependencies == {}


def test_a_service_and_its_dependency_fail_with_one_incident_each() -> None:
    story = Story(service(alert=Alert(after=1)))
    decision = story.answers(Status.DOWN, report=report(DOWN, dependency("cache", Status.DOWN), status=Status.DOWN))
    assert sorted(str(incident.dependency) for incident in decision.opened) == ["None", "cache", "db"]
    assert len({incident.id for incident in decision.opened}) == 3


def test_a_body_that_is_the_same_counts_again_for_every_dependency() -> None:
    story = Story(service(alert=Alert(after=3)))
    story.answers(report=report(DOWN))
    assert story.answers(is_unchanged=True).opened == ()
    assert len(story.answers(is_unchanged=True).opened) == 1
    assert story.answers(is_unchanged=True).opened == ()


def test_an_outage_of_the_service_neither_opens_nor_closes_incidents_of_dependencies() -> None:
    story = Story(service(alert=Alert(after=2)))
    story.answers(report=report(DOWN))
    for _ in range(5):
        decision = story.refuses()
        assert all(incident.dependency is None for incident in decision.opened)
    decision = story.answers(is_unchanged=True)
    assert [incident.dependency for incident in decision.opened] == ["db"]


def test_time_opens_no_incident_of_a_dependency_while_its_service_is_not_reached() -> None:
    story = Story(service(every="30s", breaker=Breaker(1, "5m"), alert=Alert(lasting="1m")))
    at = story.due_at
    assert story.answers(report=report(DOWN)).next_at <= at + 45
    story.refuses()
    failed_at = story.due_at
    decision = story.sleeps_until(failed_at)
    assert [incident.dependency for incident in decision.opened] == [None]
    assert story.due_at == story.control.due_at
    decision = story.answers(is_unchanged=True)
    assert [incident.dependency for incident in decision.opened] == ["db"]


def test_a_failed_dependency_counts_also_where_its_changes_are_not_handed_in() -> None:
    definition = service(alert=Alert(after=1))
    story = Story(definition)
    story.answers()
    look = answer(story.due_at, report=report(DOWN))
    assert len(decide(definition, story.control, look, story.due_at).opened) == 1


def test_an_outage_does_not_make_the_next_body_a_new_one() -> None:
    story = Story(service())
    story.answers(body="abc")
    assert story.refuses().control.body == "abc"
    assert story.answers(body="def").control.body == "def"


@pytest.mark.parametrize(
    ("second", "closed"),
    [
        (report(dependency("other")), ["not reported any more"]),
        (report(), ["not reported any more"]),
        (report(dependency("other"), lists_failures_only=True), ["recovered"]),
        (report(lists_failures_only=True, format="health-go"), ["recovered"]),
        (report(status=Status.DOWN), []),
        (report(format="plain"), []),
        (report(warnings=("unreadable",)), []),
        (report(dependency("db", Status.UNKNOWN)), []),
        (report(dependency("db", Status.DOWN, skipped=True)), ["recovered"]),
    ],
)
def test_a_dependency_that_is_missing(second: Any, closed: list[str]) -> None:
    story = Story(service(alert=Alert(after=1)))
    assert [one.dependency for one in story.answers(report=report(DOWN)).opened] == ["db"]
    decision = story.answers(report=second)
    assert [closing.why for closing in decision.closed] == closed
    assert bool(story.control.dependencies) == (not closed)


def test_a_service_that_is_removed_closes_its_incidents() -> None:
    story = Story(service(alert=Alert(after=1)))
    story.answers(Status.DOWN, report=report(DOWN, status=Status.DOWN))
    gone = remove(story.definition, story.control, story.due_at)
    assert sorted(str(closing.dependency) for closing in gone.closed) == ["None", "db"]
    assert [event.kind for event in gone.events] == ["incident:close", "incident:close", "service:stopped"]


def test_a_memory_without_a_birth_still_numbers_its_incidents() -> None:
    definition = service(alert=Alert(after=1))
    (incident,) = decide(definition, Control(), refusal(NOON), NOON).opened
    assert incident.id == "billing:0:1"
