"""Looks that raise: transient errors are tried again, fatal ones fail the run; a remote that is down is not asked."""

import asyncio
import logging
from typing import Any

import pytest

from everpoll import Backoff, Breaker, Budget, Rate, RunFailed, RunTimedOut
from everpoll.watches import Done, Wait
from everpoll.watches.faults import fault_of, status_of
from watches.stage import WatchStage


class HttpError(Exception):
    """As clients raise it: the response hangs on the error."""

    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"HTTP {status}")
        self.response = type("Response", (), {"status_code": status, "headers": headers or {}})()


def test_a_network_error_is_a_warning_a_delay_and_counts_against_the_budget(
    stage: WatchStage, caplog: pytest.LogCaptureFixture
) -> None:
    remote = stage.script(status=[ConnectionError("gone")] * 3 + ["complete"])
    watch = stage.whole()
    timeline = stage.timeline(watch)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        assert await run.result() == "id-1"
        info = await run.info()
        assert (info.looks, info.errors, remote.count("status")) == (4, 3, 4)
        assert timeline.waits("r") == [2, 4, 8, 16]

    with caplog.at_level(logging.WARNING, "everpoll.watches"):
        stage.play(scene)
    assert sum("look failed (transient): ConnectionError: gone" in one.message for one in caplog.records) == 3


def test_errors_for_ever_end_with_the_budget(stage: WatchStage) -> None:
    stage.script(status=[TimeoutError("slow")])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        with pytest.raises(RunTimedOut, match="29m"):
            await run.result()

    stage.play(scene)


def test_a_secondary_check_that_fails_is_gone_without(stage: WatchStage) -> None:
    remote = stage.script(status=["running", "complete"], extra=[ConnectionError("gone")])

    async def look(_op: Any, w: Any) -> Any:
        extra = await w.attempt(remote.extra)
        assert extra is None
        return Done() if await remote.status() == "complete" else Wait()

    watch = stage.watch(look)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await run.result()
        info = await run.info()
        assert (info.errors, info.counters["attempt:extra"], info.counters["attempt failed:extra"]) == (0, 2, 2)

    stage.play(scene)


def test_after_a_crash_in_a_look_another_worker_resumes_where_the_stored_state_was(stage: WatchStage) -> None:
    """Killed in the middle: see test_explore for every point of it. Here: a worker that ends, and a new one."""
    remote = stage.script(status=["running"] * 6 + ["complete"])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        async with stage.working():
            await asyncio.sleep(20)
        async with stage.working():
            await stage.ended(run)
        assert await run.result() == "id-1"
        assert remote.count("start") == 1

    stage.play(scene, working=False)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422])
def test_an_answer_that_will_not_get_better_fails_at_once(stage: WatchStage, status: int) -> None:
    stage.script(status=[HttpError(status)])
    watch = stage.whole()

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        with pytest.raises(RunFailed, match=f"look failed: HttpError: HTTP {status}"):
            await run.result()

    stage.play(scene)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_an_answer_that_may_get_better_is_waited_for(stage: WatchStage, status: int) -> None:
    stage.script(status=[HttpError(status), "complete"])
    watch = stage.whole()

    async def scene() -> None:
        assert await (await watch.begin({}, id="r")).result() == "id-1"

    stage.play(scene)


def test_retry_after_is_a_floor_with_jitter_only_upward(stage: WatchStage) -> None:
    stage.script(status=[HttpError(429, {"retry-after": "50"}), HttpError(503, {"retry-after": "1"}), "complete"])
    watch = stage.whole()
    timeline = stage.timeline(watch)

    async def scene() -> None:
        await (await watch.begin({}, id="r")).result()
        _, first, second = timeline.waits("r")
        assert 50 <= first <= 55
        assert second == 8, "a floor below the cadence changes nothing"
        assert timeline.rules("r")[1] == "retry-after"

    stage.play(scene)


def test_a_bug_in_the_look_is_tried_again_but_not_for_ever(stage: WatchStage) -> None:
    async def look(_op: Any, _w: Any) -> Any:
        raise KeyError("typo")

    watch = stage.watch(look)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        with pytest.raises(RunFailed, match="look failed 5 times in a row: KeyError: 'typo'") as raised:
            await run.result()
        assert "Traceback" in str(raised.value.evidence)
        assert (await run.info()).looks == 5

    stage.play(scene)


