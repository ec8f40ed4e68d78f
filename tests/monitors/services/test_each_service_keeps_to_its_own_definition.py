"""What services have in common never lets one be judged by the definition of another, or of yesterday."""

import asyncio
from typing import Any

from everpoll.http import Answer, Kind, NotReached, Request
from everpoll.monitors.checks.fetching import Fetching
from everpoll.monitors.checks.looking import Looking, reader_of
from everpoll.monitors.control import Control
from everpoll.monitors.events import AnyEvent
from everpoll.monitors.look import Look
from everpoll.monitors.options import define

from .stage import REFUSED, URL, Said, Stage


class Slow:
    """A remote that takes its time, as a client with a timeout sees it."""

    def __init__(self, stage: Stage, takes_s: float) -> None:
        self._send, self._takes_s = stage.client.send, takes_s
        stage.client.send = self.send  # type: ignore[method-assign]

    async def send(self, request: Request) -> Answer:
        await asyncio.sleep(min(self._takes_s, request.timeout_s))
        if request.timeout_s < self._takes_s:
            raise NotReached(f"no answer within {request.timeout_s}s", Kind.TIMED_OUT)
        return await self._send(request)


def test_a_service_with_time_is_not_down_because_one_with_its_url_has_none(stage: Stage) -> None:
    """They are looked at together, and each has its own timeout."""
    Slow(stage, 3.0)

    async def scene() -> None:
        app = stage.app()
        app.service("hasty", URL, every="30s", timeout="1s")
        app.service("patient", URL, every="30s", timeout="10s")
        async with app:
            await stage.clock.advance(120)
            assert (await app.services["hasty"].info()).status == "down"
            assert (await app.services["patient"].info()).status == "up"
            assert {one.status for one in await app.services["patient"].history()} == {"up"}

    stage.play(scene)


def test_a_mapping_that_comes_back_is_read_again_by_a_worker_that_knew_it_before(stage: Stage) -> None:
    """The body never changes. Two processes look; one of them sees nothing of the mapping in between."""
    stage.client.scripts[URL] = Said({"a": {"one": {"ok": True}}, "b": {"two": {"ok": True}}})

    def mapping(root: str) -> dict[str, Any]:
        return {"root": root, "fields": {"name": "$key", "healthy": "ok"}}

    async def scene() -> None:
        looking = Looking(stage.client, Fetching(5))
        readers = {root: reader_of(define("billing", URL, {"mapping": mapping(root)})) for root in "ab"}

        async def look(root: str, body: str | None) -> Look:
            return await looking.look(readers[root], Control(body=body), stage.clock.wall)

        one = await look("a", None)
        assert (await look("a", one.body)).is_unchanged
        other = await look("b", one.body)
        assert not other.is_unchanged
        assert not (await look("a", other.body)).is_unchanged

    stage.play(scene)


def test_one_witness_is_asked_once_for_many_services_at_a_time(stage: Stage) -> None:
    witness = "http://witness/"
    stage.client.takes_s = 1.0

    async def scene() -> None:
        app = stage.app()
        for number in range(50):
            stage.client.scripts[f"http://h{number}/"] = REFUSED
            app.service(f"s{number}", f"http://h{number}/", every="5s", witness=witness)
        async with app:
            await stage.clock.advance(7)
            infos = [await one.info() for one in app.services]
            assert {one.status for one in infos} == {"down"}
            assert len(stage.client.times(witness)) <= 8

    stage.play(scene)


def test_the_last_events_of_a_service_are_seen_however_it_ends(stage: Stage) -> None:
    """It ends between the look for further events and the look whether it has ended."""
    seen: list[AnyEvent] = []

    async def scene() -> None:
        async with stage.service() as service:
            ended = stage.store.ended

            async def late(ids: Any) -> Any:
                stage.store.ended = ended  # type: ignore[method-assign]
                await service.remove()
                await asyncio.sleep(2)
                return await ended(ids)

            stage.store.ended = late  # type: ignore[method-assign, assignment]
            seen.extend([event async for event in service.events()])
        assert seen[-1].kind == "service:stopped"

    stage.play(scene)
