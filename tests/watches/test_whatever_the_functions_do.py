"""Whatever the functions of a watch raise, return or write becomes a clear failure of that call.

No run ends behind the back of its cleanup, no worker ends with a run, and no other run is harmed.
"""

import asyncio
import math
import threading
from typing import Any

import pytest

from everpoll import Backoff, BadInput, Budget, Everpoll, RunCanceled, RunFailed, RunTimedOut
from everpoll.watches import Done, Fail, Wait
from watches.stage import WatchStage


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Prickly(Exception):
    @property
    def response(self) -> Any:
        raise RuntimeError("do not touch")


class Breaking:
    """A watch with everything, of which one function raises, once."""

    def __init__(self, stage: WatchStage, where: str, error: BaseException) -> None:
        self._where, self._error = where, error
        self.raised: list[str] = []
        self.cleaned: list[str] = []
        self.watch = stage.watch(self.plain if where == "plain look" else self.look, cleanup_every=Backoff("1s"))
        self.watch.start(self.start)
        self.watch.verify("rows")(self.rows)
        self.watch.cancel(self.cancel)
        self.watch.cleanup(self.cleanup)
        if where == "look_many":
            self.watch.look_many(self.many)

    def _maybe(self, place: str) -> None:
        if place == self._where and not self.raised:
            self.raised.append(place)
            raise self._error

    async def look(self, _op: Any, w: Any) -> Any:
        self._maybe("look")
        return w.verify("rows") if w.looks > 1 or w.is_canceling else Wait()

    def plain(self, _op: Any, w: Any) -> Any:
        self._maybe("plain look")
        return w.verify("rows") if w.looks > 1 else Wait()

    async def many(self, runs: list[Any]) -> list[Any]:
        self._maybe("look_many")
        return [w.verify("rows") if w.looks > 1 else Wait() for _, w in runs]

    async def start(self, _op: Any, key: str) -> str:
        self._maybe("start")
        return key

    async def rows(self, _op: Any) -> bool:
        self._maybe("verify")
        return True

    async def cancel(self, _op: Any) -> None:
        self._maybe("cancel")

    async def cleanup(self, _op: Any, outcome: str) -> None:
        self._maybe("cleanup")
        self.cleaned.append(outcome)


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), GeneratorExit(), asyncio.CancelledError(), Unspeakable(), Prickly(), StopAsyncIteration()],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("where", ["look", "start", "verify", "cancel", "cleanup", "look_many", "plain look"])
def test_whatever_is_raised_is_a_failure_as_any_other(stage: WatchStage, where: str, error: BaseException) -> None:
    """Once each: the run goes on, ends, and is cleaned up."""
    breaking = Breaking(stage, where, error)

    async def scene() -> None:
        run = await breaking.watch.begin({}, id="r")
        if where == "cancel":
            await asyncio.sleep(1)
            await run.cancel()
        await stage.ended(run, within_s=300)
        info = await run.info()
        outcome = "canceled" if where == "cancel" else "ready"
        assert (info.outcome, info.cleaned) == (outcome, True)
        assert (breaking.raised, breaking.cleaned) == ([where], [outcome])
        assert info.errors == (where != "verify")

    stage.play(scene)


class Numb:
    """A value that JSON does not know."""


ODD_VALUES = [Numb(), math.nan, {"a": [math.inf]}, "half \ud800", {None: 1}, "x" * 1_000_001]


