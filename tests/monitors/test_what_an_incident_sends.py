"""An incident alerts once a channel, after its delay, unless it is muted, maintained, acknowledged or held back."""

from datetime import UTC, datetime
from typing import Any

import pytest

from everpoll.errors import BadInput
from everpoll.monitors.alerting import Alert
from everpoll.monitors.incident import Incident, IncidentStep, Situation, acknowledge, close, next_step, read, write
from everpoll.monitors.maintenance import once

from .scenes import NOON


def incident(**alert: Any) -> Incident:
    rule = Alert(**{"to": ["ops"]} | alert)
    return Incident(id="billing:x:1", service="billing", opened_at=NOON, since=NOON - 30, error="refused", alert=rule)


def kinds(step: IncidentStep) -> list[str]:
    return [notice.kind for notice in step.notices]


def test_it_alerts_every_channel_once() -> None:
    step = next_step(incident(to=["ops", "mail"]), NOON)
    assert [(notice.channel, notice.kind) for notice in step.notices] == [("ops", "alert"), ("mail", "alert")]
    for later_s in (0, 1, 3_600, 86_400):
        step = next_step(step.incident, NOON + later_s)
        assert step.notices == ()


def test_a_step_that_is_repeated_gives_the_same_notices() -> None:
    first, second = next_step(incident(), NOON), next_step(incident(), NOON + 40)
    assert [notice.id for notice in first.notices] == [notice.id for notice in second.notices]


def test_a_steady_outage_alerts_after_its_delay_by_time_alone() -> None:
    step = next_step(incident(delay="1m"), NOON)
    assert (step.notices, step.next_at, step.incident.waits) == ((), NOON + 60, "delay")
    step = next_step(step.incident, NOON + 60)
    assert kinds(step) == ["alert"]


def test_an_incident_that_closes_before_its_delay_sends_nothing() -> None:
    step = next_step(incident(delay="1m"), NOON)
    step = next_step(close(step.incident, "recovered", NOON + 30), NOON + 30)
    assert (step.notices, step.next_at) == ((), None)


def test_its_close_is_sent_where_its_alert_was() -> None:
    step = next_step(incident(to=["ops", "mail"]), NOON)
    step = next_step(close(step.incident, "recovered", NOON + 90), NOON + 95)
    assert [(notice.channel, notice.kind, notice.at) for notice in step.notices] == [
        ("ops", "recovered", NOON + 90),
        ("mail", "recovered", NOON + 90),
    ]
    assert step.next_at is None


def test_reminders_come_until_it_is_acknowledged() -> None:
    step = next_step(incident(reminder="1h"), NOON)
    assert step.next_at == NOON + 3_600
    seen = []
    for hour in (1, 2, 3):
        step = next_step(step.incident, NOON + hour * 3_600)
        seen += [(notice.kind, notice.number, notice.id) for notice in step.notices]
    assert [(kind, number) for kind, number, _ in seen] == [("reminder", 1), ("reminder", 2), ("reminder", 3)]
    assert len({identity for *_, identity in seen}) == 3
    known = acknowledge(step.incident, "ada", NOON + 11_000)
    step = next_step(known, NOON + 4 * 3_600)
    assert (step.notices, step.incident.waits) == ((), "close")
    assert kinds(next_step(close(known, "recovered", NOON + 20_000), NOON + 20_000)) == ["recovered"]


def test_an_incident_that_is_acknowledged_before_its_alert_does_not_alert() -> None:
    known = acknowledge(incident(delay="1m"), "ada", NOON + 10)
    assert next_step(known, NOON + 60).notices == ()
    assert (known.acknowledged_by, known.acknowledged_at) == ("ada", NOON + 10)
    assert acknowledge(known, "bob", NOON + 20) == known, "the first one stays"


@pytest.mark.parametrize("by", ["", 7, "x" * 201])
def test_an_acknowledgement_has_a_name(by: Any) -> None:
    with pytest.raises(BadInput, match="must be a name"):
        acknowledge(incident(), by, NOON)


