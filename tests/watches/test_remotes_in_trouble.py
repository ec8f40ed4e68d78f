"""Rates and breakers hold for runs without time left, batched looks, canceled probes and clocks that are set back."""

import asyncio
from typing import Any

import pytest

from everpoll import Breaker, Budget, Rate
from everpoll.watches import Done, Wait
from everpoll.watches.remotes import REMOTES_LIMIT, Remotes
from watches.stage import WatchStage


def test_who_comes_too_late_for_the_rate_takes_no_turn_from_others(stage: WatchStage) -> None:
    """200 runs at once with time for six of them: a run that comes later is looked at without delay."""
    remote = stage.script(status=["running"])
    watch = stage.watch(every="1s", rate=Rate(1, per="1s"), budget=Budget("5s"))

    async def scene() -> None:
        for number in range(200):
            await watch.begin({}, id=str(number))
        await asyncio.sleep(20)
        before = remote.count("status")
        late = await watch.begin({}, id="late")
        await asyncio.sleep(3)
        assert remote.count("status") > before
        assert (await late.info()).looks > 0

    stage.play(scene)


def test_starts_keep_to_the_rate(stage: WatchStage) -> None:
    remote = stage.script()
    watch = stage.whole(rate=Rate(2, per="1s"))

    async def scene() -> None:
        for number in range(40):
            await watch.begin({}, id=str(number))
        await asyncio.sleep(1.5)
        assert remote.count("start") <= 6

    stage.play(scene)


def test_starts_and_looks_together_keep_to_the_rate(stage: WatchStage) -> None:
    """The turn that a start had waited for is used up by it."""
    remote = stage.script()
    watch = stage.whole(every="2s", rate=Rate(1, per="1s"), budget=Budget("1h"))

    async def scene() -> None:
        for number in range(20):
            await watch.begin({}, id=str(number))
        await asyncio.sleep(60)
        assert len(remote.calls) <= 62
        assert remote.count("start") == 20

    stage.play(scene)


def test_while_the_breaker_is_open_nothing_is_started_and_no_time_is_burnt(stage: WatchStage) -> None:
    is_down = True

    def start(_key: str) -> str:
        if is_down:
            raise ConnectionError("down")
        return "id-1"

    remote = stage.script(start=start, status=["complete"])
    watch = stage.whole(breaker=Breaker(3, "5m"), budget=Budget("2m"), outage_budget="2h")

    async def scene() -> None:
        nonlocal is_down
        runs = [await watch.begin({}, id=str(number)) for number in range(50)]
        await asyncio.sleep(3600)
        # Those that were under way together, and then one probe each cooldown.
        assert remote.count("start") <= 50 + 3600 / 300 + 1
        is_down = False
        for run in runs:
            assert await run.result() == "id-1"

    stage.play(scene)


def test_cancel_and_cleanup_leave_a_remote_alone_that_is_known_to_be_away(stage: WatchStage) -> None:
    remote = stage.script(status=["running", ConnectionError("down")], cancel=[ConnectionError("down")])
    watch = stage.whole(breaker=Breaker(1, "5m"), cancel_budget="1h")

    async def scene() -> None:
        runs = [await watch.begin({}, id=str(number), handle="id-7") for number in range(20)]
        await asyncio.sleep(30)
        for run in runs:
            await run.cancel()
        await asyncio.sleep(600)
        assert remote.count("cancel") <= 20 * 4

    stage.play(scene)


def test_a_cancel_that_sends_nothing_waits_for_no_breaker_and_closes_none(stage: WatchStage) -> None:
    remote = stage.script(status=[ConnectionError("down")])
    watch = stage.watch(breaker=Breaker(1, "5m"), budget=Budget("1h"))

    async def scene() -> None:
        first, second = [await watch.begin({}, id=name, handle="id-7") for name in ("first", "second")]
        await asyncio.sleep(10)
        looked = remote.count("status")
        await first.cancel()
        await asyncio.sleep(1)
        assert await stage.outcome(first) == "canceled"
        await watch.begin({}, id="third", handle="id-7")
        await asyncio.sleep(60)
        assert remote.count("status") == looked, "the breaker is open as before"
        assert await stage.outcome(second) is None

    stage.play(scene)


def test_a_rule_of_the_user_is_asked_once_for_each_error(stage: WatchStage) -> None:
    asked: list[BaseException] = []
    stage.script(status=[ConnectionError("down"), "complete"])
    watch = stage.watch(classify=asked.append, breaker=Breaker(5, "5m"))

    async def scene() -> None:
        await (await watch.begin({}, id="r", handle="id-7")).result()
        assert len(asked) == 1

    stage.play(scene)


