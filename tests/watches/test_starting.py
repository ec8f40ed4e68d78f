"""A start is stored as an intent, called with a key, and its handle is stored: nothing starts twice or is forgotten."""

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from everpoll import BadInput, RunFailed, RunTimedOut
from everpoll.stores.contract import TaskFilter
from everpoll.watches import Done, Fail, Started, Wait
from everpoll.watches.adapters import Refused
from watches.stage import WatchStage


@dataclass
class Order:
    sku: str
    count: int


def test_start_and_look_are_two_short_steps_and_the_first_look_comes_2_s_after_the_start(stage: WatchStage) -> None:
    remote = stage.script(status=["complete"])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({"sql": "select 1"}, id="run-42")
        assert await run.result() == "id-1"
        assert remote.times("start") == [0]
        assert [round(at, 1) for at in remote.times("status")] == [2.0]

    stage.play(scene)


def test_no_slot_is_held_while_waiting(stage: WatchStage) -> None:
    stage.script(status=["running"])
    watch = stage.whole()

    async def scene() -> None:
        for number in range(200):
            await watch.begin({}, id=f"run-{number}")
        busy = 0
        for _ in range(60):
            await asyncio.sleep(0.5)
            health = stage.app.health().worker
            assert health is not None
            busy = max(busy, health.running)
        assert busy == 0
        assert stage.remote.count("status") >= 200 * 3

    stage.play(scene)


def test_beginning_twice_is_one_run_also_after_it_has_ended(stage: WatchStage) -> None:
    remote = stage.script(status=["complete"])
    watch = stage.whole()

    async def scene() -> None:
        first = await watch.begin({}, id="run-1")
        second = await watch.begin({}, id="run-1")
        assert (first.is_new, second.is_new, second.task_id) == (True, False, first.task_id)
        await stage.ended(first)
        third = await watch.begin({}, id="run-1")
        assert (third.is_new, third.task_id) == (False, first.task_id)
        assert await third.result() == "id-1"
        assert remote.count("start") == 1

    stage.play(scene)


def test_the_next_look_redelays_the_same_row(stage: WatchStage) -> None:
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="run-1")
        await asyncio.sleep(300)
        store = await stage.app.store()
        live = [task.id for task in (await store.tasks(TaskFilter(kind="watch"))).tasks]
        assert live == [run.task_id]
        info = (await store.info([run.task_id]))[run.task_id]
        assert info.attempt <= 1, "a look costs no attempt"

    stage.play(scene)


@pytest.mark.parametrize("nothing", [None, "", "0", 0, " 0 ", "null", {}, []])
def test_ids_that_mean_none_are_not_ids(stage: WatchStage, nothing: Any) -> None:
    """NewID is "0": the handle is found by the key, stored, and then used."""
    remote = stage.script(start=[nothing], adopt=["guid-7"], status=["complete"])
    watch = stage.whole()

    @watch.adopt
    async def adopt(_op: Any, key: str) -> Any:
        return await remote.adopt(key)

    async def scene() -> None:
        run = await watch.begin({}, id="run-1")
        assert await run.result() == "guid-7"
        assert remote.count("start") == 1
        assert remote.calls[1].args == ("query:run-1",)

    stage.play(scene)


def test_without_any_id_the_run_fails_with_a_message_that_says_so(stage: WatchStage) -> None:
    stage.script(start=["0"])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="run-1")
        with pytest.raises(RunFailed, match="start returned '0', which is not a handle"):
            await run.result()

    stage.play(scene)


def test_a_missing_handle_of_an_older_run_is_looked_up_stored_and_then_used(stage: WatchStage) -> None:
    remote = stage.script(adopt=["guid-7"], status=["complete"])
    watch = stage.whole()

    @watch.adopt
    async def adopt(_op: Any, key: str) -> Any:
        return await remote.adopt(key)

    async def scene() -> None:
        task = watch.new_task({}, "run-1", "old", 0.0)
        assert task.memory is not None
        store = await stage.app.store()
        [enqueued] = await store.enqueue([_without_handle(task)])
        run = await stage.app.watches.run("query", "run-1")
        assert run.task_id == enqueued.id
        assert await run.result() == "guid-7"
        assert [call.name for call in remote.calls][:2] == ["adopt", "status"]
        assert [one.rule for one in (await run.info()).log][:1] == ["adopted"]

    stage.play(scene)


def _without_handle(task: Any) -> Any:
    memory = msgspec.json.decode(task.memory)
    del memory["handle"]
    return msgspec.structs.replace(task, memory=msgspec.json.encode(memory).decode())


def test_what_was_started_elsewhere_is_only_looked_at(stage: WatchStage) -> None:
    remote = stage.script(status=["complete"])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="run-1", handle="theirs")
        assert await run.result() == "theirs"
        assert remote.count("start") == 0

    stage.play(scene)


def test_a_start_that_fails_in_passing_is_tried_again_with_the_same_key(stage: WatchStage) -> None:
    remote = stage.script(start=[ConnectionError("gone"), TimeoutError("slow"), "id-3"], status=["complete"])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="run-1")
        assert await run.result() == "id-3"
        assert {call.args for call in remote.calls if call.name == "start"} == {("query:run-1",)}

    stage.play(scene)


