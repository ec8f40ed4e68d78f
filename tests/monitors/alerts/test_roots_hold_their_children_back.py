"""A failed root alerts for all that fail because of it; many alerts of a minute are one message."""

from everpoll.monitors.alerting import Alert
from everpoll.monitors.report import Dependency, Status
from everpoll.stores.health import NewDependency, NewLook

from .stage import Stage


def test_children_of_a_failed_root_are_named_in_its_message_and_send_none() -> None:
    stage = Stage()
    inbox = stage.inbox()

    async def scene() -> None:
        await stage.service("database", alert=Alert(after=1, delay="30s", to=["ops"]))
        for name in ("billing", "shop"):
            alert = Alert(after=2, delay="30s", to=["ops"])
            await stage.service(name, depends_on=["database"], alert=alert)
        await stage.process()
        await stage.clock.advance(10)
        stage.turn(Status.DOWN, "database", "billing", "shop")
        await stage.clock.advance(240)
        assert inbox.headlines == ["alert database"]
        [message] = inbox.messages
        assert message.subject == "database is down"
        assert message.lines[0].endswith("; affects billing, shop")
        held = {one.service: (one.waits, one.held_by) for one in await stage.open_ones()}
        assert held["billing"] == held["shop"] == ("root", ("database",))
        # All recover together: nothing is said about what was held back.
        stage.turn(Status.UP, "database", "billing", "shop")
        await stage.clock.advance(240)
        assert inbox.headlines == ["alert database", "recovered database"]

    stage.play(scene)


def test_a_child_that_stays_down_alerts_after_its_root_and_names_it() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        await stage.service("database", alert=Alert(after=1, to=["ops"]))
        await stage.service("billing", depends_on=["database"], alert=Alert(after=1, delay="20s", to=["ops"]))
        await stage.process()
        stage.turn(Status.DOWN, "database", "billing")
        await stage.clock.advance(300)
        stage.turn(Status.UP, "database")
        await stage.clock.advance(60)
        assert inbox.headlines == ["alert database", "recovered database", "alert billing"]
        assert inbox.messages[-1].lines[0].endswith("; held back while database was down")

    stage.play(scene)


def test_a_reported_dependency_is_a_root_too() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        await stage.service("billing", alert=Alert(after=2, to=["ops"]))
        await stage.service("shop", depends_on=["billing"], alert=Alert(after=2, delay="30s", to=["ops"]))
        await stage.process()
        # billing answers, and says that its database is down; shop fails because of it.
        stage.world.dependencies["billing"] = (Dependency(name="db", status=Status.DOWN),)
        stage.turn(Status.DEGRADED, "billing")
        stage.turn(Status.DOWN, "shop")
        down = NewDependency(name="db", status="down", changed_at=stage.wall(), seen_at=stage.wall())
        look = NewLook(service="billing", at=stage.wall(), status="degraded", span_s=5.0, dependencies=(down,))
        await stage.store.health.record([look])
        await stage.clock.advance(200)
        assert inbox.headlines == ["alert db of billing"]
        assert inbox.messages[0].subject == "db of billing is down"
        [held] = await stage.incidents.list(service="shop")
        assert held.held_by == ("db",)

    stage.play(scene)


def test_alerts_of_one_minute_are_one_message() -> None:
    stage = Stage()
    inbox = stage.inbox()

    async def scene() -> None:
        names = [f"s{number:02}" for number in range(25)]
        for name in names:
            await stage.service(name, alert=Alert(after=2, to=["ops"]))
        await stage.process()
        await stage.process()
        await stage.clock.advance(30)
        stage.turn(Status.DOWN, *names)
        await stage.clock.advance(120)
        [message] = inbox.messages
        assert len(message.notices) == 25
        assert message.subject == "s00, s01, s02 and 22 more are down" or "and 22 more are down" in message.subject
        assert message.lines[-1] == "… and 5 more"
        stage.turn(Status.UP, *names)
        await stage.clock.advance(120)
        assert len(inbox.messages) == 2
        assert sorted(inbox.headlines) == sorted(
            [f"alert {one}" for one in names] + [f"recovered {one}" for one in names]
        )

    stage.play(scene)


def test_flapping_is_one_alert_and_one_recovery_for_each_incident() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        await stage.service(alert=Alert(after=2, to=["ops"]))
        await stage.process()
        for _ in range(10):
            stage.turn(Status.DOWN)
            await stage.clock.advance(25)
            stage.turn(Status.UP)
            await stage.clock.advance(25)
        past = await stage.incidents.list(open=False)
        assert len({one.id for one in past}) == len(past) == 10
        assert inbox.headlines == ["alert billing", "recovered billing"] * 10

    stage.play(scene)


def test_flapping_below_the_threshold_is_no_incident() -> None:
    stage = Stage()
    inbox = stage.inbox(group="1s")

    async def scene() -> None:
        await stage.service(alert=Alert(after=3, to=["ops"]))
        await stage.process()
        for _ in range(20):
            stage.turn(Status.DOWN)
            await stage.clock.advance(9)
            stage.turn(Status.UP)
            await stage.clock.advance(11)
        assert await stage.incidents.list(open=None) == ()
        assert inbox.letters == []

    stage.play(scene)
