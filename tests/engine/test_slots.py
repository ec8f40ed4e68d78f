"""A bounded pool that never claims more than it can run, and several kinds of work in one queue."""

import asyncio
import contextvars

import pytest

from engine.engine_stage import EngineStage, whats
from everpoll.engine import pool as pool_module
from everpoll.engine.options import WorkerOptions
from everpoll.engine.pool import Pool
from everpoll.engine.work import Run, StopReason, Work
from everpoll.stores.contract import LEASE_LIMIT, Again, Ended, Lease, NewTask, Settlement


def test_it_never_leases_more_than_it_has_free_slots(stage: EngineStage) -> None:
    job = stage.handler(takes_s=10)

    async def scene() -> None:
        await stage.put(20)
        async with stage.working(slots=3):
            await stage.clock.advance(35)
        assert (len(job.at), job.most_at_once) == (12, 3)
        leased = 0
        for look in stage.store.looks:
            assert look.found <= look.most <= 3
            leased += look.found
        assert leased == 12

    stage.play(scene)


def test_fifty_slots_by_default() -> None:
    assert WorkerOptions().slots == 50


def test_one_statement_leases_at_most_the_limit(stage: EngineStage) -> None:
    stage.handler(takes_s=10)

    async def scene() -> None:
        await stage.put(LEASE_LIMIT * 2)
        async with stage.working(slots=LEASE_LIMIT * 4):
            await stage.clock.advance(1)
        assert [look.most for look in stage.store.looks] == [LEASE_LIMIT] * 3

    stage.play(scene)


def test_each_queue_has_its_own_slots_and_a_slot_that_becomes_free_is_used_at_once(stage: EngineStage) -> None:
    narrow = stage.handler("narrow", takes_s=10, queue="narrow")
    wide = stage.handler("wide", takes_s=10, queue="wide")

    async def scene() -> None:
        await stage.put(4, name="narrow", queue="narrow")
        await stage.put(4, name="wide", queue="wide")
        async with stage.working(slots=10, queues={"narrow": 1, "wide": 3}):
            await stage.clock.advance(31)
        assert narrow.most_at_once == 1
        assert wide.most_at_once == 3
        assert narrow.at == [0, 10, 20, 30]
        assert wide.at == [0, 0, 0, 10]

    stage.play(scene)


def test_slots_over_all_queues_bound_the_queues_together(stage: EngineStage) -> None:
    first = stage.handler("a", takes_s=10, queue="a")
    second = stage.handler("b", takes_s=10, queue="b")

    async def scene() -> None:
        await stage.put(3, name="a", queue="a")
        await stage.put(3, name="b", queue="b")
        async with stage.working(slots=2, queues={"a": 2, "b": 2}):
            await stage.clock.advance(1)
            assert first.under_way + second.under_way == 2

    stage.play(scene)


def test_a_queue_that_is_full_costs_no_looks_while_it_is(stage: EngineStage) -> None:
    stage.handler(takes_s=600)

    async def scene() -> None:
        await stage.put(3)
        async with stage.working(queues={"default": 1}):
            await stage.clock.advance(500)
            assert len(stage.store.looks) == 1

    stage.play(scene)


def test_only_the_queues_named_are_served(stage: EngineStage) -> None:
    job = stage.handler()
    stage.handler("other", queue="other")

    async def scene() -> None:
        await stage.put(2)
        await stage.put(2, name="other", queue="other")
        async with stage.working(queues={"default": 5}):
            await stage.clock.advance(100)
        assert len(job.at) == 2
        assert {queue for look in stage.store.looks for queue in look.rooms} == {"default"}

    stage.play(scene)


def test_several_kinds_in_one_queue_are_told_apart_by_name(stage: EngineStage) -> None:
    red, blue = stage.handler("red"), stage.handler("blue")

    async def scene() -> None:
        await stage.store.enqueue([NewTask(name=name) for name in ("red", "blue", "red")])
        async with stage.working():
            await stage.clock.advance(1)
        assert (red.ids, blue.ids) == ([1, 3], [2])

    stage.play(scene)


