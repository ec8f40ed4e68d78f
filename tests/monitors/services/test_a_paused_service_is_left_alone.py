"""A paused service is not looked at by any worker until it is resumed, and its pause counts for nothing."""

import pytest

from everpoll.errors import WrongState
from everpoll.monitors.events import StatusChange

from .stage import REFUSED, URL, Said, Script, Stage

HOUR_S = 3_600.0
OTHER = "http://other/"


def test_no_worker_looks_at_it_until_it_is_resumed_and_then_at_once(stage: Stage) -> None:
    async def scene() -> None:
        async with stage.service() as service, stage.app():
            await service.pause("the data center moves", by="ann")
            await stage.clock.advance(2)
            looks = len(stage.client.times())
            await stage.clock.advance(HOUR_S)
            assert len(stage.client.times()) == looks
            info = await service.info()
            assert (info.status, info.healthy, info.due_at, info.waits) == ("paused", None, None, "paused")
            assert info.paused is not None
            assert (info.paused.reason, info.paused.by) == ("the data center moves", "ann")
            assert info.since == info.paused.at
            assert await service.resume()
            resumed_at = stage.clock.now()
            await stage.clock.advance(2)
            assert stage.client.times()[looks] - resumed_at <= 2
            info = await service.info()
            assert (info.status, info.paused) == ("up", None)
            assert not await service.resume(), "it is not paused any more"
            await stage.clock.advance(60)
            assert len(stage.client.times()) >= looks + 12

    stage.play(scene)


def test_a_pause_outlasts_the_app_and_a_changed_definition(stage: Stage) -> None:
    async def scene() -> None:
        async with stage.service() as service:
            await service.pause()
        looks = len(stage.client.times())
        again = stage.app()
        service = again.service("billing", OTHER, every="5s")
        async with again:
            await stage.clock.advance(HOUR_S)
            assert len(stage.client.times()) == looks
            assert (await service.info()).status == "paused"
            await service.resume()
            await stage.clock.advance(2)
            assert stage.client.times(OTHER)

    stage.play(scene)


def test_a_look_that_is_under_way_is_the_last_one(stage: Stage) -> None:
    async def scene() -> None:
        async with stage.service() as service:
            stage.client.takes_s = 3.0
            while not stage.client.under_way:
                await stage.clock.advance(0.5)
            await service.pause()
            looks = len(stage.client.times())
            await stage.clock.advance(60)
            assert len(stage.client.times()) == looks
            assert (await service.info()).status == "paused"

    stage.play(scene)


@pytest.mark.parametrize("script", [Said(), REFUSED])
def test_its_pause_is_neither_uptime_nor_downtime(stage: Stage, script: Script) -> None:
    stage.client.scripts[URL] = script

    async def scene() -> None:
        async with stage.service(every="10m", backoff=None, breaker=None) as service:
            await stage.clock.advance(HOUR_S)
            await service.pause("night")
            await stage.clock.advance(2)
            before = await service.uptime("10h")
            await stage.clock.advance(HOUR_S)
            after = await service.uptime("10h")
            assert after == before
            assert after.percent == (100.0 if isinstance(script, Said) else 0.0)
            # One hour of ten was looked at. The last look ends where the pause begins, not when the next one was due.
            assert 0.1 <= after.covered < 0.105
            mark = (await service.history())[0]
            assert (mark.status, mark.error) == ("unknown", "paused: night")

    stage.play(scene)


def test_it_cannot_be_checked_and_the_error_says_who_paused_it(stage: Stage) -> None:
    async def scene() -> None:
        async with stage.service() as service:
            await service.pause("it moves", by="ann")
            with pytest.raises(WrongState, match="'billing': is paused by ann: it moves; resume it to look at it"):
                await service.check()

    stage.play(scene)


def test_its_incidents_close_with_the_pause_as_the_reason_and_open_anew_after_it(stage: Stage) -> None:
    stage.client.scripts[URL] = REFUSED

    async def scene() -> None:
        async with stage.service() as service:
            await stage.clock.advance(60)
            first = (await service.info()).incident
            assert first is not None
            await service.pause("it moves", by="ann")
            await stage.clock.advance(5)
            assert (await service.info()).incident is None
            incidents = (await stage.app().services.find("billing"))._services.incidents
            [over] = await incidents.list(open=False)
            assert (over.id, over.closed_why) == (first, "paused by ann: it moves")
            await stage.clock.advance(HOUR_S)
            await service.resume()
            await stage.clock.advance(60)
            second = (await service.info()).incident
            assert second not in (None, first)

    stage.play(scene)


def test_a_dependency_that_still_fails_is_counted_anew_after_the_pause(stage: Stage) -> None:
    stage.client.scripts[URL] = Said(
        {"status": "UP", "components": {"db": {"status": "DOWN"}, "cache": {"status": "UP"}}}
    )

    async def scene() -> None:
        async with stage.service() as service:
            await stage.clock.advance(60)
            await service.pause()
            await stage.clock.advance(60)
            await service.resume()
            await stage.clock.advance(60)
            opened = [one for one in await stage.events() if one.kind == "incident:open"]
            assert [getattr(one, "dependency_name", None) for one in opened].count("db") == 2

    stage.play(scene)


def test_its_events_say_when_and_why(stage: Stage) -> None:
    async def scene() -> None:
        async with stage.service() as service:
            seen = len(await stage.events())
            await service.pause("it moves", by="ann")
            await service.pause("it moves on", by="bob")
            await stage.clock.advance(10)
            await service.pause("the reason is another one", by="bob")
            await stage.clock.advance(10)
            await service.resume()
            await stage.clock.advance(10)
            events = (await stage.events())[seen:]
            kinds = ["service:paused", "status:change", "service:resumed", "status:change"]
            assert [one.kind for one in events] == kinds
            changes = [
                (str(one.previous_status), str(one.current_status)) for one in events if isinstance(one, StatusChange)
            ]
            assert changes == [("up", "unknown"), ("unknown", "up")]

    stage.play(scene)


def test_heartbeats_of_a_pause_count_for_nothing_and_none_is_missed(stage: Stage) -> None:
    async def scene() -> None:
        app = stage.app()
        backup = app.service("backup", "beat:", every="60s", timeout="10s")
        async with app:
            await backup.beat()
            await stage.clock.advance(2)
            await backup.pause()
            await stage.clock.advance(HOUR_S)
            await backup.beat("down")
            await stage.clock.advance(2)
            assert (await backup.info()).status == "paused"
            await backup.resume()
            await stage.clock.advance(60)
            assert (await backup.info()).status == "unknown", "a whole interval is left for the first beat"
            await backup.beat()
            await stage.clock.advance(2)
            assert (await backup.info()).status == "up"
            assert [one.status for one in await backup.history()] == ["up", "unknown", "up"]

    stage.play(scene)
