"""A caller makes the next look due now, or adds to a run's budget; a look that is under way undoes neither."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everpoll import Backoff, BadInput, Budget, RunTimedOut, WrongState
from everpoll.stores.contract import encode
from everpoll.watches import Wait, WatchRun
from everpoll.watches.extension import Extension, extension_of, read_args, split_args, with_extension
from everpoll.watches.why import why
from watches.stage import WatchStage

HOURLY = Backoff("1h", factor=1, jitter=0)
MINUTELY = Backoff("1m", factor=1, jitter=0)


async def actions(stage: WatchStage, run: WatchRun) -> list[dict[str, Any]]:
    return [one.body for one in await (await stage.app.store()).actions_of(run.task_id)]


def test_the_next_look_comes_now_and_the_cadence_goes_on_from_there(stage: WatchStage) -> None:
    watch = stage.watch(every=HOURLY, budget=Budget("10h"))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(60)
        assert stage.remote.count("status") == 1
        await run.look_now(by="ops")
        await asyncio.sleep(1)
        assert stage.remote.count("status") == 2
        await asyncio.sleep(1800)
        assert stage.remote.count("status") == 2
        assert await actions(stage, run) == [{"what": "look-now", "by": "ops"}]
        await run.cancel()
        events = [one async for one in run.events()]
        assert [one.seq for one in events[1:]] == list(range(1, len(events))), "what was done by hand is none of them"

    stage.play(scene)


def test_while_a_look_is_under_way_another_follows_it(stage: WatchStage) -> None:
    looking, go = asyncio.Event(), asyncio.Event()
    looks: list[float] = []

    async def look(_op: Any) -> Wait:
        looks.append(stage.clock.now())
        looking.set()
        await go.wait()
        return Wait()

    watch = stage.watch(look, every=HOURLY, budget=Budget("10h"))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await looking.wait()
        await run.look_now()
        await asyncio.sleep(1)
        assert len(looks) == 1
        go.set()
        await asyncio.sleep(1)
        assert len(looks) == 2

    stage.play(scene)


def test_more_time_and_looks_are_used_and_told(stage: WatchStage) -> None:
    watch = stage.watch(every=MINUTELY, budget=Budget("5m", looks=10))

    async def scene() -> None:
        run = await watch.begin({"file": 1}, id="r")
        await asyncio.sleep(90)
        before = await run.info()
        assert (before.budget_s, before.budget_looks) == (300.0, 10)
        next_look_at = before.next_look_at
        await run.extend("5m", by="ops")
        await run.extend(looks=20)
        info = await run.info()
        assert (info.budget_s, info.budget_looks, info.op) == (600.0, 30, {"file": 1})
        assert info.next_look_at == next_look_at, "an extension must not cause a look"
        assert before.deadline_at is not None
        assert info.deadline_at is not None
        assert (info.deadline_at - before.deadline_at).total_seconds() == 300.0
        assert await actions(stage, run) == [
            {"what": "extend", "by": "ops", "why": "extended by 5m", "time_s": 300.0, "looks": 0},
            {"what": "extend", "why": "extended by 20 looks", "time_s": 0.0, "looks": 20},
        ]
        with pytest.raises(RunTimedOut, match="time budget of 10m is spent"):
            await run.result()
        assert stage.clock.now() == pytest.approx(600, abs=6)
        assert (await run.info()).op == {"file": 1}

    stage.play(scene)


def test_an_extension_survives_the_look_that_is_under_way(stage: WatchStage) -> None:
    looking, go = asyncio.Event(), asyncio.Event()

    async def look(op: Any) -> Wait:
        assert op == [1, 2]
        looking.set()
        await go.wait()
        return Wait()

    watch = stage.watch(look, every=MINUTELY, budget=Budget("10m", looks=3))

    async def scene() -> None:
        run = await watch.begin([1, 2], id="r")
        await looking.wait()
        await asyncio.gather(run.extend(looks=1), run.extend(looks=2), run.extend("1m"))
        go.set()
        with pytest.raises(RunTimedOut, match="budget of 6 looks is spent"):
            await run.result()

    stage.play(scene)


def test_why_tells_the_budget_and_what_was_added(stage: WatchStage) -> None:
    watch = stage.watch(every=MINUTELY, budget=Budget("5m", looks=10))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(30)
        await run.extend("5m", looks=2, by="ops")
        store = await stage.app.store()
        task = (await store.info([run.task_id]))[run.task_id]
        answer = why(task, (), (), (), datetime.fromtimestamp(stage.clock.wall(), UTC))
        assert "budget used: 30s of 10m, 1 of 12 looks; 5m and 2 looks of it were added by hand" in answer.evidence
        assert any("extend by ops: extended by 5m and 2 looks" in line for line in answer.evidence)

    stage.play(scene)


def test_what_has_its_outcome_is_refused(stage: WatchStage) -> None:
    stage.script(status=["complete"])
    watch = stage.watch()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await run.result()
        for refused in (run.look_now(), run.extend("1m")):
            with pytest.raises(WrongState, match=r"query:r .* any more: it has its outcome, ready"):
                await refused
        assert await actions(stage, run) == []

    stage.play(scene)


@pytest.mark.parametrize(
    "given_budget", [{}, {"time": 0}, {"time": "soon"}, {"looks": 0}, {"looks": 10**7}, {"looks": True}]
)
def test_what_is_no_extension_is_refused(stage: WatchStage, given_budget: dict[str, Any]) -> None:
    watch = stage.watch()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        with pytest.raises(BadInput):
            await run.extend(**given_budget)

    stage.play(scene)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    # Of surrogates JSON knows nothing.
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abop"), inner, max_size=3),
    max_leaves=10,
)


@given(op=JSON, time_s=st.floats(0, 1e9), looks=st.integers(0, 10**6))
def test_any_operation_is_read_back_as_it_was(op: Any, time_s: float, looks: int) -> None:
    extension = Extension(time_s, looks)
    assert read_args(encode(op)) == (op, Extension())
    text = with_extension(op, extension)
    assert read_args(text) == (op, extension)
    assert extension_of(text) == extension
    assert split_args(op) == (op, Extension())