def test_a_call_for_many_that_fails_has_failed_once(stage: WatchStage) -> None:
    answers: list[Any] = [ConnectionError("once")]
    watch = stage.watch(lambda _op: None, every="2s", breaker=Breaker(10, "5m"), budget=Budget("1h"))

    @watch.look_many
    async def look_many(runs: list[Any]) -> list[Any]:
        if answers:
            raise answers.pop()
        return [Done() for _ in runs]

    async def scene() -> None:
        runs = [await watch.begin({}, id=str(number)) for number in range(20)]
        for run in runs:
            await run.result()
        assert stage.clock.now() < 10

    stage.play(scene)


def test_a_probe_that_is_canceled_holds_up_no_other(stage: WatchStage) -> None:
    is_hanging = False
    is_down = True
    calls = 0

    async def look(_op: Any) -> Any:
        nonlocal calls
        calls += 1
        if is_hanging:
            await asyncio.sleep(59)
        if is_down:
            raise ConnectionError("down")
        return Done()

    watch = stage.watch(look, every="2s", breaker=Breaker(1, "1m"), budget=Budget("1h"))

    async def scene() -> None:
        nonlocal is_hanging, is_down
        first = await watch.begin({}, id="first")
        await asyncio.sleep(1)
        is_hanging, is_down = True, False
        await asyncio.sleep(90)
        assert calls == 2, "the probe is under way"
        await first.cancel()
        await asyncio.sleep(1)
        is_hanging = False
        began = stage.clock.now()
        await (await watch.begin({}, id="second")).result()
        assert stage.clock.now() - began < 5

    stage.play(scene)


def test_a_wish_of_a_remote_in_trouble_is_heard_within_the_budget_only(stage: WatchStage) -> None:
    class Busy(ConnectionError):
        retry_after = 86_400

    verdicts: list[Any] = [Busy("503"), Done()]

    async def look(_op: Any) -> Any:
        said = verdicts.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    watch = stage.watch(look, breaker=Breaker(1, "5m"), budget=Budget("29m"))

    async def scene() -> None:
        await (await watch.begin({}, id="r")).result()
        assert stage.clock.now() < 3600

    stage.play(scene)


def test_a_clock_that_is_set_back_freezes_no_remote() -> None:
    remotes = Remotes(Rate(1, per="1m"), Breaker(1, "5m"), lambda: 0.0)
    day_s = 86_400.0
    assert remotes.admit("a", 10 * day_s) is None
    remotes.failed("a", 10 * day_s)
    resting = remotes.admit("a", 9 * day_s)
    assert resting is not None
    assert resting.wait_s < 600
    assert remotes.admit("a", 9 * day_s + 301) is None
    remotes.answered("a")
    waiting = remotes.admit("a", 9 * day_s + 302)
    assert waiting is None or waiting.wait_s < 120


def test_many_remotes_do_not_push_out_the_ones_in_trouble() -> None:
    remotes = Remotes(None, Breaker(1, "5m"), lambda: 0.0)
    remotes.failed("broken", 0.0)
    for number in range(REMOTES_LIMIT + 50):
        remotes.admit(f"r{number}", 1.0)
        remotes.answered(f"r{number}")
    assert remotes.admit("broken", 2.0) is not None


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), KeyError("x")])
def test_a_round_that_fails_in_any_way_is_made_again(stage: WatchStage, error: BaseException) -> None:
    rounds = 0
    watch = stage.watch()

    @watch.ensure(every="1m")
    async def rows() -> list[Any]:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise error
        return [({}, "r")]

    async def scene() -> None:
        await asyncio.sleep(300)
        assert rounds >= 4
        assert (await (await stage.app.watches.run("query", "r")).info()).looks > 0

    stage.play(scene)


def test_a_round_that_hangs_is_given_up(stage: WatchStage) -> None:
    rounds = 0
    watch = stage.watch()

    @watch.ensure(every="1m")
    async def rows() -> list[Any]:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            await asyncio.sleep(1e9)
        return []

    async def scene() -> None:
        await asyncio.sleep(3600)
        assert rounds > 10

    stage.play(scene)


def test_many_rows_without_a_run_get_theirs_in_few_statements(
    stage: WatchStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = stage.watch(lambda _op: Wait("1h"), budget=Budget("1d"))
    statements = 0

    @watch.ensure(every="1h")
    async def rows() -> list[Any]:
        return [({}, str(number)) for number in range(2_000)]

    async def scene() -> None:
        store = await stage.app.store()
        enqueue = store.enqueue

        async def counted(tasks: Any) -> Any:
            nonlocal statements
            statements += 1
            return await enqueue(tasks)

        monkeypatch.setattr(store, "enqueue", counted)
        async with stage.app:
            await asyncio.sleep(30)
        assert watch.counters["repairs"] == 2_000
        assert statements < 20

    stage.play(scene, working=False)