def test_a_mute_delays_the_alert_to_its_end() -> None:
    muted = Situation(muted_until=NOON + 7_200)
    step = next_step(incident(), NOON, muted)
    assert (step.notices, step.next_at, step.incident.waits) == ((), NOON + 7_200, "mute")
    assert kinds(next_step(step.incident, NOON + 7_200, muted)) == ["alert"]


def test_a_mute_holds_reminders_back_and_not_the_recovery() -> None:
    step = next_step(incident(reminder="1h"), NOON)
    muted = Situation(muted_until=NOON + 7_200)
    step = next_step(step.incident, NOON + 3_600, muted)
    assert (step.notices, step.next_at) == ((), NOON + 7_200)
    closed = close(step.incident, "recovered", NOON + 4_000)
    assert kinds(next_step(closed, NOON + 4_000, muted)) == ["recovered"]


def test_maintenance_delays_the_alert_to_its_end() -> None:
    start, end = datetime.fromtimestamp(NOON - 60, UTC), datetime.fromtimestamp(NOON + 600, UTC)
    maintained = Situation(windows=(once(start, end, ["billing"]),))
    step = next_step(incident(), NOON, maintained)
    assert (step.notices, step.next_at, step.incident.waits) == ((), NOON + 600, "maintenance")
    assert kinds(next_step(step.incident, NOON + 600, maintained)) == ["alert"]
    other = Situation(windows=(once(start, end, ["shop"]),))
    assert kinds(next_step(incident(), NOON, other)) == ["alert"]


def test_a_failed_root_holds_the_alert_back_and_is_named() -> None:
    step = next_step(incident(), NOON, Situation(roots=("PostgreSQL",)))
    assert (step.notices, step.incident.held_by, step.incident.waits) == ((), ("PostgreSQL",), "root")
    assert step.next_at is not None
    assert NOON < step.next_at <= NOON + 60
    assert next_step(close(step.incident, "recovered", NOON + 60), NOON + 60).notices == ()


def test_a_child_that_stays_down_after_its_root_recovered_alerts_and_names_the_root() -> None:
    step = next_step(incident(), NOON, Situation(roots=("PostgreSQL",)))
    step = next_step(step.incident, NOON + 300, Situation())
    (notice,) = step.notices
    assert (notice.kind, notice.held_by) == ("alert", ("PostgreSQL",))


def test_a_root_that_fails_later_holds_nothing_back() -> None:
    step = next_step(incident(reminder="1h"), NOON)
    step = next_step(step.incident, NOON + 3_600, Situation(roots=("PostgreSQL",)))
    assert kinds(step) == ["reminder"]


def test_a_root_that_fails_during_the_delay_holds_the_alert_back() -> None:
    step = next_step(incident(delay="1m"), NOON)
    step = next_step(step.incident, NOON + 60, Situation(roots=("PostgreSQL",)))
    assert step.notices == ()


def test_the_alert_of_a_root_names_what_it_explains() -> None:
    (notice,) = next_step(incident(), NOON, Situation(affected=("shop", "web"))).notices
    assert notice.affected == ("shop", "web")


def test_without_a_channel_nothing_is_sent() -> None:
    step = next_step(incident(to=[]), NOON)
    assert (step.notices, step.incident.waits) == ((), "close")
    assert next_step(close(step.incident, "recovered", NOON), NOON).notices == ()


def test_an_incident_survives_json() -> None:
    step = next_step(incident(reminder="1h", to=["ops", "mail"]), NOON)
    known = acknowledge(step.incident, "ada", NOON + 1)
    assert read(write(known)) == known
    assert read(write(incident())) == incident()


def test_the_next_step_is_always_ahead() -> None:
    for situation in (Situation(), Situation(muted_until=NOON - 5), Situation(roots=("x",))):
        step = next_step(incident(delay="1m", reminder="1m"), NOON + 61, situation)
        assert step.next_at is not None
        assert step.next_at > NOON + 61
