"""Alerts of one minute are one message per channel, in words that say what is down, since when and why."""

import pytest

from everpoll.monitors.alerting import Notice, NoticeKind, message, notice_id, ready_at

from .scenes import NOON


def notice(service: str = "billing", kind: NoticeKind = "alert", at: float = NOON, **more: object) -> Notice:
    return Notice(
        id=notice_id(f"{service}:x:1", "ops", kind, more.get("number", 0)),  # type: ignore[arg-type]
        incident=f"{service}:x:1",
        channel="ops",
        kind=kind,
        at=at,
        service=service,
        **{"since": at - 60, **more},  # type: ignore[arg-type]
    )


def test_a_group_collects_for_a_minute_from_its_first_alert() -> None:
    pending = [notice("a", at=NOON + 5), notice("b", at=NOON), notice("c", at=NOON + 59)]
    assert ready_at(pending) == NOON + 60


def test_a_group_may_end_earlier_once_it_is_quiet() -> None:
    assert ready_at([notice(at=NOON)], quiet_s=10) == NOON + 10
    assert ready_at([notice("a", at=NOON), notice("b", at=NOON + 9)], quiet_s=10) == NOON + 19
    assert ready_at([notice(str(n), at=NOON + 5 * n) for n in range(20)], quiet_s=10) == NOON + 60


def test_one_outage_in_words() -> None:
    sent = message([notice(error="connection refused", affected=("shop",))], NOON + 60)
    assert sent.subject == "billing is down"
    assert sent.lines == ("billing has been down for 2m: connection refused; affects shop",)
    assert sent.channel == "ops"


def test_a_dependency_a_reminder_a_held_back_alert_and_a_recovery() -> None:
    sent = message(
        [
            notice("web", "recovered"),
            notice("billing", "reminder", number=2),
            notice("shop", dependency="PostgreSQL", held_by=("storage",)),
        ],
        NOON + 60,
    )
    assert sent.subject == "PostgreSQL of shop, billing are down; web recovered"
    assert sent.lines == (
        "PostgreSQL of shop has been down for 2m; held back while storage was down",
        "billing has been down for 2m (reminder 2)",
        "web recovered after 1m",
    )


def test_an_outage_that_is_over_before_its_message_is_one_line() -> None:
    alert = notice("web", since=NOON - 60, error="connection refused")
    over = notice("web", "recovered", at=NOON + 30, since=NOON - 60, error="connection refused")
    sent = message([notice("shop"), alert, over], NOON + 60)
    assert sent.subject == "shop is down; web recovered"
    assert sent.lines == (
        "shop has been down for 2m",
        "web was down for 1m30s and recovered: connection refused",
    )
    assert len(sent.notices) == 3


def test_an_incident_that_ends_without_a_recovery_is_not_told_as_one() -> None:
    removed = notice("web", "recovered", at=NOON, since=NOON - 60, reason="the service was removed")
    sent = message([removed, notice("shop", "recovered")], NOON + 60)
    assert sent.subject == "shop recovered; web is not watched any more"
    assert sent.lines == (
        "shop recovered after 1m",
        "web was down for 1m, until its incident was closed: the service was removed",
    )


def test_what_waited_for_long_is_one_line_for_each_incident() -> None:
    reminders = [notice("web", "reminder", at=NOON + 60 * n, since=NOON, number=n) for n in (1, 2, 3)]
    assert message(reminders, NOON + 240).lines == ("web has been down for 4m (reminder 3)",)
    sent = message([notice("web", since=NOON), *reminders], NOON + 240)
    assert sent.lines == ("web has been down for 4m",)
    assert len(sent.notices) == 4
    sent = message([*reminders, notice("web", "recovered", at=NOON + 240, since=NOON)], NOON + 240)
    assert sent.lines == ("web recovered after 4m",)


def test_fifty_outages_are_one_message_that_stays_short() -> None:
    pending = [notice(f"service-{number:02}") for number in range(50)]
    sent = message(pending, NOON + 60)
    assert sent.subject == "service-00, service-01, service-02 and 47 more are down"
    assert len(sent.lines) == 21
    assert sent.lines[-1] == "… and 30 more"
    assert len(sent.notices) == 50


@pytest.mark.parametrize("kind", ["alert", "recovered"])
def test_a_notice_has_one_id_per_incident_channel_and_kind(kind: NoticeKind) -> None:
    assert notice_id("billing:x:1", "ops", kind) == f"billing:x:1/{kind}/ops"
    assert notice_id("billing:x:1", "ops", "reminder", 3) == "billing:x:1/reminder3/ops"
