"""Services with the same URL share a request in flight and nothing else; services on one host take turns."""

import asyncio
import itertools
from collections import Counter

import pytest

from everpoll.http import Answer, Kind, NotReached, Request
from everpoll.monitors.events import PollComplete, ServiceEvent

from .stage import REFUSED, Said, Stage, gaps

URL = "http://billing/health"


def test_two_services_with_one_url_share_each_request_and_keep_their_own_history(stage: Stage) -> None:
    stage.client.takes_s = 0.5
    stage.client.scripts[URL] = Said([{"name": "db", "healthy": True, "health": {"latency": 3}}])

    async def scene() -> None:
        app = stage.app()
        one = app.service("one", URL, every="5s")
        two = app.service("two", URL, every="5s", format="plain")
        async with app:
            await stage.clock.advance(61)
            rounds = len(stage.client.asked)
            assert 12 <= rounds <= 13, "one request a round"
            assert len(await one.history()) == len(await two.history()) >= 12
            assert [dependency.name for dependency in await one.dependencies()] == ["db"]
            assert await two.dependencies() == [], "the request is shared, not what is read in its answer"

    stage.play(scene)


def test_an_answer_is_never_shared_with_a_later_round(stage: Stage) -> None:
    """The second service is asked right after the answer for the first one came: it gets one of its own."""
    stage.client.takes_s = 0.05
    answers = iter([Said({"status": "UP"}), Said({"status": "DOWN"}, 503)])
    stage.client.scripts[URL] = lambda: next(answers)

    async def scene() -> None:
        app = stage.app()
        one, two = app.service("one", URL, every="1h"), app.service("two", URL, every="1h")
        async with app:
            stage.client.scripts[URL] = Said()
            await stage.clock.advance(6)
            assert len(stage.client.asked) == 1
            stage.client.scripts[URL] = lambda: next(answers)
            assert (await one.check()).status == "up"
            assert (await two.check()).status == "down"
            assert len(stage.client.asked) == 3

    stage.play(scene)


def test_services_with_one_url_have_a_breaker_each(stage: Stage) -> None:
    """The second one comes later: its count of failures is its own."""
    stage.client.scripts[URL] = REFUSED

    async def scene() -> None:
        app = stage.app()
        one = app.service("one", URL, every="5s")
        async with app:
            await stage.clock.advance(530)
            two = app.service("two", URL, every="5s")
            await stage.clock.advance(10)
            first, second = await one.info(), await two.info()
            assert (first.breaker, first.failures) == ("open", 10)
            assert (second.breaker, second.failures) == ("closed", 2)
            assert len(await two.history()) == 2

    stage.play(scene)


def test_other_headers_share_nothing(stage: Stage) -> None:
    async def scene() -> None:
        app = stage.app()
        app.service("one", URL, every="5s", headers={"X-Tenant": "a"})
        app.service("two", URL, every="5s", headers={"X-Tenant": "b"})
        async with app:
            await stage.clock.advance(20)
            assert len(stage.client.asked) >= 8

    stage.play(scene)


@pytest.mark.parametrize("every", ["5s", "30s"])
def test_three_hundred_services_on_one_host_have_the_same_number_of_looks(stage: Stage, every: str) -> None:
    """Each look takes 100 ms and five run at a time: 50 looks a second, where intervals of 5 s want 60."""
    stage.client.takes_s = 0.1
    looks: Counter[str] = Counter()

    def count(event: ServiceEvent) -> None:
        if isinstance(event, PollComplete):
            looks[event.service_name] += 1

    async def scene() -> None:
        app = stage.app()
        app.services.subscribe(count)
        for number in range(300):
            app.service(f"s{number}", f"http://one-host/{number}", every=every)
        async with app:
            for minute in range(1, 3):
                await stage.clock.advance(60)
                assert len(looks) == 300, "all are looked at"
                spread = max(looks.values()) - min(looks.values())
                assert spread <= 1, f"after {minute} minutes: {Counter(looks.values())}"
            assert stage.client.most_under_way <= 5
            if every == "5s":
                assert sum(looks.values()) >= 0.95 * 120 * 50, "no slot stays free while looks wait"

    stage.play(scene)


def test_hosts_that_hang_leave_room_for_all_others(stage: Stage) -> None:
    """Their waiting looks would fill every slot of the worker, and none would be left for those that answer."""
    send = stage.client.send

    async def hang(request: Request) -> Answer:
        if "slow" in request.url:
            await asyncio.sleep(10)
            raise NotReached("no answer within 10s", Kind.TIMED_OUT)
        return await send(request)

    stage.client.send = hang  # type: ignore[method-assign]

    async def scene() -> None:
        app = stage.app()
        app.services.configure(slots=100)
        for host, number in itertools.product(range(3), range(60)):
            app.service(f"slow{host}-{number}", f"http://slow{host}/{number}", every="30s")
        for number in range(10):
            app.service(f"well{number}", f"http://well{number}/", every="5s")
        async with app:
            await stage.clock.advance(60)
        for number in range(10):
            times = [0.0, *stage.client.times(f"http://well{number}/"), 60.0]
            assert max(gaps(times)) <= 6.0

    stage.play(scene)