def test_an_unknown_name_fails_clearly_and_at_once(stage: EngineStage) -> None:
    stage.handler("audit")
    stage.handler("sweep")

    async def scene() -> None:
        task_id = await stage.put_one(name="adit")
        async with stage.working():
            await stage.clock.advance(1)
        info = await stage.show(task_id)
        assert (info.state, whats(info)) == ("failed", ["failed"])
        [error] = info.errors
        assert error["error"] == (
            "no job called 'adit' is registered in this worker; registered: audit, sweep. If another app has it, give "
            "the two apps queues of their own in place of 'default'"
        )
        assert error["type"] == "JobNotFound"

    stage.play(scene)


def test_a_work_that_breaks_inside_everpoll_fails_its_task_and_frees_its_slot(stage: EngineStage) -> None:
    async def broken(_run: object) -> object:
        raise LookupError("a bug of ours")

    stage.works.add(Work("job", "default", broken))  # type: ignore[arg-type]

    async def scene() -> None:
        ids = await stage.put(3)
        async with stage.working(slots=1):
            await stage.clock.advance(1)
            infos = [await stage.show(task_id) for task_id in ids]
        assert [info.state for info in infos] == ["failed"] * 3
        assert infos[0].errors[0]["error"] == "LookupError: a bug of ours"

    stage.play(scene)


@pytest.mark.parametrize(("reason", "kind"), [(StopReason.FENCED, Again), (StopReason.CANCELED, Ended)])
def test_a_handler_stopped_before_its_first_step_does_not_run_and_frees_its_slot(
    stage: EngineStage, reason: StopReason, kind: type
) -> None:
    job = stage.handler()

    async def scene() -> None:
        settled: list[Settlement] = []
        freed: list[str] = []
        pool = Pool(stage.works, 5, lambda _incarnation, settlement, *_: settled.append(settlement), freed.append)
        pool.start([Lease(1, 1, 1, "job", "default", "null")], incarnation=9)
        pool.stop(reason)
        await asyncio.sleep(0)
        assert (len(pool), pool.free, pool.running_by_queue(), freed) == (0, 5, {}, ["default"])
        assert [type(one) for one in settled] == [kind]
        assert job.runs == []

    stage.play(scene)


def test_a_run_yields_one_settlement_even_if_it_was_abandoned_and_ends_later(stage: EngineStage) -> None:
    job = stage.handler(takes_s=10)

    async def scene() -> None:
        settled: list[Settlement] = []
        pool = Pool(stage.works, 5, lambda _incarnation, settlement, *_: settled.append(settlement))
        pool.start([Lease(1, 1, 1, "job", "default", "null")], incarnation=9)
        await stage.clock.advance(1)
        assert pool.abandon() == [1]
        await stage.clock.advance(20)
        assert (job.under_way, job.canceled) == (0, [])  # it has ended by itself meanwhile
        assert [type(one) for one in settled] == [Again]

    stage.play(scene)


def test_more_settlements_than_the_poller_waits_for_do_not_leave_it_waiting_for_ever(stage: EngineStage) -> None:
    """The handlers have all ended, the store is slow to settle: no slot will become free, but the backlog shrinks."""
    job = stage.handler()
    stage.store.takes_s["settle"] = 1.0

    async def scene() -> None:
        await stage.put(4_000)
        async with stage.working(slots=2_000):
            await stage.clock.advance(60)
        assert len(job.at) == 4_000
        assert max(len(batch) for batch in stage.store.settles) <= LEASE_LIMIT

    stage.play(scene)


VARIABLE: contextvars.ContextVar[object] = contextvars.ContextVar("VARIABLE", default="nothing")


class Unequal:
    def __eq__(self, other: object) -> bool:
        raise ValueError("an array has no truth value")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("value", ["mine", Unequal()], ids=["text", "a value that cannot be compared"])
def test_no_run_sees_the_context_variables_of_another(stage: EngineStage, value: object) -> None:
    seen: list[object] = []

    async def run(run: Run) -> Settlement:
        seen.append(VARIABLE.get())
        VARIABLE.set(value)
        if run.lease.id % 2:
            await asyncio.sleep(1)
            seen.append("nothing" if VARIABLE.get() is value else "another value")
        return Ended(run.lease.id, run.lease.sequence)

    stage.works.add(Work("job", "default", run))

    async def scene() -> None:
        pool = Pool(stage.works, 50, lambda *_: None)
        pool.start([Lease(number, 1, 1, "job", "default", "null") for number in range(20)], incarnation=9)
        await stage.clock.advance(2)
        assert (len(pool), seen) == (0, ["nothing"] * 30)

    stage.play(scene)


