"""Reasons and error messages of watches say what happened, to which run, and what to do."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from everpoll import BadInput, Budget, NotRunning, Rate, RunCanceled, RunTimedOut
from everpoll.testing import Timeline, explore
from everpoll.watches import Done, Fail, Learned, Wait
from watches.stage import WatchStage


@pytest.mark.parametrize("handle", ["", 0, "0", False, {}])
def test_a_handle_that_is_none_starts_nothing_by_mistake(stage: WatchStage, handle: Any) -> None:
    watch = stage.whole()

    async def scene() -> None:
        with pytest.raises(BadInput, match=r"watch 'query': handle=.* is not a handle; leave it out to call start"):
            await watch.begin({}, id="r", handle=handle)
        assert stage.remote.count("start") == 0

    stage.play(scene)


def test_a_cancel_keeps_its_reason_and_what_the_remote_said(stage: WatchStage) -> None:
    async def look(_op: Any, w: Any) -> Any:
        return Fail("broke", evidence={"rows": 7}, status="cancelled") if w.is_canceling else Wait(status="running")

    watch = stage.with_cancel(stage.watch(look))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(1)
        await run.cancel("customer left")
        with pytest.raises(RunCanceled, match=r"^query:r was canceled: customer left; the remote has ended$") as answer:
            await run.result()
        info = await run.info()
        assert answer.value.evidence == info.evidence == {"rows": 7}
        assert info.status == "cancelled"

    stage.play(scene)


@pytest.mark.parametrize(
    ("last", "status"),
    [(Done(1), None), (Done(1, status="finished"), "finished"), (Fail("no", status="broken"), "broken")],
)
def test_an_ended_run_does_not_say_that_it_is_running(stage: WatchStage, last: Any, status: str | None) -> None:
    verdicts = [Wait(note="85 %", status="running"), last]

    async def look(_op: Any) -> Any:
        return verdicts.pop(0)

    watch = stage.watch(look)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await stage.ended(run)
        info = await run.info()
        assert (info.status, info.progress) == (status, None)

    stage.play(scene)


@pytest.mark.parametrize(
    ("answers", "answer"),
    [
        (["running"], "last seen: running"),
        ([ConnectionError("no route")], r"the last \d looks failed: ConnectionError: no route"),
        ([None], "every look returned None: is there a return missing"),
    ],
)
def test_who_ran_out_of_time_is_told_what_was_last_seen(stage: WatchStage, answers: list[Any], answer: str) -> None:
    remote = stage.script(status=answers)

    async def look(_op: Any, w: Any) -> Any:
        word = await remote.status()
        return None if word is None else Wait(status=w.status(word))

    watch = stage.watch(look, budget=Budget("1m"))

    async def scene() -> None:
        with pytest.raises(RunTimedOut, match=rf"time budget of 1m is spent: 1m since the start; {answer}"):
            await (await watch.begin({}, id="r")).result()

    stage.play(scene)


def test_what_was_started_elsewhere_is_looked_at_at_once_and_then_after_every_wait_of_the_backoff(
    stage: WatchStage,
) -> None:
    remote = stage.script(status=["running"])
    watch = stage.whole()

    async def scene() -> None:
        await watch.begin({}, id="r", handle="id-7")
        await asyncio.sleep(65)
        assert [round(at) for at in remote.times("status")] == [0, 2, 6, 14, 30, 60]

    stage.play(scene)


def test_a_call_for_many_is_one_to_the_rate_of_its_remote(stage: WatchStage) -> None:
    calls: list[tuple[float, set[str]]] = []
    watch = stage.watch(
        lambda _op: None, every="10s", rate=Rate(1, per="5s"), remote=lambda op: op["tenant"], budget=Budget("1h")
    )

    @watch.look_many
    async def look_many(runs: list[Any]) -> list[Any]:
        calls.append((stage.clock.now(), {op["tenant"] for op, _ in runs}))
        return [Done() if w.looks == 3 else Wait() for _, w in runs]

    async def scene() -> None:
        runs = [await watch.begin({"tenant": f"t{number % 2}"}, id=str(number)) for number in range(40)]
        for run in runs:
            await run.result()
        assert stage.clock.now() < 60
        assert len(calls) < 20, "of 120 looks"
        for tenant in ("t0", "t1"):
            times = [at for at, tenants in calls if tenant in tenants]
            assert all(later - earlier > 4.9 for earlier, later in pairwise(times)), times

    stage.play(scene)


def test_what_look_many_returns_is_named_where_it_is_no_list(stage: WatchStage) -> None:
    watch = stage.watch(lambda _op: None, unexpected_errors=1)

    @watch.look_many
    async def look_many(_runs: list[Any]) -> None: ...

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await stage.ended(run)
        assert "look_many returned None; it returns a list of verdicts" in str((await run.info()).reason)

    stage.play(scene)


def _reserved(key: Any) -> None: ...


def _yields(_op: Any) -> Any:
    yield 1


async def _wants_w(_op: Any, w: Any) -> None: ...


async def _wants_outcome(_op: Any, outcome: Any) -> None: ...


@pytest.mark.parametrize(
    ("what", "function", "answer"),
    [
        ("start", _wants_w, "start: there is no parameter 'w'; its parameters may be op, key$"),
        ("cancel", _wants_outcome, "cancel: there is no parameter 'outcome'; its parameters may be op, key, handle$"),
        ("cleanup", _wants_w, "cleanup: there is no parameter 'w'; its parameters may be op, key, handle, outcome$"),
        ("start", _reserved, r"start: the first parameter must be the operation: write def _reserved\(op, …\)"),
        ("start", _yields, "start is a generator"),
    ],
)
def test_a_function_that_asks_for_what_it_cannot_have_is_refused_at_once(
    stage: WatchStage, what: str, function: Callable[..., Any], answer: str
) -> None:
    with pytest.raises(BadInput, match=f"watch 'query': {answer}"):
        getattr(stage.watch(), what)(function)


@pytest.mark.parametrize("every", ["-1s", "30", 0])
def test_an_interval_that_cannot_be_is_named_as_it_was_written(stage: WatchStage, every: Any) -> None:
    with pytest.raises(BadInput, match=f"^watch 'query': every={every!r}"):
        stage.watch(every=every)


def test_a_learned_cadence_wants_a_backoff_to_fall_back_on() -> None:
    with pytest.raises(BadInput, match=r"write Learned\(Backoff\("):
        Learned("2s")  # type: ignore[arg-type]  # that is the point


class Odd:
    """A cadence that answers with a text."""

    def next_s(self, _history: Any, _rng: Any) -> Any:
        return "30s"


def test_a_cadence_that_failed_is_told_with_the_decision(stage: WatchStage) -> None:
    watch = stage.watch(every=Odd())

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(1)
        [decision] = (await run.info()).log
        assert "next_s returned '30s'" in decision.facts["cadence failed"]

    stage.play(scene)


def test_waiting_for_what_no_worker_does_ends_under_a_virtual_clock(stage: WatchStage) -> None:
    watch = stage.whole()
    job = stage.app.job()(_nothing)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        with pytest.raises(NotRunning, match="no worker is running, so this would wait for ever"):
            await run.result()
        with pytest.raises(NotRunning, match="no worker is running, so this would wait for ever"):
            await (await job.enqueue()).result()

    stage.play(scene, working=False)


async def _nothing() -> None: ...


def test_the_testing_kit_refuses_what_would_test_nothing(stage: WatchStage) -> None:
    with pytest.raises(BadInput, match="fates="):
        explore(lambda _world: stage.app, None, None, fates=("crsh",))  # type: ignore[arg-type]  # that is the point
    with pytest.raises(BadInput, match="write the watch itself"):
        Timeline("query")  # type: ignore[arg-type]  # that is the point


def test_an_ended_run_is_not_retried_as_a_job_is(stage: WatchStage) -> None:
    stage.script(status=["complete"])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await stage.ended(run)
        with pytest.raises(BadInput, match=r"is a run of the watch 'query': begin a new one"):
            await stage.app.task(run.task_id).retry()
        assert stage.remote.count("clean") == 1

    stage.play(scene)


def test_a_look_that_forgot_to_await_is_told_so(stage: WatchStage) -> None:
    async def inner() -> Done:
        return Done()

    async def look(_op: Any) -> Any:
        return inner()

    watch = stage.watch(look, unexpected_errors=1)
    assert repr(watch) == "<Watch query>"

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await stage.ended(run)
        assert "write await before the call" in str((await run.info()).reason)

    stage.play(scene)


def test_the_memory_may_be_replaced_by_another_dict(stage: WatchStage) -> None:
    refused: list[str] = []

    async def look(_op: Any, w: Any) -> Any:
        if w.memory == {"page": 2}:
            return Done()
        try:
            w.memory = [1]
        except BadInput as error:
            refused.append(str(error))
        w.memory = {"page": 2}
        return Wait()

    watch = stage.watch(look)

    async def scene() -> None:
        await (await watch.begin({}, id="r")).result()
        assert refused == ["w.memory = [1]: write a dict"]

    stage.play(scene)
