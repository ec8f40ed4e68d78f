"""`GET /api/events`: state first, then each event exactly once and in order, however often a client connects again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from everpoll.server import feed_hub
from everpoll.server.feed_hub import FeedHub
from everpoll.stores.contract import NewEvent, NewTask, Store, encode
from everpoll.stores.feed_positions import place_in_feed
from server.site import SentEvent, Site, events_of, example_app, site
from warm_processes import WarmProcess

WRITER = Path(__file__).with_name("event_writer.py")
LIMIT_S = 120.0


@contextlib.asynccontextmanager
async def stream(
    here: Site, last: str | None = None, path: str = "/api/events"
) -> AsyncIterator[AsyncIterator[SentEvent]]:
    headers = {} if last is None else {"Last-Event-ID": last}
    async with here.http.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-accel-buffering"] == "no"
        yield events_of(answer)


@contextlib.contextmanager
def writers(url: str, events: int) -> Iterator[None]:
    """Two processes that begin runs, each of which is an event or more."""
    made = [WarmProcess([str(WRITER), url, name, str(events)]) for name in ("a", "b")]
    try:
        yield
        for one in made:
            assert one.wait(LIMIT_S) == 0
    finally:
        for one in made:
            one.kill()
            one.wait()


async def _log(store: Store) -> list[str]:
    found: list[str] = []
    after = "0"
    while page := (await store.events(after, 1000)).events:
        found += [event.position for event in page]
        after = page[-1].position
    return found


async def _storm(url: str, reconnects: int, events: int) -> None:
    async with site(example_app(url), works=False) as here:
        store = await here.app.store()
        last = (await store.events(None, 1)).after
        seen: list[str] = []
        connections = 0
        with writers(url, events):
            async with asyncio.timeout(LIMIT_S):
                while len(seen) < 2 * events or connections < reconnects:
                    connections += 1
                    async with stream(here, last) as reported:
                        first = await anext(reported)
                        assert (first.event, first.id) == ("state", last)
                        # A client that has seen everything would wait for events that do not come any more.
                        for _ in range(min(1 + connections % 7, 2 * events - len(seen))):
                            one = await anext(reported)
                            assert one.event == "message"
                            assert one.id is not None
                            seen.append(one.id)
                            last = one.id
        assert connections >= reconnects
        assert seen == (await _log(store))[: len(seen)]
        assert len(seen) == 2 * events


async def test_a_client_that_connects_again_and_again_while_two_processes_write(url: str) -> None:
    await _storm(url, reconnects=40, events=100)


@pytest.mark.prove
async def test_a_client_that_connects_again_a_thousand_times_while_two_processes_write(url: str) -> None:
    await _storm(url, reconnects=1_000, events=2_000)


async def test_many_clients_see_the_same_as_one(url: str) -> None:
    async with site(example_app(url), works=False) as here:
        async with asyncio.timeout(LIMIT_S):

            async def follow(ready: asyncio.Event) -> list[str | None]:
                async with stream(here) as reported:
                    await anext(reported)
                    ready.set()
                    return [(await anext(reported)).id for _ in range(50)]

            ready = [asyncio.Event() for _ in range(10)]
            following = [asyncio.create_task(follow(one)) for one in ready]
            await asyncio.gather(*(one.wait() for one in ready))
            for number in range(50):
                await here.app.watches["export"].begin({"never": True}, id=str(number))
            seen = await asyncio.gather(*following)
        log = await _log(await here.app.store())
        assert all(one == log for one in seen)


async def test_a_place_that_is_not_in_this_log_is_reset(url: str) -> None:
    async with site(example_app(url), works=False) as here:
        await here.app.watches["export"].begin({}, id="1")
        now = (await (await here.app.store()).events(None, 1)).after
        for last in ("nonsense", "999999999", "-1", "1; drop"):
            async with stream(here, last) as reported:
                reset, state = await anext(reported), await anext(reported)
                assert (reset.event, reset.id) == ("reset", now)
                assert (state.event, state.id) == ("state", now)


async def test_a_client_whose_next_events_were_dropped_is_reset(url: str) -> None:
    async with site(example_app(url), works=False) as here:
        store = await here.app.store()
        before = (await store.events(None, 1)).after
        await here.app.watches["export"].begin({}, id="old")
        await store.prune(0.0)
        now = (await store.events(None, 1)).after
        async with asyncio.timeout(LIMIT_S), stream(here, before) as reported:
            reset, state = await anext(reported), await anext(reported)
        assert reset.event == "reset"
        assert reset.data["why"] == "events after that place were dropped because of their age"
        assert (state.event, state.id) == ("state", now)


async def test_a_run_is_followed_from_its_state_to_its_end(url: str) -> None:
    async with site(example_app(url)) as here:
        await here.post("/api/runs", {"watch": "export", "id": "r1", "op": {"table": "orders"}}, 201)
        path = "/api/runs/export:r1/events"
        async with asyncio.timeout(LIMIT_S), stream(here, path=path) as reported:
            everything = [one async for one in reported]
        assert everything[0].event == "state"
        assert everything[0].id == "0"
        changes = everything[1:]
        numbers = [int(one.id or "") for one in changes]
        assert numbers == list(range(1, len(numbers) + 1))
        assert changes[-1].data["phase"] == "ended"
        assert changes[-1].data["outcome"] == "ready"
        async with asyncio.timeout(LIMIT_S), stream(here, str(numbers[0]), path) as reported:
            rest = [one async for one in reported]
        assert [one.id for one in rest[1:]] == [one.id for one in changes[1:]]
        answer = await here.http.get(path, headers={"Last-Event-ID": str(numbers[-1])})
        assert answer.status_code == 204


async def test_what_a_remote_wrote_cannot_end_a_frame(url: str) -> None:
    async with site(example_app(url), works=False) as here, asyncio.timeout(LIMIT_S), stream(here) as reported:
        await anext(reported)
        await here.app.watches["export"].begin({}, id="a\u2028b\x85c")
        event = await anext(reported)
        assert event.data["key"] == "export:a\u2028b\x85c"


async def test_a_client_that_is_far_behind_costs_the_memory_of_one_part(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part is in memory until the client has taken it. From the buffer or the store: each event once, in order."""
    monkeypatch.setattr(feed_hub, "PART_BYTES", 40_000)
    app = example_app(url)
    store = await app.store()
    hub = FeedHub(app.store)
    sizes = [size for size in (9_000, 100) for _ in range(30)]
    events = [(NewEvent(1, encode({"text": "x" * size})),) for size in sizes]
    large = [NewTask(name="export", kind="watch", delay_s=3600, events=one) for one in events]
    begin = place_in_feed((await store.events(None, 1)).after)
    await store.enqueue(large)
    wanted = await _log_after(store, begin)
    async with contextlib.aclosing(hub.behind(begin)) as behind, contextlib.aclosing(hub.behind(begin)) as slow:
        parts = [await anext(slow)]
        assert await _ids(behind, len(wanted)) == wanted
        await store.enqueue(large)
        wanted = await _log_after(store, begin)
        more = await _ids(behind, len(wanted) // 2)
        # The buffer has all of these by now, in several parts.
        assert more == wanted[len(wanted) // 2 :]
        assert await _ids(slow, len(wanted), parts) == wanted
    await app.close()


async def test_servers_that_end_in_the_middle_of_a_stream_lose_and_double_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next server goes on after the last event that the client had, wherever its own buffer begins."""
    monkeypatch.setattr(feed_hub, "PART_BYTES", 2_000)
    first = example_app(url)
    store = await first.store()
    last = (await store.events(None, 1)).after
    begin = place_in_feed(last)
    seen: list[str | None] = []
    for server in range(6):
        async with site(example_app(url), works=False) as here:
            many = [NewTask(name="export", kind="watch", delay_s=3600, events=(NewEvent(1, "{}"),))] * 40
            async with stream(here, last) as reported, asyncio.timeout(LIMIT_S):
                assert (await anext(reported)).event == "state"
                writing = asyncio.create_task(store.enqueue(many))
                async for one in reported:
                    assert one.id is not None
                    seen.append(one.id)
                    last = one.id
                    if len(seen) % 40 == 7 * server:
                        break
                await writing
    async with site(example_app(url), works=False) as here:
        wanted = await _log_after(store, begin)
        async with stream(here, last) as reported, asyncio.timeout(LIMIT_S):
            await anext(reported)
            seen += [one.id async for one in _first(reported, len(wanted) - len(seen))]
    assert seen == wanted
    await first.close()


async def _first(reported: AsyncIterator[SentEvent], count: int) -> AsyncIterator[SentEvent]:
    for _ in range(count):
        yield await anext(reported)


async def _log_after(store: Store, begin: int) -> list[str]:
    return [one for one in await _log(store) if place_in_feed(one) > begin]


async def _ids(parts: AsyncIterator[bytes], count: int, begun: list[bytes] | None = None) -> list[str]:
    """The ids of the next events; each part is bounded."""
    found: list[str] = []
    async with asyncio.timeout(LIMIT_S):
        for part in begun or []:
            found += _ids_of(part)
        while len(found) < count:
            part = await anext(parts)
            assert len(part) <= 40_000
            found += _ids_of(part)
    return found


def _ids_of(part: bytes) -> list[str]:
    return [line.removeprefix("id: ") for line in part.decode().split("\n") if line.startswith("id: ")]
