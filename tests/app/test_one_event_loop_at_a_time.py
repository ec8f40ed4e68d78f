"""An app belongs to the event loop that used it first: the others are refused at once, and none of them hangs."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from everpoll import Everpoll, NotRunning, StoreUnavailable

THREADS = 30
LIMIT_S = 30.0


@pytest.fixture(params=["sqlite", "postgres", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "postgres":
        yield request.getfixturevalue("postgres_url")
    else:
        yield f"sqlite:///{tmp_path / 'tasks.db'}" if request.param == "sqlite" else "memory://"


class Crowd:
    """Threads with an event loop each, that all use one app at the same instant."""

    def __init__(self, use: Callable[[], Awaitable[object]], app: Everpoll) -> None:
        self._use, self._app = use, app
        self._together = threading.Barrier(THREADS)
        self._all_answered = threading.Semaphore(0)
        self.answers: list[object] = []

    def run(self) -> None:
        threads = [threading.Thread(target=lambda: asyncio.run(self._one()), daemon=True) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + LIMIT_S
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        hung = sum(thread.is_alive() for thread in threads)
        assert not hung, f"{hung} of {THREADS} threads hang; the others: {self.answers}"

    async def _one(self) -> None:
        self._together.wait(LIMIT_S)
        try:
            answer: object = await self._use()
        except NotRunning as refused:
            self.answers.append(refused)
            self._all_answered.release()
            return
        self.answers.append(answer)
        # It stays in use until the others have their answers.
        until = time.monotonic() + LIMIT_S
        for _ in range(THREADS - 1):
            await asyncio.to_thread(self._all_answered.acquire, timeout=max(0.0, until - time.monotonic()))
        await self._app.close()


@pytest.mark.parametrize("how", ["store", "enqueue", "enter", "close after a refusal"])
def test_thirty_threads_at_once_and_all_but_the_first_are_refused(url: str, how: str) -> None:
    app = Everpoll(url)

    @app.job()
    async def work(number: int) -> None: ...

    async def enqueue_and_close_when_refused() -> Any:
        try:
            return await work.enqueue(1)
        except NotRunning:
            with suppress(NotRunning):
                await app.close()
            raise

    uses: dict[str, Callable[[], Awaitable[object]]] = {
        "store": app.store,
        "enqueue": lambda: work.enqueue(1),
        "enter": app.__aenter__,
        "close after a refusal": enqueue_and_close_when_refused,
    }
    crowd = Crowd(uses[how], app)
    crowd.run()
    refused = [one for one in crowd.answers if isinstance(one, NotRunning)]
    assert len(refused) == THREADS - 1
    assert "another event loop" in str(refused[0])


def test_loops_alone_have_one_event_loop_too() -> None:
    app = Everpoll("memory://")

    @app.loop("1h")
    async def look() -> None: ...

    crowd = Crowd(app.__aenter__, app)
    crowd.run()
    assert sum(isinstance(one, NotRunning) for one in crowd.answers) == THREADS - 1


def test_while_the_first_is_still_opening_the_others_are_refused(tmp_path: Path) -> None:
    app = Everpoll(f"sqlite:///{tmp_path / 'tasks.db'}")
    opening, go_on = threading.Event(), threading.Event()
    really = app._store.open

    async def slow(*, migrate: bool = True) -> None:
        opening.set()
        await asyncio.to_thread(go_on.wait, LIMIT_S)
        await really(migrate=migrate)

    app._store.open = slow  # type: ignore[method-assign]

    async def first() -> None:
        await app.store()
        await app.close()

    thread = threading.Thread(target=lambda: asyncio.run(first()), daemon=True)
    thread.start()
    assert opening.wait(LIMIT_S)
    with pytest.raises(NotRunning, match="another event loop"):
        asyncio.run(app.store())
    with pytest.raises(NotRunning, match="another event loop"):
        asyncio.run(app.close())
    go_on.set()
    thread.join(LIMIT_S)
    assert not thread.is_alive()


def test_after_it_was_closed_there_another_event_loop_may_use_it(url: str) -> None:
    app = Everpoll(url)

    async def use() -> None:
        await app.store()
        await app.close()

    for _ in range(3):
        asyncio.run(use())


def test_where_opening_failed_another_event_loop_may_try() -> None:
    app = Everpoll("postgresql://user@127.0.0.1:1/nowhere?connect_timeout=1")

    async def first_and_second() -> None:
        with pytest.raises(StoreUnavailable):
            await app.store()
        with pytest.raises(StoreUnavailable):
            await asyncio.to_thread(lambda: asyncio.run(app.store()))

    asyncio.run(first_and_second())
