"""`everpoll why SERVICE`: since when, because of what, what the next look waits for, what is sent and what is not."""

from datetime import UTC, datetime
from typing import Any

import pytest

from everpoll.monitors import Status
from everpoll.monitors.alerting import Alert
from everpoll.monitors.decision import register
from everpoll.monitors.incident import Situation, acknowledge, next_step
from everpoll.monitors.maintenance import once
from everpoll.monitors.why import ServiceSituation, why

from .scenes import NOON, Story, refusal, service


def reported(story: Story, later_s: float = 0.0, **around: object) -> str:
    """Everything that is said, that long after the last look."""
    looked_at = story.control.looked_at
    now = (NOON if looked_at is None else looked_at) + later_s
    answer = why(story.definition, story.control, now, ServiceSituation(**around))  # type: ignore[arg-type]
    return "\n".join([answer.verdict, *answer.evidence, answer.advice or ""])


def outage(looks: int, **options: Any) -> Story:
    story = Story(service(**options))
    for _ in range(looks):
        story.refuses()
    return story


def test_a_new_service() -> None:
    text = reported(Story(service()))
    assert "billing has not been looked at yet." in text
    assert "it is the first one" in text


def test_a_healthy_service() -> None:
    story = Story(service(target="https://user:s3cr3t@a.example/health?token=s3cr3t"))
    for _ in range(3):
        story.answers(latency_ms=12.5)
    text = reported(story, 5)
    assert "billing has been up for " in text
    assert "the last look at https://a.example/health?… was 5s ago, HTTP 200, 12.5ms" in text
    assert "the next look is in 25s: it is looked at every 30s" in text
    assert "s3cr3t" not in text


def test_down_since_when_and_why() -> None:
    assert "billing has been down for 32s: connection refused." in reported(outage(2), 2)


def test_the_next_look_waits_for_the_backoff() -> None:
    text = reported(outage(7), 4)
    assert "the next look is in 1m: the backoff after 7 failures in a row" in text
    assert "7 looks in a row got no answer" in text


def test_the_next_look_waits_for_the_breaker() -> None:
    text = reported(outage(10), 60)
    assert "the next look is in 4m: the breaker is open after 10 failures in a row, and lets one probe through" in text
    assert "to look now, as the probe: everpoll services check billing" in text


def test_the_next_look_is_the_probe() -> None:
    assert "it is the probe of the breaker" in reported(outage(10), 301)


def test_the_next_look_waits_for_a_retry_after() -> None:
    story = Story(service())
    story.answers(Status.DOWN, error="HTTP 503", retry_after_s=120)
    text = reported(story, 20)
    assert "the next look is in 1m40s: the service asked for this with Retry-After" in text
    assert "HTTP 503" in text


def test_the_next_look_waits_for_its_host() -> None:
    text = reported(outage(1), 31, waits_for_host=12)
    assert "waits for its host: at most 5 looks at one host run at a time, and 12 wait" in text


def test_another_target_is_due_now() -> None:
    story = outage(10)
    story.definition = service(target="https://other.example/health")
    assert "due now: the target has changed" in reported(story, 5)


def test_a_stale_service_without_a_worker() -> None:
    story = Story(service())
    story.answers()
    text = reported(story, 3_600, is_worker_alive=False)
    assert "billing was up, and is stale: no look was conclusive for 1h." in text
    assert "no worker is running: start one with everpoll run" in text


def test_an_overdue_look_with_workers_alive() -> None:
    story = Story(service())
    story.answers()
    assert "its look is overdue by" in reported(story, 120)


def test_an_incident_and_what_was_sent() -> None:
    story = outage(2, alert=Alert(to=["ops"], delay="1m"))
    (incident,) = story.decision.opened
    text = reported(story, 10, incidents=(incident,))
    assert f"incident {incident.id}, open for 10s: alerts in 50s" in text
    sent = next_step(incident, incident.opened_at + 60).incident
    assert "sent to ops 15s ago" in reported(story, 75, incidents=(sent,))
    known = acknowledge(sent, "ada", incident.opened_at + 70)
    assert "acknowledged by ada 5s ago" in reported(story, 75, incidents=(known,))


def test_an_incident_that_is_held_back_muted_or_has_no_channel() -> None:
    story = outage(2, alert=Alert(to=["ops"]))
    (incident,) = story.decision.opened
    at = incident.opened_at
    held = next_step(incident, at, Situation(roots=("PostgreSQL",))).incident
    text = reported(story, 5, incidents=(held,), situation=Situation(roots=("PostgreSQL",)))
    assert "held back, because PostgreSQL below it is down" in text
    assert "failed below it: PostgreSQL" in text
    mute = Situation(muted_until=at + 600)
    muted = next_step(incident, at, mute).incident
    text = reported(story, 0, incidents=(muted,), situation=mute)
    assert "not sent yet, because of the mute" in text
    assert "muted for another 10m" in text
    (quiet,) = outage(2).decision.opened
    assert "nothing is sent, because its service names no channel" in reported(story, 5, incidents=(quiet,))


def test_maintenance_and_warnings() -> None:
    story = outage(2)
    start, end = datetime.fromtimestamp(NOON - 60, UTC), datetime.fromtimestamp(NOON + 7_200, UTC)
    text = reported(story, 5, situation=Situation(windows=(once(start, end),)), warnings=("item 3 has no name",))
    assert "in maintenance for another 1h59m" in text
    assert "warning: item 3 has no name" in text


def test_nothing_is_known_by_our_own_fault() -> None:
    story = Story(service(witness="https://example.com"))
    story.answers()
    story.look(refusal(story.due_at, is_witnessed=False))
    assert "billing has been unknown for 5s: no witness answered either" in reported(story, 5)


@pytest.mark.parametrize("later_s", [0, 30, 69])
def test_a_heartbeat_that_is_awaited(later_s: float) -> None:
    definition = service(target="beat:", every="1m")
    answer = why(definition, register(definition, NOON).control, NOON + later_s)
    assert answer.verdict == "billing is unknown: it waits for its first heartbeat."
    assert "no heartbeat has come yet" in answer.evidence
    assert any("the next heartbeat is expected within" in line for line in answer.evidence)


def test_a_degraded_service_says_what_is_in_trouble() -> None:
    story = Story(service())
    story.answers(Status.DEGRADED)
    troubled = ("db is down (too many connections)", "cache is degraded")
    text = reported(story, troubled=troubled)
    assert text.startswith("billing has been degraded for 0s: db is down (too many connections), cache is degraded.")


@pytest.mark.parametrize(
    ("alert", "rule"),
    [
        (Alert(after=3), "it opens after 3 failed looks in a row, and 1 failed"),
        (Alert(after=3, within=5), "it opens after 3 failed looks of 5, and 1 failed"),
        (Alert(lasting="10m"), "it opens when looks have failed for 10m"),
    ],
)
def test_what_is_missing_for_an_incident(alert: Alert, rule: str) -> None:
    assert f"no incident is open: {rule}" in reported(outage(1, alert=alert))
    assert "no incident is open" not in reported(Story(service()))
    assert "no incident is open" not in reported(outage(2))
