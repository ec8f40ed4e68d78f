"""With a crash and a zombie at every point, each run ends right, is started once, and is cleaned up by its key."""

from typing import Any

import pytest

from everpoll import Backoff, Budget, Everpoll
from everpoll.testing import BrokenPromise, ScriptedRemote, World, explore
from everpoll.watches import Done, Wait
from everpoll.watches.run_info import RunInfo, run_info


class Cloud:
    """A remote that keeps what was started, by key, and can say how often."""

    def __init__(self, looks: int = 2, *, idempotent: bool = True) -> None:
        self.started: dict[str, int] = {}
        self.cleaned: dict[str, int] = {}
        self.canceled: set[str] = set()
        self._idempotent = idempotent
        self._looks = looks
        self._asked: dict[str, int] = {}
        self.api = ScriptedRemote(
            start=self._start, find=self._find, status=self._status, clean=self._clean, cancel=self._cancel
        )

    def _start(self, key: str) -> str:
        if not self._idempotent or key not in self.started:
            self.started[key] = self.started.get(key, 0) + 1
        return f"id of {key}"

    def _find(self, key: str) -> str | None:
        return f"id of {key}" if key in self.started else None

    def _status(self, handle: str) -> str:
        self._asked[handle] = self._asked.get(handle, 0) + 1
        return "complete" if self._asked[handle] > self._looks or handle in self.canceled else "running"

    def _clean(self, key: str) -> None:
        self.cleaned[key] = 1

    def _cancel(self, handle: str) -> None:
        self.canceled.add(handle)


def make(world: World, *, adopts: bool = True) -> Everpoll:
    app = Everpoll(world.store, clock=world.clock)
    api = world.remote.api

    # No timeout that would end a zombie's step before it wakes up: it is to do its worst.
    @app.watch(every=Backoff("2s", cap="30s", jitter=0), budget=Budget("29m", looks=120), timeout="1d")
    async def query(_op: Any, w: Any) -> Any:
        return Done(w.handle) if w.status(await api.status(w.handle)) == "complete" else Wait()

    @query.start
    async def start(_op: Any, key: str) -> Any:
        return await api.start(key)

    if adopts:

        @query.adopt
        async def adopt(_op: Any, key: str) -> Any:
            return await api.find(key)

    @query.cancel
    async def cancel(_op: Any, handle: Any) -> None:
        await api.cancel(handle)

    @query.cleanup
    async def cleanup(_op: Any, key: str) -> None:
        await api.clean(key)

    return app


async def begin(world: World, app: Everpoll) -> None:
    run = await app.watches["query"].begin({}, id="r")
    world.notes["task"] = run.task_id


async def begin_and_cancel(world: World, app: Everpoll) -> None:
    run = await app.watches["query"].begin({}, id="r")
    world.notes["task"] = run.task_id
    await world.clock.advance(7)
    await run.cancel()


async def ends_ready(world: World) -> None:
    await _ends(world, "ready")


async def ends_canceled(world: World) -> None:
    info = await _ends(world, "canceled")
    if world.fault.fate == "zombie" and world.fault.injected_at in {"after_lease", "before_start"}:
        return  # it may start what was canceled meanwhile: only a remote that remembers canceled keys can refuse it
    if info.handle is None:
        assert world.remote.started == {}, "crashed before the start: there is nothing, and that was found out"
    else:
        assert world.remote.canceled == {info.handle}


async def _ends(world: World, outcome: str) -> RunInfo:
    task = (await world.database.info([world.notes["task"]]))[world.notes["task"]]
    info = run_info(task)
    assert (info.outcome, info.phase, info.cleaned) == (outcome, "ended", True)
    assert world.remote.started in ({"query:r": 1}, {} if outcome == "canceled" else {"query:r": 1})
    assert world.remote.cleaned == {"query:r": 1}
    return info


@pytest.mark.parametrize("adopts", [True, False])
def test_invariants_7_and_8_a_run_over_every_crash_and_every_zombie(adopts: bool) -> None:
    exploration = explore(lambda world: make(world, adopts=adopts), begin, ends_ready, remote=Cloud)
    assert exploration.stories == 1 + 2 * len(exploration.points)
    assert {"after_lease", "before_start", "after_start", "before_settle", "after_settle"} <= set(exploration.points)
    assert {"before_status", "after_status", "before_clean", "after_clean"} <= set(exploration.points)


def test_invariants_7_and_8_a_cancel_over_every_crash_and_every_zombie() -> None:
    exploration = explore(make, begin_and_cancel, ends_canceled, remote=lambda: Cloud(looks=100))
    assert "before_cancel" in exploration.points


def test_explore_finds_a_remote_that_is_started_twice_where_nothing_protects_it() -> None:
    """A start that ignores its key, and no adopt: the crash between start and settle must be found."""
    with pytest.raises(BrokenPromise, match=r"crash at point \d+ of \d+, (after_start|before_settle)"):
        explore(lambda world: make(world, adopts=False), begin, ends_ready, remote=lambda: Cloud(idempotent=False))


def test_explore_tells_a_story_that_is_wrong_from_the_start() -> None:
    async def never(_world: World) -> None:
        raise AssertionError("wrong anyway")

    with pytest.raises(BrokenPromise, match="undisturbed: AssertionError: wrong anyway"):
        explore(make, begin, never, remote=Cloud)


def test_a_zombie_wakes_up_and_does_its_worst() -> None:
    """Frozen before it called the remote, it calls it when everything has ended without it."""
    calls: dict[str, int] = {}

    async def count(world: World) -> None:
        if world.fault.fate == "zombie" and world.fault.injected_at == "before_start":
            calls[world.fault.injected_at] = world.remote.api.count("start")

    explore(make, begin, count, remote=Cloud)
    assert calls == {"before_start": 2}