def test_a_start_that_never_works_ends_with_the_budget(stage: WatchStage) -> None:
    remote = stage.script(start=[ConnectionError("gone")])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="run-1")
        with pytest.raises(RunTimedOut, match="never started: time budget of 29m is spent"):
            await run.result()
        assert stage.clock.now() == pytest.approx(29 * 60, abs=61)
        await stage.ended(run)
        assert remote.count("clean") == 1, "half a start may have left something"

    stage.play(scene)


def test_an_operation_comes_back_as_the_type_that_the_look_names(stage: WatchStage) -> None:
    seen: list[Any] = []

    async def look(op: Order, _w: Any) -> Done:
        seen.append(op)
        return Done()

    watch = stage.watch(look)

    async def scene() -> None:
        run = await watch.begin(Order("a", 3))
        await run.result()
        assert seen == [Order("a", 3)]
        with pytest.raises(BadInput, match="cannot be stored"):
            await watch.begin({"sku": 1})
        with pytest.raises(BadInput, match="cannot be stored"):
            await watch.begin(object())

    stage.play(scene)


@pytest.mark.parametrize("bad", ["", "x" * 201, "a\x00b", 7])
def test_bad_ids_are_refused(stage: WatchStage, bad: Any) -> None:
    watch = stage.whole()

    async def scene() -> None:
        with pytest.raises(BadInput, match="watch 'query': id="):
            await watch.begin({}, id=bad)

    stage.play(scene)


@pytest.mark.parametrize("said", [Done([1]), Started(None, Done([1])), Started("id-1", Done([1]))])
def test_what_ends_in_its_start_is_ready_at_once_and_cleaned_up(stage: WatchStage, said: Done | Started) -> None:
    remote = stage.script(start=[said])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="run-1")
        assert await run.result() == [1]
        assert stage.clock.now() == 0
        await stage.ended(run)
        info = await run.info()
        assert (info.outcome, info.looks) == ("ready", 0)
        handle = said.handle if isinstance(said, Started) else None
        assert [call.args for call in remote.calls if call.name == "clean"] == [(handle, "query:run-1", "ready")]
        assert (remote.count("start"), remote.count("status")) == (1, 0)

    stage.play(scene)


def test_a_start_that_says_why_it_cannot_be_fails_without_another_try(stage: WatchStage) -> None:
    remote = stage.script(start=[Fail("no such table", evidence={"code": 7})])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="run-1")
        with pytest.raises(RunFailed, match="no such table"):
            await run.result()
        assert (await run.info()).evidence == {"code": 7}
        assert remote.count("start") == 1

    stage.play(scene)


@pytest.mark.parametrize(("after", "first_s"), [("9s", 9.0), ("1s", 2.0), (None, 2.0), ("2h", 1740.0)])
def test_no_look_before_what_the_answer_to_the_start_wished(
    stage: WatchStage, after: str | None, first_s: float
) -> None:
    """A floor, as in any other answer; and clamped to the budget, as any other delay."""
    remote = stage.script(start=[Started("id-1", Wait(after, note="queued", status="202"))], status=["complete"])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="run-1")
        await asyncio.sleep(0.5)
        info = await run.info()
        assert (info.handle, info.status, info.progress) == ("id-1", "202", "queued")
        assert await run.result() == "id-1"
        assert [round(at, 1) for at in remote.times("status")] == [first_s]

    stage.play(scene)


def test_what_ended_in_its_start_teaches_nothing_about_when_to_look(stage: WatchStage) -> None:
    stage.script(start=[Done(1)])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="run-1")
        await run.result()
        await stage.ended(run)
        [result] = await (await stage.app.store()).last_results("watch", "query")
        assert result.get("span") is None

    stage.play(scene)


def test_a_start_whose_words_make_no_sense_is_told_so() -> None:
    with pytest.raises(BadInput, match=r"write Done\(…\), Fail\(…\) or Wait\(…\) after the handle"):
        Started("id-1", "10s")  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (None, "start returned None, which is not a handle"),
        (Started(None), "start returned None, which is not a handle"),
        ("x" * 1_000_001, "it was started, and its answer cannot be stored: .* bytes, more than 1,000,000"),
        (Started("id-1", Done(float("nan"))), "it was started, and its answer cannot be stored: .* does not know nan"),
    ],
)
def test_what_may_have_been_started_is_not_started_again_for_an_answer_that_is_of_no_use(
    stage: WatchStage, said: Any, answer: str
) -> None:
    stage.script(start=[said])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="run-1")
        with pytest.raises(RunFailed, match=f"start failed: {answer}"):
            await run.result()
        assert stage.remote.count("start") == 1

    stage.play(scene)


def test_what_an_adapter_refuses_is_not_tried_again(stage: WatchStage) -> None:
    stage.script(start=[Refused("it answered 202 and does not say where to look")])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="run-1")
        with pytest.raises(RunFailed, match="does not say where to look"):
            await run.result()
        assert stage.remote.count("start") == 1

    stage.play(scene)
