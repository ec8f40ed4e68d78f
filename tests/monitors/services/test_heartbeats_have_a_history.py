"""A service that calls us has looks, uptime and events, as one that is asked."""

from everpoll.monitors.events import ServiceEvent

from .stage import Stage


def test_beats_and_missed_beats_are_in_the_history_and_in_the_uptime(stage: Stage) -> None:
    answer: list[ServiceEvent] = []

    async def scene() -> None:
        app = stage.app()
        backup = app.service("backup", "beat:", every="60s", timeout="10s")
        app.services.subscribe(answer.append)
        async with app:
            for _ in range(10):
                await backup.beat()
                await stage.clock.advance(60)
            await stage.clock.advance(610)
            assert (await backup.info()).status == "down"
            history = await backup.history()
            assert [one.status for one in history].count("up") == 10
            assert [one.status for one in history].count("down") == 10
            assert "no heartbeat for" in str(history[0].error)
            await stage.clock.advance(120)
            uptime = await backup.uptime("1h")
            # Ten minutes of beats, then the time within which one may be late, then twelve minutes without.
            assert uptime.percent is not None
            assert 44 < uptime.percent < 47
        assert [one.kind for one in answer][:2] == ["status:change", "status:change"]

    stage.play(scene)


def test_a_beat_that_says_down_is_in_the_history(stage: Stage) -> None:
    async def scene() -> None:
        app = stage.app()
        backup = app.service("backup", "beat:", every="60s")
        async with app:
            await backup.beat("degraded")
            await stage.clock.advance(1)
            await backup.beat("down")
            await stage.clock.advance(1)
            assert [one.status for one in await backup.history()] == ["down", "degraded"]

    stage.play(scene)
