"""Events carry the payloads that subscribers rely on; durable are changes only."""

import pytest

from everpoll.monitors import Status
from everpoll.monitors.alerting import Alert
from everpoll.monitors.decision import Decision, look_events, remove
from everpoll.monitors.dependencies import compare
from everpoll.monitors.events import (
    DURABLE_KINDS,
    IncidentAcknowledge,
    ServiceEvent,
    about,
    payload,
    read,
    write,
)
from everpoll.monitors.look import Look
from everpoll.monitors.pause import ServicePause
from everpoll.monitors.pausing import paused, resumed

from .scenes import Story, answer, dependency, refusal, report, service


def of_kind(decision: Decision, kind: str) -> dict[str, object]:
    (event,) = [event for event in decision.events if event.kind == kind]
    return payload(event)


def test_a_service_that_is_registered_and_removed() -> None:
    story = Story(service())
    begun = of_kind(story.decision, "service:started")
    assert begun == {
        "kind": "service:started",
        "serviceId": "billing",
        "serviceName": "billing",
        "timestamp": begun["timestamp"],
    }
    gone = of_kind(remove(story.definition, story.control, story.due_at), "service:stopped")
    assert (gone["serviceId"], gone["serviceName"], gone["timestamp"]) == ("billing", "billing", story.due_at)


def test_a_dependency_that_turns_unhealthy() -> None:
    story = Story(service())
    story.answers(report=report(dependency()))
    at = story.due_at
    decision = story.answers(report=report(dependency("db", Status.DOWN)))
    assert of_kind(decision, "status:change") == {
        "kind": "status:change",
        "serviceId": "billing",
        "serviceName": "billing",
        "dependencyName": "db",
        "previousHealthy": True,
        "currentHealthy": False,
        "previousStatus": "up",
        "currentStatus": "down",
        "error": "Unhealthy",
        "timestamp": at,
    }


def test_a_service_that_turns_unhealthy_names_no_dependency() -> None:
    story = Story(service())
    story.answers()
    said = of_kind(story.refuses(), "status:change")
    assert said["dependencyName"] is None
    assert (said["previousHealthy"], said["currentHealthy"], said["error"]) == (True, False, "connection refused")


def test_the_breaker_opens_and_closes_with_an_event_each_and_failed_probes_have_none() -> None:
    story = Story(service())
    decisions = [story.refuses() for _ in range(13)]
    opened = of_kind(decisions[9], "circuit:open")
    assert (opened["serviceId"], opened["serviceName"], opened["failures"]) == ("billing", "billing", 10)
    assert opened["until"] == decisions[9].next_at
    closed = of_kind(story.answers(), "circuit:close")
    assert (closed["serviceId"], closed["serviceName"]) == ("billing", "billing")
    assert [kind for kind in story.kinds() if kind.startswith("circuit")] == ["circuit:open", "circuit:close"]


def test_every_look_is_complete_and_one_without_an_answer_is_an_error_too() -> None:
    story = Story(service())
    reported = report(dependency("db", Status.DOWN), warnings=("item 1: no name",))
    look = answer(story.due_at, report=reported, latency_ms=12.5, warnings=reported.warnings)
    changes = compare("billing", {}, reported, look.ended_at, {})
    decision = story.look(look)
    (complete,) = look_events(story.definition, look, decision, changes)
    said = payload(complete)
    assert said["kind"] == "poll:complete"
    assert (said["serviceId"], said["success"], said["dependenciesUpdated"]) == ("billing", True, 1)
    assert (said["latencyMs"], said["warnings"], said["error"]) == (12.5, ("item 1: no name",), None)
    assert [change["currentStatus"] for change in said["statusChanges"]] == ["up"]

    look = refusal(story.due_at)
    complete, error = look_events(story.definition, look, story.look(look))
    assert (payload(complete)["success"], payload(complete)["error"]) == (False, "connection refused")
    assert payload(error) == {
        "kind": "poll:error",
        "serviceId": "billing",
        "serviceName": "billing",
        "error": "connection refused",
        "timestamp": look.ended_at,
    }


def test_durable_are_changes_only() -> None:
    assert {"poll:complete", "poll:error"} & DURABLE_KINDS == set()
    assert {"status:change", "service:started", "service:stopped", "circuit:open", "circuit:close"} < DURABLE_KINDS
    story = Story(service())
    look = answer(story.due_at)
    assert not any(event.is_durable for event in look_events(story.definition, look, story.look(look)))
    assert all(event.is_durable for decision in story.decisions for event in decision.events)


def test_a_service_that_stays_as_it_is_has_no_events() -> None:
    for status in Status:
        story = Story(service(alert=Alert(after=1)))
        story.answers(status, report=report(dependency(), status=status))
        for _ in range(20):
            assert story.answers(status, report=report(dependency(), status=status)).events == ()


def test_events_are_numbered_without_gaps() -> None:
    story = Story(service(alert=Alert(after=1)))
    for number in range(60):
        status = (Status.UP, Status.DOWN)[number // 3 % 2]
        if number % 7 == 0:
            story.refuses()
        else:
            story.answers(status, report=report(dependency("db", status), status=status))
    seq = 0
    for decision in story.decisions:
        seq += len(decision.events)
        assert decision.control.seq == seq
    assert seq > 50


@pytest.mark.parametrize("kind", sorted(str(kind) for kind in DURABLE_KINDS))
def test_every_durable_event_survives_json(kind: str) -> None:
    events: list[ServiceEvent] = []
    story = Story(service(alert=Alert(after=1)))
    for _ in range(11):
        story.refuses()
    for names in ("ab", "a", "ab", ""):
        story.answers(report=report(*(dependency(name) for name in names)))
    ended = paused(story.definition, story.control, ServicePause(story.due_at, "it moves", "ada"), story.due_at)
    events += [*ended.events, *resumed(story.definition, ended.control, 0, story.due_at + 60).events]
    events += remove(story.definition, story.control, story.due_at).events
    events += [event for decision in story.decisions for event in decision.events]
    events.append(IncidentAcknowledge(**about("billing", story.due_at), incident_id="billing:x:1", by="ada"))
    matching = [event for event in events if event.kind == kind]
    assert matching
    assert all(read(write(event)) == event for event in matching)


def test_a_look_that_could_not_be_made_is_no_success() -> None:
    story = Story(service())
    look = Look(started_at=story.due_at, ended_at=story.due_at, reached=None, error="no socket is left")
    complete, error = look_events(story.definition, look, story.look(look))
    assert payload(complete)["success"] is False
    assert payload(error)["error"] == "not asked: no socket is left"