@pytest.mark.parametrize("value", ODD_VALUES, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("where", ["memory", "value", "handle", "adopted", "proof", "value after cancel"])
def test_what_cannot_be_stored_fails_clearly_and_is_cleaned_up(stage: WatchStage, where: str, value: Any) -> None:
    async def look(_op: Any, w: Any) -> Any:
        if where == "memory":
            w.memory["odd"] = value
        if where == "value" or (where == "value after cancel" and w.is_canceling):
            return Done(value)
        return w.verify("rows") if where == "proof" else Wait()

    watch = stage.with_cleanup(stage.with_cancel(stage.watch(look, cancel_budget="1m")))

    @watch.verify("rows", tries=6, every=Backoff("1s"))
    async def rows(_op: Any) -> Any:
        return value

    @watch.start
    async def start(_op: Any) -> Any:
        return {"handle": value, "adopted": None}.get(where, "id-1")

    if where == "adopted":

        @watch.adopt
        async def adopt(_op: Any) -> Any:
            return value

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        if where == "value after cancel":
            await asyncio.sleep(1)
            await run.cancel()
            with pytest.raises(RunCanceled, match=r"must be JSON|bytes, more than 1,000,000"):
                await run.result()
        else:
            # What was started is not started again for want of a place to keep its answer.
            is_start = where in ("handle", "adopted")
            how = "it was started, and its answer cannot be stored" if is_start else "5 times in a row"
            with pytest.raises(RunFailed, match=rf"{how}.*(must be JSON|bytes, more than 1)"):
                await run.result()
        await stage.ended(run)
        assert stage.remote.count("clean") == 1
        assert (await run.info()).seq == len([one async for one in run.events()]) - 1, "no number was left out"

    stage.play(scene)


def test_a_memory_that_could_not_be_stored_is_as_it_was_before_that_look(stage: WatchStage) -> None:
    async def look(_op: Any, w: Any) -> Any:
        if w.looks == 2:
            w.memory["odd"] = Numb()
            return Done("too early")
        w.memory.setdefault("seen", []).append(w.looks)
        return Done(w.memory["seen"]) if w.looks == 4 else Wait()

    watch = stage.watch(look)

    async def scene() -> None:
        run = await watch.begin({})
        assert await run.result() == [1, 3, 4]
        assert watch.counters["outcome:ready"] == 1
        assert watch.counters["looks"] == 4

    stage.play(scene)


def test_a_failure_is_one_whatever_its_evidence_and_its_reason_look_like(stage: WatchStage) -> None:
    async def look(op: str, _w: Any) -> Any:
        if op == "evidence":
            return Fail("quota", evidence=Numb())
        return Fail(ValueError("an error, not a text"))  # type: ignore[arg-type]

    watch = stage.watch(look)

    async def scene() -> None:
        with pytest.raises(RunFailed, match="failed: quota") as raised:
            await (await watch.begin("evidence")).result()
        assert "not stored: the evidence must be JSON" in str(raised.value.evidence)
        with pytest.raises(RunFailed, match="failed: an error, not a text"):
            await (await watch.begin("reason")).result()

    stage.play(scene)


@pytest.mark.parametrize("says", [ValueError("?"), "maybe"])
def test_a_rule_for_errors_that_is_wrong_itself_has_no_opinion(stage: WatchStage, says: Any) -> None:
    def classify(_error: BaseException) -> Any:
        if isinstance(says, Exception):
            raise says
        return says

    stage.script(status=[ConnectionError("gone"), "complete"])
    watch = stage.whole(classify=classify)

    async def scene() -> None:
        assert await (await watch.begin({})).result() == "id-1"

    stage.play(scene)


def test_a_remote_that_cannot_be_named_fails_the_look_and_is_cleaned_up_after(stage: WatchStage) -> None:
    watch = stage.whole(remote=lambda op: op["tenant"])

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        with pytest.raises(RunFailed, match="start failed 5 times in a row: KeyError: 'tenant'"):
            await run.result()
        await stage.ended(run)
        assert stage.remote.count("clean") == 1

    stage.play(scene)


@pytest.mark.parametrize("says", [ValueError("?"), math.nan, -1, None, "2s"])
def test_a_cadence_that_fails_loses_nothing_of_what_was_seen(stage: WatchStage, says: Any) -> None:
    class Wrong:
        def next_s(self, _history: Any, _rng: Any) -> Any:
            if isinstance(says, Exception):
                raise says
            return says

    remote = stage.script(status=["running", "complete"])
    watch = stage.whole(every=Wrong())

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        assert await run.result() == "id-1"
        assert remote.count("start") == 1
        assert 3 < stage.clock.now() < 10

    stage.play(scene)


def test_a_look_that_swallows_its_cancellation_is_canceled_all_the_same(stage: WatchStage) -> None:
    begun = asyncio.Event()

    async def look(_op: Any, w: Any) -> Any:
        begun.set()
        if not w.is_canceling:
            try:
                await asyncio.sleep(50)
            except asyncio.CancelledError:
                return Wait("10m")
        return Done()

    watch = stage.with_cancel(stage.with_start(stage.watch(look)))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await begun.wait()
        await run.cancel()
        with pytest.raises(RunCanceled, match="the remote has ended"):
            await run.result()
        assert stage.clock.now() < 20

    stage.play(scene)


async def test_a_thread_that_was_left_behind_changes_nothing_any_more() -> None:
    released, seen = threading.Event(), threading.Event()
    app = Everpoll("memory://")

    @app.watch(every=Backoff("10ms"), budget=Budget("1m"), timeout="200ms")
    def query(_op: Any, w: Any) -> Any:
        if w.looks == 1:
            mine = w.memory
            released.wait(30)
            mine["late"] = w.memory["late"] = True
            w.confirm("gone", True, times=1)
            w.count("late")
            seen.set()
            return Done("late")
        released.set()
        seen.wait(30)
        return Done(dict(w.memory))

    async with app:
        run = await query.begin({}, id="r")
        assert await run.result("30s") == {}
        info = await run.info()
        assert (info.facts, info.counters.get("late")) == ({}, None)


def test_a_plain_look_attempts_in_its_thread(stage: WatchStage) -> None:
    def gone() -> None:
        raise ConnectionError("gone")

    class Later:
        def __await__(self) -> Any:
            yield

    def look(_op: Any, w: Any) -> Any:
        assert w.attempt(len, "abc") == 3
        assert w.attempt(gone) is None
        if w.looks == 1:
            w.attempt(Later)
        return Done()

    watch = stage.watch(look)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        assert await run.result() is None
        info = await run.info()
        assert info.counters["attempt failed:gone"] == 2, "counted also in a look that failed later"
        assert "needs an async look" in str(info.log[0].facts["error"])

    stage.play(scene)


@pytest.mark.parametrize("seen", [0, 1, "no", [], 0.0])
def test_only_what_was_seen_is_a_sighting(stage: WatchStage, seen: Any) -> None:
    """0 and "no" are not False, and would count as seen."""

    async def look(_op: Any, w: Any) -> Any:
        return Done() if w.confirm("gone", seen, times=1) else Wait()

    watch = stage.watch(look)

    async def scene() -> None:
        with pytest.raises(RunFailed, match="write True, False, or None"):
            await (await watch.begin({})).result()

    stage.play(scene)


def test_a_listener_that_fails_harms_no_run(stage: WatchStage) -> None:
    stage.script(status=["complete"])
    watch = stage.whole()
    watch.on_decision.append(lambda _run_id, _decision: 1 / 0)  # type: ignore[arg-type]

    async def scene() -> None:
        assert await (await watch.begin({})).result() == "id-1"

    stage.play(scene)


@pytest.mark.parametrize(
    "options",
    [
        {"queue": 5},
        {"queue": ""},
        {"priority": "high"},
        {"priority": True},
        {"priority": 10**10},
        {"remote": 7},
        {"classify": "transient"},
        {"transient": "OSError"},
        {"fatal": (ValueError, "x")},
        {"cleanup_every": "1s"},
        {"cleanup_budget": 0},
        {"cancel_budget": 0},
        {"name": "half \ud800"},
    ],
)
def test_options_that_cannot_be_are_refused_when_they_are_said(stage: WatchStage, options: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(options))):
        stage.watch(**options)


