"""`why` names the last decision of a run, the rule that made it, the facts and the next time, as they were recorded."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from everpoll import Backoff, Breaker, Everpoll, Rate
from everpoll.engine.why import Why
from everpoll.stores.contract import NewTask
from everpoll.watches import Done, Fail, Wait, WatchRun
from everpoll.watches.why import why
from watches.stage import WatchStage

STEADY = Backoff("30s", factor=1, jitter=0)


async def answer(stage: WatchStage, run: WatchRun, *, later_s: float = 0.0) -> Why:
    store = await stage.app.store()
    task = (await store.info([run.task_id]))[run.task_id]
    now = datetime.fromtimestamp(stage.clock.wall(), UTC) + timedelta(seconds=later_s)
    return why(task, await store.workers(), await store.queues(), await store.losses(run.task_id), now)


def test_a_run_that_is_looked_at_again_names_rule_facts_and_time(stage: WatchStage) -> None:
    async def look(_op: Any, w: Any) -> Wait:
        w.confirm("gone", True, times=2, gap="15s")
        w.due("rows", every="1m")
        return Wait(status="running", note="3 of 7 rows")

    watch = stage.watch(look)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(1)
        reported = await answer(stage, run)
        assert reported.verdict == (
            "It has not ended, and is looked at again in 14s: gone: sighting 2 of 2 counts 15s after the last."
        )
        evidence = "\n".join(reported.evidence)
        assert "phase looking, 1 look, 0 failed calls" in evidence
        assert "status at the remote: running, progress 3 of 7 rows" in evidence
        assert "fact confirm:gone: count 1, last 1s ago" in evidence
        assert "fact due:rows: last 1s ago" in evidence
        assert (
            "hint: gone: sighting 2 of 2 counts 15s after the last [running]; confirm:gone: 1 of 2; the next in 15"
            in (evidence)
        )

    stage.play(scene)


def test_equal_decisions_are_one_line_with_their_number(stage: WatchStage) -> None:
    watch = stage.watch(every=STEADY)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(130)
        reported = await answer(stage, run)
        # Looks at 0, 30, 60, 90 and 120 seconds.
        assert reported.verdict == "It has not ended, and is looked at again in 20s: the cadence waits 30s."
        [last] = [line for line in reported.evidence if line.startswith("last decision")]
        assert "cadence: the cadence waits 30s [running]; the next in 30s (5 times since " in last

    stage.play(scene)


def test_errors_in_passing_are_named(stage: WatchStage) -> None:
    stage.script(status=[ConnectionError("connection refused")])
    watch = stage.watch(every=STEADY)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(1)
        reported = await answer(stage, run)
        assert reported.verdict == (
            "Its last look failed: ConnectionError: connection refused; the next is in 29s: the cadence waits 30s."
        )

    stage.play(scene)


def test_a_start_that_fails_is_named(stage: WatchStage) -> None:
    stage.script(start=[ConnectionError("down")])
    watch = stage.with_start(stage.watch())

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(0.1)
        reported = await answer(stage, run)
        assert reported.verdict.startswith(
            "It is not started yet: start failed: ConnectionError: down; tried again in "
        )

    stage.play(scene)


def test_a_delayed_run_says_so(stage: WatchStage) -> None:
    watch = stage.with_start(stage.watch())

    async def scene() -> None:
        run = await watch.begin({}, id="r", delay="1h")
        assert (await answer(stage, run)).verdict == ("It was begun with a delay, and is first started in 1h.")

    stage.play(scene, working=False)


def test_a_breaker_and_a_rate_are_named_with_the_remote(stage: WatchStage) -> None:
    stage.script(status=[ConnectionError("down")])
    breaker = stage.watch(breaker=Breaker(1, "5m"), remote="mc.example", every="10s")
    rate = stage.watch(rate=Rate(1, per="1m"), remote="slow.example", name="rated")

    async def scene() -> None:
        broken = await breaker.begin({}, id="r")
        await rate.begin({}, id="first")
        await asyncio.sleep(1)
        later = await rate.begin({}, id="second")
        await asyncio.sleep(20)
        reported = await answer(stage, broken)
        assert reported.verdict.startswith("It is postponed by the breaker of its remote, and tries again in ")
        assert "mc.example failed 1 times in a row: not called for " in reported.verdict
        assert "its time budget is paused meanwhile, for 28m" in reported.verdict
        assert " more at most" in reported.verdict
        reported = await answer(stage, later)
        assert reported.verdict.startswith("It is postponed by the rate of its remote, and may call it in ")
        assert "the limit of slow.example is 1 looks in 1m" in reported.verdict

    stage.play(scene)


def test_a_parked_run_says_which_code_it_needs(stage: WatchStage) -> None:
    watch = stage.watch(version=1)
    store = stage.app._store
    newer = Everpoll(store, clock=stage.clock)

    @newer.watch(every="2s", budget=watch.policy.budget, name="query", version=2)
    async def look(_op: Any, _w: Any) -> Done:
        return Done()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        async with newer.working():
            await asyncio.sleep(10)
            reported = await answer(stage, run)
        assert reported.verdict == (
            "It needs code: it was written by version 1, this is version 2: write @query.migrate(1, …). "
            "A worker tries again in 4m50s."
        )
        assert reported.advice is not None
        assert any("needs_code: it was written by version 1" in line for line in reported.evidence)

    stage.play(scene, working=False)


def test_a_run_that_is_being_canceled_says_what_it_waits_for(stage: WatchStage) -> None:
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(3)
        await run.cancel("it is not needed any more")
        await asyncio.sleep(0.1)  # asked again after a second, give or take a fifth
        reported = await answer(stage, run)
        assert reported.verdict.startswith(
            "It is being canceled: the remote was asked to cancel and has not ended yet; the next step is in "
        )
        assert "a caller asked to cancel it: it is not needed any more" in reported.evidence

    stage.play(scene)


def test_a_run_that_waits_for_its_cleanup_has_its_outcome(stage: WatchStage) -> None:
    stage.script(status=["complete"], clean=[ConnectionError("locked")])
    watch = stage.with_cleanup(stage.watch())

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await asyncio.sleep(0.1)
        reported = await answer(stage, run)
        assert reported.verdict.startswith("It has its outcome, ready, and waits for its cleanup, in ")
        assert "cleanup failed (try 1): ConnectionError: locked" in reported.verdict

    stage.play(scene)


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        ("complete", "It is ready: the look says so, after 0s and 1 look."),
        ("error", "It failed: the remote says so, after 0s and 1 look."),
        ("running", "It timed out: time budget of 29m is spent"),
    ],
)
def test_an_ended_run_says_how_and_why(stage: WatchStage, status: str, verdict: str) -> None:
    stage.script(status=[status])
    watch = stage.watch()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await stage.ended(run)
        assert (await answer(stage, run)).verdict.startswith(verdict)

    stage.play(scene)


def test_a_cleanup_that_was_given_up_is_told(stage: WatchStage) -> None:
    stage.script(status=["complete"], clean=[ConnectionError("locked")])
    watch = stage.with_cleanup(stage.watch(cleanup_budget="1m"))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await stage.ended(run)
        reported = await answer(stage, run)
        assert reported.verdict.startswith("It is ready")
        assert "its cleanup was given up" in str(reported.advice)

    stage.play(scene)


def test_a_due_run_that_no_worker_takes_has_the_reason_of_any_task(stage: WatchStage) -> None:
    watch = stage.watch()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        reported = await answer(stage, run, later_s=7)
        assert reported.verdict == "No worker is alive."
        assert reported.evidence[:2] == ("it has been due for 7s", "phase looking, 0 looks, 0 failed calls")
        await run.cancel("stop it")
        reported = await answer(stage, run, later_s=7)
        assert "a caller asked to cancel it: stop it" in reported.evidence
        assert sum("stop it" in line for line in reported.evidence) == 2  # and once in the trail

    stage.play(scene, working=False)


def test_a_look_that_is_under_way_says_where(stage: WatchStage) -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def look(_op: Any, _w: Any) -> Fail:
        begun.set()
        await goes_on.wait()
        return Fail("no")

    watch = stage.watch(look)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await begun.wait()
        reported = await answer(stage, run, later_s=3)
        assert reported.verdict.startswith("It is being looked at just now, for 3s, on worker ")
        goes_on.set()
        await stage.ended(run)

    stage.play(scene)


@pytest.mark.parametrize(
    "memory",
    [
        "{}",
        "[]",
        "null",
        '{"run_id": 7}',
        '{"run_id": "r", "log": [{"at": 1e300, "rule": "x", "why": "y", "first_at": -1e18, "times": 3}]}',
        '{"run_id": "r", "started_at": 1e300, "confirms": {"gone": {"last_at": 1e300}}, "paused_at": -1e300}',
    ],
)
def test_rows_written_by_hand_are_told_of_all_the_same(stage: WatchStage, memory: str) -> None:
    stage.watch(every=STEADY)

    async def scene() -> None:
        store = await stage.app.store()
        [task] = await store.enqueue(
            [NewTask(name="query", kind="watch", indexed=True, key="query:r", memory=memory, once=True)]
        )
        run = await stage.app.watches.run("query", "r")
        for _ in range(3):
            assert (await answer(stage, run)).verdict
            assert (await run.info()).task_id == task.id
            async with stage.working():
                await asyncio.sleep(1)

    stage.play(scene, working=False)
