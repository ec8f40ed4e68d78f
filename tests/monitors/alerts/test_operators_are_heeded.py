"""Acknowledge, mute, maintenance, reminders, and changes of a rule, on a running fleet."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from everpoll.errors import BadInput, IncidentNotFound
from everpoll.monitors.alerting import Alert
from everpoll.monitors.alerts.incident_row import KIND as INCIDENT_KIND
from everpoll.monitors.incident import MAX_BY_CHARS
from everpoll.monitors.maintenance import once, weekly
from everpoll.monitors.report import Status

from .stage import Stage

HOURLY = Alert(after=2, reminder="1h", to=["ops"])


def reminders(stage: Stage) -> list[int]:
    return [one.number for letter in stage.inboxes["ops"].letters for one in letter.notices if one.kind == "reminder"]


def at(stage: Stage, minutes: float) -> datetime:
    return datetime.fromtimestamp(stage.wall(), UTC) + timedelta(minutes=minutes)


def test_reminders_come_until_an_operator_takes_notice() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        await stage.service(every="30s", alert=HOURLY)
        await stage.process()
        stage.turn(Status.DOWN)
        await stage.clock.advance(3 * 3_600 + 120)
        assert reminders(stage) == [1, 2, 3]
        assert "(reminder 3): connection refused" in inbox.messages[-1].lines[0]
        [incident] = await stage.open_ones()
        shown = await stage.incidents.acknowledge(incident.id, "ada")
        assert (shown.acknowledged_by, shown.is_open) == ("ada", True)
        await stage.clock.advance(5 * 3_600)
        assert reminders(stage) == [1, 2, 3]
        again = await stage.incidents.acknowledge(incident.id, "bob")
        assert again.acknowledged_by == "ada", "the first one stays"
        stage.turn(Status.UP)
        await stage.clock.advance(120)
        assert inbox.headlines[-1] == "recovered billing"
        past = await stage.incidents.acknowledge(incident.id, "eve")
        assert (past.acknowledged_by, past.is_open) == ("ada", False)
        row = await stage.store.find(INCIDENT_KIND, incident.id)
        assert row is not None
        events = await stage.store.task_events(row.id)
        assert [(one.body["kind"], one.body["by"]) for one in events] == [("incident:acknowledge", "ada")]

    stage.play(scene)


def test_an_incident_that_is_acknowledged_within_its_delay_never_alerts() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        await stage.service(alert=Alert(after=1, delay="5m", to=["ops"]))
        await stage.process()
        stage.turn(Status.DOWN)
        await stage.clock.advance(20)
        [incident] = await stage.open_ones()
        await stage.incidents.acknowledge(incident.id, "ada")
        await stage.clock.advance(900)
        stage.turn(Status.UP)
        await stage.clock.advance(60)
        assert inbox.letters == []

    stage.play(scene)


def test_what_is_not_there_and_bad_names_are_refused() -> None:
    stage = Stage()
    stage.inbox(group="1s")

    async def scene() -> None:
        for call in (stage.incidents.get("nope"), stage.incidents.acknowledge("nope", "ada")):
            with pytest.raises(IncidentNotFound, match="no incident has the id 'nope'"):
                await call
        await stage.service()
        await stage.process()
        stage.turn(Status.DOWN)
        await stage.clock.advance(30)
        [incident] = await stage.open_ones()
        for by in ("", "x" * (MAX_BY_CHARS + 1), 5):
            with pytest.raises(BadInput, match="must be a name"):
                await stage.incidents.acknowledge(incident.id, by)  # type: ignore[arg-type]

    stage.play(scene)


def test_a_mute_holds_alerts_back_until_it_ends_or_is_lifted() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        await stage.service()
        await stage.service("shop")
        await stage.process()
        for name in ("billing", "shop"):
            await stage.change(name, muted_until=stage.wall() + 7_200)
        stage.turn(Status.DOWN, "billing", "shop")
        await stage.clock.advance(600)
        assert inbox.letters == []
        assert {one.waits for one in await stage.open_ones()} == {"mute"}
        await stage.change("billing", muted_until=None)
        await stage.clock.advance(60)
        assert inbox.headlines == ["alert billing"]
        await stage.clock.advance(7_200)
        assert inbox.headlines == ["alert billing", "alert shop"]

    stage.play(scene)


def test_an_outage_within_a_mute_is_recorded_and_sends_nothing() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        await stage.service()
        await stage.process()
        await stage.change("billing", muted_until=stage.wall() + 7_200)
        stage.turn(Status.DOWN)
        await stage.clock.advance(60)
        stage.turn(Status.UP)
        await stage.clock.advance(8_000)
        assert inbox.letters == []
        assert len(await stage.incidents.list(open=False)) == 1

    stage.play(scene)


def test_maintenance_is_planned_listed_heeded_and_removed() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        await stage.service()
        await stage.service("shop")
        await stage.process()
        window = once(at(stage, 0), at(stage, 60), ["billing"], "new disks")
        planned = await stage.maintenance.add(window)
        await stage.maintenance.add(weekly("sun", "02:00", "2h"), id="weekly")
        assert {one.id: one.window.reason for one in await stage.maintenance.list()} == {
            planned: "new disks",
            "weekly": "",
        }
        stage.turn(Status.DOWN, "billing", "shop")
        await stage.clock.advance(1_200)
        assert inbox.headlines == ["alert shop"]
        [held] = await stage.incidents.list(service="billing")
        assert held.waits == "maintenance"
        assert await stage.maintenance.remove(planned)
        assert not await stage.maintenance.remove(planned)
        await stage.clock.advance(60)
        assert inbox.headlines == ["alert shop", "alert billing"]

    stage.play(scene)


def test_a_window_that_cannot_be_read_keeps_no_alert_back(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        from everpoll.stores.health import MaintenanceWindow  # noqa: PLC0415

        await stage.store.health.set_window(MaintenanceWindow("odd", {"days": "all"}))
        await stage.service()
        await stage.process()
        stage.turn(Status.DOWN)
        await stage.clock.advance(60)
        assert inbox.headlines == ["alert billing"]

    stage.play(scene)
    assert any("maintenance window 'odd' cannot be read" in one.message for one in caplog.records)


@pytest.mark.parametrize("window", ["sunday", None, {"days": [0]}])
def test_only_windows_are_planned(window: Any) -> None:
    stage = Stage()

    async def scene() -> None:
        with pytest.raises(BadInput, match=r"is not a window; write once\(…\) or weekly"):
            await stage.maintenance.add(window)
        for window_id in ("", "x" * 101, "a\nb"):
            with pytest.raises(BadInput, match="printable characters"):
                await stage.maintenance.remove(window_id)

    stage.play(scene)


def test_a_rule_that_changes_holds_for_what_is_still_to_be_sent() -> None:
    stage = Stage()
    inbox, other = stage.inbox("ops", group="1s"), stage.inbox("mail", group="1s")

    async def scene() -> None:
        definition = await stage.service(alert=Alert(after=1, delay="1h", to=["ops"]))
        await stage.process()
        stage.turn(Status.DOWN)
        await stage.clock.advance(60)
        changed = msgspec.structs.replace(definition, alert=Alert(after=1, delay="10m", to=["mail"]))
        await stage.change("billing", definition=msgspec.to_builtins(changed))
        await stage.clock.advance(3_600)
        assert (inbox.headlines, other.headlines) == ([], ["alert billing"])

    stage.play(scene)


def test_without_channels_incidents_are_recorded_and_nothing_is_sent() -> None:
    stage = Stage()

    async def scene() -> None:
        await stage.service(alert=Alert(after=2))
        await stage.process()
        stage.turn(Status.DOWN)
        await stage.clock.advance(60)
        [incident] = await stage.open_ones()
        assert (incident.alerted, incident.waits) == ({}, "close")
        stage.turn(Status.UP)
        await stage.clock.advance(60)
        assert len(await stage.incidents.list(open=False)) == 1
        assert len(await stage.incidents.list(open=None, limit=1)) == 1

    stage.play(scene)
