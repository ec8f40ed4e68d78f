"""The row of the service is the truth: what a worker that lost its lease says about incidents decides nothing."""

from everpoll.monitors.alerting import Alert
from everpoll.monitors.alerts.incident_row import KIND as INCIDENT_KIND
from everpoll.monitors.alerts.incident_rows import IncidentRows
from everpoll.monitors.checks.assignment import KIND as CHECK_KIND
from everpoll.monitors.incident import Incident
from everpoll.monitors.incident_changes import Closing
from everpoll.monitors.report import Status
from everpoll.monitors.streaks import incident_id

from .stage import Stage

ALERT = Alert(after=2, to=["ops"])


async def next_incident(stage: Stage, service: str = "billing", dependency: str | None = None) -> Incident:
    """The incident that the service would open next."""
    row = await stage.store.find(CHECK_KIND, service)
    assert row is not None
    number = row.memory.get("incidents", 0) + 1
    return Incident(
        id=incident_id(service, row.memory["born"], number, dependency),
        service=service,
        dependency=dependency,
        opened_at=stage.wall(),
        since=stage.wall(),
        alert=ALERT,
    )


def test_an_incident_that_only_a_lost_decision_knows_sends_nothing() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        await stage.service()
        await stage.process()
        await stage.clock.advance(30)
        lost = await next_incident(stage)
        await IncidentRows(stage.store).opened([lost])
        await stage.clock.advance(3_600)
        assert inbox.letters == []
        assert await stage.incidents.list(open=None) == ()
        # The real incident of that number is another outage, with times of its own.
        stage.turn(Status.DOWN)
        await stage.clock.advance(30)
        [incident] = await stage.open_ones()
        assert incident.id == lost.id
        assert incident.opened_at > lost.opened_at + 3_600
        assert inbox.headlines == ["alert billing"]
        stage.turn(Status.UP)
        await stage.clock.advance(30)
        assert inbox.headlines == ["alert billing", "recovered billing"]

    stage.play(scene)


def test_a_lost_decision_that_the_service_went_past_ends_without_a_trace() -> None:
    stage = Stage()
    stage.inbox(group="1s")

    async def scene() -> None:
        await stage.service()
        await stage.process()
        await stage.clock.advance(10)
        lost, other = await next_incident(stage), await next_incident(stage, dependency="db")
        await IncidentRows(stage.store).opened([other])
        stage.turn(Status.DOWN)
        await stage.clock.advance(60)
        row = await stage.store.find(INCIDENT_KIND, other.id)
        assert row is not None
        assert row.state == "canceled"
        [incident] = await stage.incidents.list(open=None)
        assert incident.id == lost.id

    stage.play(scene)


def test_a_close_that_was_lost_closes_nothing() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        await stage.service()
        await stage.process()
        stage.turn(Status.DOWN)
        await stage.clock.advance(30)
        [incident] = await stage.open_ones()
        await IncidentRows(stage.store).closed([Closing(incident.id, None, stage.wall(), "recovered")])
        await stage.clock.advance(600)
        assert inbox.headlines == ["alert billing"]
        assert [one.id for one in await stage.open_ones()] == [incident.id]
        stage.turn(Status.UP)
        await stage.clock.advance(60)
        assert inbox.headlines == ["alert billing", "recovered billing"]
        [past] = await stage.incidents.list(open=False)
        assert past.closed_at is not None
        assert past.closed_at > incident.opened_at + 600

    stage.play(scene)


def test_an_incident_that_is_opened_again_after_its_end_stays_ended() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        await stage.service()
        await stage.process()
        await stage.clock.advance(10)
        zombie = await next_incident(stage)
        stage.turn(Status.DOWN)
        await stage.clock.advance(30)
        stage.turn(Status.UP)
        await stage.clock.advance(30)
        past = await stage.incidents.list(open=None)
        await IncidentRows(stage.store).opened([zombie])
        await stage.clock.advance(600)
        assert await stage.incidents.list(open=None) == past
        assert inbox.headlines == ["alert billing", "recovered billing"]

    stage.play(scene)


def test_a_row_that_is_settled_long_after_its_incident_was_told_is_waited_for() -> None:
    """A process that stands still between the two writes, for less than its lease."""
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        await stage.service()
        slow = await stage.process()
        stage.turn(Status.DOWN)
        await stage.clock.advance(60)
        assert inbox.headlines == ["alert billing"]
        # It stops once the incident is told that it is over, and before the service's row says so.
        slow.store.freezes_after = "revise"
        stage.turn(Status.UP)
        await slow.store.died.wait()
        await stage.process()
        await stage.clock.advance(15)
        assert inbox.headlines == ["alert billing"]
        slow.store.thaw()
        await stage.clock.advance(15)
        assert inbox.headlines == ["alert billing", "recovered billing"]

    stage.play(scene)


def test_a_removed_service_closes_its_incident_and_a_new_one_begins_anew() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        await stage.service()
        await stage.process()
        stage.turn(Status.DOWN)
        await stage.clock.advance(30)
        [first] = await stage.open_ones()
        await stage.remove("billing")
        await stage.clock.advance(10)
        assert await stage.open_ones() == ()
        [past] = await stage.incidents.list(open=False)
        assert past.closed_why == "the service was removed"
        assert inbox.headlines == ["alert billing", "recovered billing"]
        assert inbox.letters[-1].notices[0].reason == "the service was removed", "it did not recover"
        await stage.service()
        await stage.clock.advance(30)
        [second] = await stage.open_ones()
        assert second.id != first.id
        # What was said about the first one does not touch the second.
        await IncidentRows(stage.store).closed([Closing(first.id, None, stage.wall(), "recovered")])
        await stage.clock.advance(30)
        assert [one.id for one in await stage.open_ones()] == [second.id]

    stage.play(scene)
