"""From a failing service to one alert, and one recovery, in virtual time."""

from everpoll.monitors.alerting import Alert
from everpoll.monitors.report import Status

from .stage import Stage


def test_an_outage_is_one_incident_one_alert_and_one_recovery() -> None:
    stage = Stage()
    inbox = stage.inbox()

    async def scene() -> None:
        await stage.service()
        await stage.process()
        await stage.clock.advance(60)
        assert await stage.open_ones() == ()
        stage.turn(Status.DOWN)
        await stage.clock.advance(30)
        [incident] = await stage.open_ones()
        assert (incident.service, incident.is_open, list(incident.alerted)) == ("billing", True, ["ops"])
        assert inbox.letters == [], "alerts of a minute are one message"
        await stage.clock.advance(60)
        assert inbox.headlines == ["alert billing"]
        await stage.clock.advance(3_600)
        assert inbox.headlines == ["alert billing"]
        stage.turn(Status.UP)
        await stage.clock.advance(120)
        assert inbox.headlines == ["alert billing", "recovered billing"]
        assert await stage.open_ones() == ()
        [past] = await stage.incidents.list(open=False)
        assert (past.id, past.closed_why) == (incident.id, "recovered")
        assert past.closed_at is not None
        assert 3_650 <= past.closed_at - past.since <= 3_700
        await stage.clock.advance(7_200)
        assert len(inbox.letters) == 2

    stage.play(scene)


def test_a_steady_outage_alerts_after_its_delay_without_a_second_change() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        await stage.service(alert=Alert(after=1, delay="10m", to=["ops"]))
        await stage.process()
        stage.turn(Status.DOWN)
        await stage.clock.advance(10)
        [incident] = await stage.open_ones()
        assert incident.waits == "delay"
        await stage.clock.advance(580)
        assert inbox.letters == []
        await stage.clock.advance(20)
        assert inbox.headlines == ["alert billing"]
        assert inbox.arrived_at[0] - (incident.opened_at - stage.wall() + stage.clock.now()) < 605

    stage.play(scene)
