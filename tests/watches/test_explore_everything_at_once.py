"""Several runs, cancels and failures at the same time, with a crash and a zombie at every point.

Several runs, looks in common, checks that need several tries, a cleanup that fails at first, a breaker that opens, an
`ensure` beside `begin`, and a cancel at every few seconds.
"""

from collections import Counter
from typing import Any

import pytest

from everpoll import Backoff, Breaker, Budget, Everpoll
from everpoll.stores.contract import TaskFilter
from everpoll.testing import ScriptedRemote, World, explore
from everpoll.watches import Done, Wait
from everpoll.watches.rounds import ensure, sweep
from everpoll.watches.run_info import RunInfo, run_info

EVEN = Backoff("2s", factor=1.5, cap="10s", jitter=0)


class Cloud:
    """Operations by key: each takes some looks, its rows appear a little later, its first cleanup fails."""

    def __init__(self, down: range = range(0)) -> None:
        self.started: Counter[str] = Counter()
        self.cleaned: Counter[str] = Counter()
        self.canceled: set[str] = set()
        self._asked: Counter[str] = Counter()
        self._down = down
        self._refused: set[str] = set()
        self.api = ScriptedRemote(
            start=self._start, find=self._find, list=self._list, rows=self._rows, clean=self._clean, cancel=self._cancel
        )

    def _start(self, key: str) -> str:
        self.started[key] = 1
        return key

    def _find(self, key: str) -> str | None:
        return key if key in self.started else None

    def _list(self, keys: list[str]) -> list[str]:
        self._asked.update(keys)
        if self._asked.total() in self._down:
            raise ConnectionError("down")
        return ["complete" if self._asked[key] > 2 or key in self.canceled else "running" for key in keys]

    def _rows(self, key: str) -> int:
        self._asked[f"rows of {key}"] += 1
        return 3 if self._asked[f"rows of {key}"] > 1 else 0

    def _cancel(self, key: str) -> None:
        self.canceled.add(key)

    def _clean(self, key: str) -> None:
        if key not in self._refused:
            self._refused.add(key)
            raise ConnectionError("not yet")
        self.cleaned[key] += 1


def make(world: World, *, batched: bool = True) -> Everpoll:
    app = Everpoll(world.store, clock=world.clock)
    api = world.remote.api

    @app.watch(every=EVEN, budget=Budget("29m", looks=120), timeout="1d", breaker=Breaker(2, "1m"), cleanup_every=EVEN)
    async def query(_op: Any, w: Any) -> Any:
        [status] = await api.list([w.handle])
        return w.verify("rows") if w.status(status) == "complete" else Wait()

    if batched:

        @query.look_many
        async def many(runs: list[tuple[Any, Any]]) -> list[Any]:
            statuses = await api.list([w.handle for _, w in runs])
            return [
                (Done() if w.is_canceling else w.verify("rows")) if w.status(one) == "complete" else Wait()
                for (_, w), one in zip(runs, statuses, strict=True)
            ]

    query.start(_keyed(api.start))
    query.adopt(_keyed(api.find))
    query.cancel(_keyed(api.cancel))
    query.cleanup(_keyed(api.clean))
    query.verify("rows", tries=6, every=EVEN)(_keyed(api.rows))
    return app


def _keyed(call: Any) -> Any:
    async def function(_op: Any, key: str) -> Any:
        return await call(key)

    return function


async def begin_three(world: World, app: Everpoll) -> None:
    """One is begun twice, one by the round for business rows, which runs twice, too."""
    watch = app.watches["query"]
    await watch.begin({}, id="a")
    await watch.begin({}, id="b")
    assert await ensure(watch, lambda: [({}, "b"), ({}, "c")]) == 1
    assert await ensure(watch, lambda: [({}, "a"), ({}, "c")]) == 0
    del world


async def all_ready(world: World) -> None:
    infos = await ended(world)
    assert {info.id: info.outcome for info in infos} == dict.fromkeys("abc", "ready")
    assert world.remote.started == {"query:a": 1, "query:b": 1, "query:c": 1}
    _all_cleaned(world, infos)


async def ended(world: World) -> list[RunInfo]:
    tasks = (await world.database.tasks(TaskFilter(kind="watch"), limit=100)).tasks
    return [run_info(task) for task in tasks]


def _all_cleaned(world: World, infos: list[RunInfo]) -> None:
    for info in infos:
        assert (info.phase, info.cleaned) == ("ended", True), info
    # By its key: once, or once more if the process could not store that it did it.
    most = 1 if world.fault.injected_at is None else 2
    assert all(1 <= number <= most for number in world.remote.cleaned.values()), world.remote.cleaned
    assert set(world.remote.cleaned) == {f"query:{info.id}" for info in infos}


@pytest.mark.parametrize("batched", [True, False])
def test_three_runs_at_once(batched: bool) -> None:
    exploration = explore(lambda world: make(world, batched=batched), begin_three, all_ready, remote=Cloud)
    assert {"before_list", "after_rows", "before_clean", "after_clean"} <= set(exploration.points)


def test_three_runs_whose_remote_is_away_for_a_while() -> None:
    explore(make, begin_three, all_ready, remote=lambda: Cloud(down=range(3, 7)))


@pytest.mark.parametrize("after_s", [0.0, 0.001, 1.0, 2.0, 2.002, 5.0, 10.0, 15.0])
def test_one_of_two_is_canceled_at_any_moment(after_s: float) -> None:
    async def begin_and_cancel(world: World, app: Everpoll) -> None:
        watch = app.watches["query"]
        await watch.begin({}, id="a")
        run = await watch.begin({}, id="b")
        await world.clock.advance(after_s)
        world.notes["asked"] = await run.cancel()

    async def right(world: World) -> None:
        by_id = {info.id: info for info in await ended(world)}
        assert by_id["a"].outcome == "ready"
        assert by_id["b"].outcome == ("canceled" if world.notes["asked"] else "ready")
        touched = [info for info in by_id.values() if f"query:{info.id}" in world.remote.started]
        for info in touched:
            if info.outcome == "canceled" and world.fault.fate != "zombie":
                assert info.handle is None or info.handle in world.remote.canceled
        if world.fault.fate != "zombie":
            _all_cleaned(world, [info for info in by_id.values() if info.cleaned is not None])

    explore(make, begin_and_cancel, right, remote=Cloud)


def test_a_sweeper_beside_runs_that_live_and_runs_that_ended() -> None:
    """It puts back what is to be cleaned up, and touches nothing else."""

    async def begin_and_sweep(world: World, app: Everpoll) -> None:
        await begin_three(world, app)
        for _ in range(20):
            await world.clock.advance(3)
            await sweep(app.watches, "query")

    explore(make, begin_and_sweep, all_ready, remote=Cloud)