def test_runs_inherit_the_context_that_the_worker_was_started_in(stage: EngineStage) -> None:
    seen: list[object] = []

    async def run(run: Run) -> Settlement:
        seen.append(VARIABLE.get())
        return Ended(run.lease.id, run.lease.sequence)

    stage.works.add(Work("job", "default", run))

    async def scene() -> None:
        token = VARIABLE.set("from outside")
        pool = Pool(stage.works, 50, lambda *_: None)
        VARIABLE.reset(token)
        pool.start([Lease(number, 1, 1, "job", "default", "null") for number in range(3)], incarnation=9)
        await stage.clock.advance(1)
        assert seen == ["from outside"] * 3

    stage.play(scene)


def test_a_cancellation_that_a_run_leaves_behind_hits_no_other(stage: EngineStage) -> None:
    settled: list[Settlement] = []

    async def run(run: Run) -> Settlement:
        task = asyncio.current_task()
        assert task is not None
        if run.lease.id == 0:
            task.cancel()  # and ends before it is delivered
        else:
            await asyncio.sleep(0)
        return Ended(run.lease.id, run.lease.sequence)

    stage.works.add(Work("job", "default", run))

    async def scene() -> None:
        pool = Pool(stage.works, 50, lambda _incarnation, settlement, *_: settled.append(settlement))
        pool.start([Lease(number, 1, 1, "job", "default", "null") for number in range(4)], incarnation=9)
        await stage.clock.advance(1)
        assert [(one.id, type(one)) for one in settled] == [(number, Ended) for number in range(4)]

    stage.play(scene)


def test_runs_that_suspend_have_a_task_of_their_own_and_only_the_one_meant_is_canceled(stage: EngineStage) -> None:
    tasks: dict[int, object] = {}
    settled: dict[int, Settlement] = {}

    async def run(run: Run) -> Settlement:
        tasks[run.lease.id] = asyncio.current_task()
        await asyncio.sleep(10)
        assert asyncio.current_task() is tasks[run.lease.id]
        return Ended(run.lease.id, run.lease.sequence)

    stage.works.add(Work("job", "default", run))

    async def scene() -> None:
        pool = Pool(stage.works, 50, lambda _incarnation, one, *_: settled.update({one.id: one}))
        pool.start([Lease(number, 1, 1, "job", "default", "null") for number in range(8)], incarnation=9)
        await stage.clock.advance(1)
        assert len(set(tasks.values())) == 8
        pool.stop(StopReason.CANCELED, [3])
        await stage.clock.advance(1)
        assert list(settled) == [3]
        pool.start([Lease(8, 1, 1, "job", "default", "null")], incarnation=9)
        await stage.clock.advance(30)
        states = {number: getattr(one, "state", None) for number, one in settled.items()}
        assert states == {number: "canceled" if number == 3 else "done" for number in range(9)}
        assert len(set(tasks.values())) == 9, "a carrier that has suspended takes nothing else"

    stage.play(scene)


def test_a_carrier_whose_time_is_up_lets_the_rest_of_the_event_loop_have_its_turn(
    stage: EngineStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "CARRY_S", -1.0)
    order: list[str] = []

    async def run(run: Run) -> Settlement:
        order.append("run")
        asyncio.get_running_loop().call_soon(order.append, "other")
        return Ended(run.lease.id, run.lease.sequence)

    stage.works.add(Work("job", "default", run))

    async def scene() -> None:
        pool = Pool(stage.works, 50, lambda *_: None)
        pool.start([Lease(number, 1, 1, "job", "default", "null") for number in range(3)], incarnation=9)
        await stage.clock.advance(1)
        assert order == ["run", "run", "other", "run", "other", "other"]

    stage.play(scene)


def test_a_store_with_a_thread_of_its_own_has_its_turn_in_the_middle_of_many_runs(stage: EngineStage) -> None:
    job = stage.handler()
    turns: list[int] = []
    stage.store.yield_to_thread = lambda: turns.append(len(job.at))  # type: ignore[assignment]  # this store has none

    async def scene() -> None:
        await stage.put(200)
        async with stage.working(slots=500):
            await stage.clock.advance(1)
        assert turns == [50, 100, 150, 200]

    stage.play(scene)
