"""Intervals, breaker, backoff and Retry-After as an app keeps them, in virtual time."""

from .stage import REFUSED, URL, Said, Stage, gaps


def test_an_interval_of_five_seconds_is_five_seconds_over_ten_minutes(stage: Stage) -> None:
    """Every look is on its slot: its remote takes 1.3 s, and nothing of it is in the interval."""
    stage.client.takes_s = 1.3

    async def scene() -> None:
        async with stage.service() as service:
            await stage.clock.advance(600)
            times = stage.client.times()
            assert len(times) >= 120
            assert all(abs(gap - 5.0) < 0.001 for gap in gaps(times))
            assert abs((times[-1] - times[0]) - 5.0 * (len(times) - 1)) < 0.001, "no drift"
            history = await service.history()
            assert len(history) in {len(times), len(times) - 1}, "every look is in the history, once"

    stage.play(scene)


def test_the_first_look_is_within_five_seconds_whatever_the_interval(stage: Stage) -> None:
    async def scene() -> None:
        app = stage.app()
        for number in range(50):
            app.service(f"s{number}", f"http://h{number}/", every="1h")
        async with app:
            await stage.clock.advance(5.2)
            assert len(stage.client.asked) == 50
            busiest = max(sum(at <= one < at + 0.5 for one in stage.client.times()) for at in stage.client.times())
            assert busiest < 20, "they are spread"

    stage.play(scene)


def test_ten_failures_open_the_breaker_and_one_probe_follows_each_cooldown(stage: Stage) -> None:
    """Backoff 1, 2, 4 … s counts where it is longer than the interval of 5 s; then five minutes, and one probe."""
    stage.client.scripts[URL] = REFUSED

    async def scene() -> None:
        async with stage.service() as service:
            assert (await service.info()).breaker == "closed"
            await stage.clock.advance(520)
            info = await service.info()
            times = stage.client.times()
            waits = [5, 5, 5, 8, 16, 32, 64, 128, 256]
            assert [round(gap) for gap in gaps(times)] == waits
            assert (info.breaker, info.failures, info.status) == ("open", 10, "down")
            assert info.error == "the connection was refused"
            await stage.clock.advance(290)
            assert len(stage.client.times()) == 10, "no look while it is open"
            await stage.clock.advance(30)
            assert [round(gap) for gap in gaps(stage.client.times())][9:] == [300], "one probe"
            assert (await service.info()).breaker == "open"
            stage.client.scripts[URL] = Said()
            await stage.clock.advance(301)
            info = await service.info()
            assert (info.breaker, info.failures, info.status) == ("closed", 0, "up")
            probes = len(stage.client.times())
            await stage.clock.advance(20)
            assert len(stage.client.times()) == probes + 4, "the interval holds again"
        kinds = [one.kind for one in await stage.events()]
        assert kinds.count("circuit:open") == kinds.count("circuit:close") == 1

    stage.play(scene)


def test_the_breaker_is_half_open_when_its_probe_is_due(stage: Stage) -> None:
    """No process runs then: what is stored says it."""
    stage.client.scripts[URL] = REFUSED

    async def scene() -> None:
        async with stage.service() as service:
            await stage.clock.advance(520)
            assert (await service.info()).breaker == "open"
        await stage.clock.advance(301)
        app = stage.app()
        assert (await (await app.services.find("billing")).info()).breaker == "half_open"
        await app.close()

    stage.play(scene)


def test_two_processes_make_one_probe(stage: Stage) -> None:
    stage.client.scripts[URL] = REFUSED

    async def scene() -> None:
        other = stage.app()
        other.service("billing", URL, every="5s")
        async with stage.service(), other:
            await stage.clock.advance(520)
            assert len(stage.client.times()) == 10
            await stage.clock.advance(600)
            assert len(stage.client.times()) == 12, "one after each cooldown, over the fleet"

    stage.play(scene)


def test_a_check_is_the_probe_of_an_open_breaker(stage: Stage) -> None:
    stage.client.scripts[URL] = REFUSED

    async def scene() -> None:
        async with stage.service() as service:
            await stage.clock.advance(520)
            assert (await service.info()).breaker == "open"
            info = await service.check()
            assert (info.breaker, info.failures, len(stage.client.times())) == ("open", 11, 11)
            await stage.clock.advance(290)
            assert len(stage.client.times()) == 11, "the cooldown starts over with the probe that failed"
            stage.client.scripts[URL] = Said()
            info = await service.check()
            assert (info.breaker, info.status) == ("closed", "up")

    stage.play(scene)


def test_a_retry_after_is_a_floor(stage: Stage) -> None:
    stage.client.scripts[URL] = Said("busy", 503, {"retry-after": "120"})

    async def scene() -> None:
        async with stage.service() as service:
            info = await service.info()
            assert (info.status, info.waits, info.failures, info.breaker) == ("down", "retry_after", 0, "closed")
            stage.client.scripts[URL] = Said(headers={"retry-after": "1"})
            await stage.clock.advance(600)
            waits = gaps(stage.client.times())
            assert 119.9 <= waits[0] <= 125
            assert set(waits[2:]) == {5.0}, "a shorter one than the interval changes nothing"

    stage.play(scene)


def test_answers_that_say_down_feed_neither_breaker_nor_backoff(stage: Stage) -> None:
    stage.client.scripts[URL] = Said({"status": "DOWN"}, 503)

    async def scene() -> None:
        async with stage.service() as service:
            await stage.clock.advance(120)
            info = await service.info()
            assert (info.status, info.breaker, info.failures) == ("down", "closed", 0)
            assert set(gaps(stage.client.times())[1:]) == {5.0}

    stage.play(scene)


def test_breaker_and_due_time_survive_a_restart(stage: Stage) -> None:
    stage.client.scripts[URL] = REFUSED

    async def scene() -> None:
        async with stage.service():
            await stage.clock.advance(520)
        again = stage.app()
        again.service("billing", URL, every="5s")
        async with again:
            await stage.clock.advance(200)
            assert len(stage.client.times()) == 10
            assert (await again.services["billing"].info()).breaker == "open"
            await stage.clock.advance(120)
            assert len(stage.client.times()) == 11

    stage.play(scene)