def test_users_extend_the_rules(stage: WatchStage) -> None:
    class Busy(Exception):
        pass

    class Denied(OSError):
        pass

    stage.script(status=[Busy("busy")] * 8 + [Denied("denied")])
    watch = stage.whole(transient=(Busy,), fatal=(Denied,))

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        with pytest.raises(RunFailed, match="Denied: denied"):
            await run.result()
        assert (await run.info()).looks == 9

    stage.play(scene)
    assert fault_of(Busy(), (lambda _: "fatal",)) == "fatal"
    assert fault_of(Busy(), (lambda _: None,)) == "unexpected"


def test_a_look_that_hangs_is_ended_by_its_timeout_and_looked_again(stage: WatchStage) -> None:
    async def look(_op: Any, w: Any) -> Any:
        if w.looks == 1:
            await asyncio.sleep(3600)
        return Done()

    watch = stage.watch(look, timeout="10s")

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await run.result()
        assert (await run.info()).errors == 1
        assert 10 <= stage.clock.now() <= 15

    stage.play(scene)


def test_an_outage_of_the_remote_rests_all_runs_and_burns_no_budget(stage: WatchStage) -> None:
    """20 runs, down for an hour, budget 10 min: one probe a cooldown, and all of them end well."""
    calls: list[float] = []

    async def look(_op: Any, _w: Any) -> Done:
        calls.append(stage.clock.now())
        if stage.clock.now() < 3600:
            raise ConnectionError("down")
        return Done()

    every = Backoff("2s", cap="30s", jitter=0)
    watch = stage.watch(look, budget=Budget("10m"), breaker=Breaker(5, "1m"), every=every, outage_budget="1d")

    async def scene() -> None:
        runs = [await watch.begin({}, id=f"r{number}") for number in range(20)]
        for run in runs:
            await run.result()
        while_down = [at for at in calls if at < 3600]
        assert len(while_down) <= 20 + 2 * 60
        assert stage.clock.now() < 3600 + 200
        for run in runs:
            info = await run.info()
            assert info.elapsed_s is not None
            assert info.elapsed_s < 600
        assert watch.counters["postponed:breaker"] > 20

    stage.play(scene)


def test_an_outage_burns_the_budget_where_the_user_says_so(stage: WatchStage) -> None:
    stage.script(status=[ConnectionError("down")])
    watch = stage.whole(budget=Budget("10m"), breaker=Breaker(5, "1m"), outage="burn")

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        with pytest.raises(RunTimedOut):
            await run.result()
        assert stage.clock.now() == pytest.approx(600, abs=10)

    stage.play(scene)


def test_each_remote_has_its_own_rate(stage: WatchStage) -> None:
    looks: dict[str, list[float]] = {"a": [], "b": []}

    async def look(op: Any, _w: Any) -> Done:
        looks[op["tenant"]].append(stage.clock.now())
        return Done()

    watch = stage.watch(look, remote=lambda op: op["tenant"], rate=Rate(2, per="1s"))

    async def scene() -> None:
        runs = [await watch.begin({"tenant": tenant}) for tenant in "aabab" * 8]
        for run in runs:
            await run.result()
        for times in looks.values():
            assert len(times) >= 16
            for index in range(len(times) - 4):
                assert times[index + 4] - times[index] >= 0.95, "never more than 2 a second, and 2 saved"
        assert max(looks["b"]) < max(looks["a"]), "who has less to do is not held up by who has more"

    stage.play(scene)


def test_statuses_are_found_in_errors_of_any_client() -> None:
    plain = type("ApiError", (Exception,), {"status": 503})()
    coded = type("UrlError", (Exception,), {"code": 429})()
    assert [status_of(one) for one in (HttpError(418), plain, coded, ValueError("x"))] == [418, 503, 429, None]
    assert [fault_of(one) for one in (HttpError(418), plain, coded, ValueError("x"), OSError())] == [
        "fatal",
        "transient",
        "transient",
        "unexpected",
        "transient",
    ]