def test_one_type_of_error_needs_no_tuple(stage: WatchStage) -> None:
    stage.script(status=[KeyError("x")])
    watch = stage.whole(fatal=KeyError)

    async def scene() -> None:
        run = await watch.begin({})
        with pytest.raises(RunFailed, match="look failed: KeyError"):
            await run.result()

    stage.play(scene)


@pytest.mark.parametrize("every", ["1.5s", None])
def test_a_check_is_tried_by_a_backoff(stage: WatchStage, every: Any) -> None:
    with pytest.raises(BadInput, match="every="):
        stage.watch().verify("rows", every=every)


@pytest.mark.parametrize(
    "op",
    [Numb(), math.nan, [{"a": -math.inf}], "\ud800", "x" * 1_000_001, {(1, 2): 3}],
    ids=lambda one: type(one).__name__,
)
def test_operations_that_would_not_come_back_are_refused_in_the_callers_face(stage: WatchStage, op: Any) -> None:
    watch = stage.watch()

    async def scene() -> None:
        with pytest.raises(BadInput, match="cannot be stored"):
            await watch.begin(op)
        with pytest.raises(BadInput, match="handle"):
            await watch.begin({}, handle=op)

    stage.play(scene)


@pytest.mark.parametrize("run_id", ["a:b", "ä/\n\t'\"%s{}", "💥" * 50, " ", "a" * 200])
def test_ids_with_odd_characters_are_ids(stage: WatchStage, run_id: str) -> None:
    stage.script(status=["complete"])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id=run_id)
        assert await run.result() == "id-1"
        assert stage.remote.calls[0].args == (f"query:{run_id}",)
        assert (await (await stage.app.watches.run("query", run_id)).info()).id == run_id

    stage.play(scene)


def test_an_id_that_no_database_can_hold_is_refused(stage: WatchStage) -> None:
    watch = stage.whole()

    async def scene() -> None:
        with pytest.raises(BadInput, match="id="):
            await watch.begin({}, id="half \ud800")

    stage.play(scene)


def test_a_budget_of_time_holds_for_a_start_that_only_ever_is_canceled_inside(stage: WatchStage) -> None:
    watch = stage.with_cleanup(stage.watch(budget=Budget("10s"), transient=asyncio.CancelledError))

    @watch.start
    async def start(_op: Any) -> None:
        raise asyncio.CancelledError

    async def scene() -> None:
        run = await watch.begin({})
        with pytest.raises(RunTimedOut, match="never started"):
            await run.result()

    stage.play(scene)
