"""Whatever the worker is doing when a run is canceled, the remote is asked to cancel."""

import asyncio
from typing import Any

import pytest

from everpoll import RunCanceled
from everpoll.engine.pool import Pool
from everpoll.engine.work import StopReason, Work, WorkRegistry
from everpoll.stores.contract import Again, Lease, Settlement
from everpoll.testing import ScriptedRemote
from everpoll.watches import Done, Learned, Wait
from watches.stage import DOCUMENT, WatchStage


async def test_a_run_that_waits_for_its_turn_is_handed_back_and_not_ended() -> None:
    """Leased, and not begun, when the request comes: only its next lease can tell it."""
    settled: list[Settlement] = []
    works = WorkRegistry()

    async def busy(_run: Any) -> Settlement:
        raise AssertionError("never begun")

    works.add(Work("query", "default", busy, handles_cancel=True))
    pool = Pool(works, 5, lambda _incarnation, settlement, *_: settled.append(settlement))
    pool.start([Lease(7, 3, 1, "query", "default", "null")], 1)
    pool.stop(StopReason.CANCELED, [7])
    assert settled == [Again(7, 3, 0.0, refund=True)]


async def test_a_start_that_outlasts_the_shutdown_after_a_cancel_is_handed_back_and_not_ended() -> None:
    settled: list[Settlement] = []
    works, begun = WorkRegistry(), asyncio.Event()

    async def stubborn(_run: Any) -> Settlement:
        begun.set()
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                if leave.is_set():
                    raise

    leave = asyncio.Event()
    works.add(Work("query", "default", stubborn, handles_cancel=True))
    pool = Pool(works, 5, lambda _incarnation, settlement, *_: settled.append(settlement))
    pool.start([Lease(7, 3, 1, "query", "default", "null")], 1)
    await begun.wait()
    pool.stop(StopReason.CANCELED, [7])
    await asyncio.sleep(0)
    pool.abandon()
    assert settled == [Again(7, 3, 0.0, refund=True)]
    leave.set()


def test_a_cancel_while_its_worker_reads_what_earlier_runs_took_is_told_to_the_remote(stage: WatchStage) -> None:
    remote = stage.script(status=["running", "complete"])
    watch = stage.with_cleanup(stage.with_cancel(stage.with_start(stage.watch(every=Learned(DOCUMENT)))))
    reading = asyncio.Event()

    async def scene() -> None:
        store: Any = await stage.app.store()

        async def slow(*_: Any) -> list[Any]:
            reading.set()
            await asyncio.sleep(20)
            return []

        async with stage.working():
            run = await watch.begin({}, id="r")
            await asyncio.sleep(1)
            stage.runtime(watch)._learned_at = None
            store.last_results = slow
            await reading.wait()
            await run.cancel()
            with pytest.raises(RunCanceled, match="the remote has ended"):
                await run.result()
            await stage.ended(run)
        assert (remote.count("cancel"), remote.count("clean")) == (1, 1)

    stage.play(scene, working=False)


class Slow:
    """A watch whose function of that phase takes a while."""

    def __init__(self, stage: WatchStage, phase: str) -> None:
        self.remote: ScriptedRemote = stage.script(status=self.status)
        self.begun = asyncio.Event()
        self._phase = phase
        self.watch = stage.with_cancel(stage.watch(self.look))
        self.watch.start(self.start)
        self.watch.verify("rows")(self.rows)
        self.watch.cleanup(self.cleanup)

    def status(self, _handle: Any) -> str:
        return "complete" if self.remote.count("cancel") else "running"

    async def _during(self, phase: str) -> None:
        if phase == self._phase:
            self.begun.set()
            await asyncio.sleep(5)

    async def start(self, _op: Any, key: str) -> Any:
        await self._during("starting")
        return await self.remote.start(key)

    async def look(self, _op: Any, w: Any) -> Any:
        await self._during("canceling" if w.is_canceling else "looking")
        if await self.remote.status(w.handle) == "complete" or self._phase in {"cleaning", "ended"}:
            return Done()
        return w.verify("rows") if self._phase == "verifying" else Wait()

    async def rows(self, _op: Any) -> bool:
        await self._during("verifying")
        return False

    async def cleanup(self, _op: Any, key: str, outcome: str) -> None:
        await self._during("cleaning")
        await self.remote.clean(key, outcome)


@pytest.mark.parametrize("phase", ["starting", "looking", "verifying", "canceling", "cleaning", "ended"])
def test_canceled_in_each_phase_and_twice(stage: WatchStage, phase: str) -> None:
    """The request comes in the middle of it, and once more a little later."""
    slow = Slow(stage, phase)
    remote = slow.remote

    async def scene() -> None:
        run = await slow.watch.begin({}, id="r")
        if phase == "canceling":
            await asyncio.sleep(3)
            assert await run.cancel()
        await (stage.ended(run) if phase == "ended" else slow.begun.wait())
        asked = await run.cancel()
        await asyncio.sleep(0.5)
        again = await run.cancel()
        await stage.ended(run)
        outcome = await stage.outcome(run)
        if phase in {"cleaning", "ended"}:
            assert (outcome, asked, again, remote.count("cancel")) == ("ready", False, False, 0)
        else:
            assert (outcome, asked, remote.count("cancel")) == ("canceled", True, 1)
        assert remote.count("start") == 1
        assert [call.args for call in remote.calls if call.name == "clean"] == [("query:r", outcome)]
        assert stage.clock.now() < 60

    stage.play(scene)


def test_the_reason_of_a_cancel_is_kept_within_bounds(stage: WatchStage) -> None:
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r", delay="1h")
        await run.cancel("half \ud800, nul \x00, " + "x" * 1_000_000)
        with pytest.raises(RunCanceled):
            await run.result()
        store = await stage.app.store()
        reason = (await store.info([run.task_id]))[run.task_id].cancel_reason
        assert reason.startswith("half \\ud800, nul \\x00, xxx")
        assert len(reason) == 2_000

    stage.play(scene)


def test_a_cancel_of_a_parked_run_waits_for_its_code(stage: WatchStage) -> None:
    """What cannot be told to the remote is not called canceled."""
    remote = stage.script(status=["running", "complete"])
    watch = stage.with_cleanup(stage.with_cancel(stage.with_start(stage.watch(version=2))))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        async with stage.working():
            await asyncio.sleep(1)
        object.__setattr__(watch.policy, "version", 3)
        async with stage.working():
            await run.cancel()
            await asyncio.sleep(1000)
            info = await run.info()
            assert (info.phase, info.outcome, remote.count("cancel")) == ("needs_code", None, 0)
            object.__setattr__(watch.policy, "version", 2)
            with pytest.raises(RunCanceled):
                await run.result()
        assert remote.count("cancel") == 1

    stage.play(scene, working=False)
