"""The row of a run stays bounded, whatever its functions write: it is written with every look."""

from typing import Any

import pytest

from everpoll import Backoff, Budget, RunFailed
from everpoll.watches import Done, Fail, Wait
from everpoll.watches.limits import MEMORY_LIMIT, NAMES_LIMIT, PAYLOAD_LIMIT, ROW_LIMIT
from watches.stage import WatchStage

LONG = "ä" * 100_000


class Talkative(Exception):
    def __str__(self) -> str:
        return LONG


def test_the_worst_row_that_functions_can_make_has_a_size(stage: WatchStage) -> None:
    sizes: list[int] = []

    async def long_name() -> None:
        raise Talkative

    long_name.__name__ = LONG

    async def look(_op: Any, w: Any) -> Any:
        w.memory["mine"] = "x" * (MEMORY_LIMIT - 100)
        for number in range(NAMES_LIMIT):
            name = f"{number:>100}"
            w.confirm(name, w.looks % 2 == 0, times=9)
            w.due(name)
        for number in range(1_000):
            w.count(f"{number}{LONG}")
        await w.attempt(long_name)
        w.status(f"{w.looks}{LONG}")
        w.progress(f"{w.looks}{LONG}")
        if w.looks % 3 == 0:
            raise Talkative
        return Wait(status=f"{w.looks}{LONG}", note=f"{w.looks}{LONG}") if w.looks < 100 else Fail(LONG, evidence=LONG)

    watch = stage.watch(look, every=Backoff("1s", jitter=0, factor=1), budget=Budget("1h"), unexpected_errors=1_000)
    watch.on_decision.append(lambda *_: None)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        store: Any = await stage.app.store()
        while (await run.info()).outcome is None:
            row = store._index.live.get(run.task_id)
            if row is not None:
                sizes.append(len(row.memory))
            await stage.clock.advance(1)
        assert 150_000 < max(sizes) < ROW_LIMIT, max(sizes)
        info = await run.info()
        assert len(info.counters) == NAMES_LIMIT + 1
        assert info.counters["others"] > 90_000
        assert len(watch.counters) <= 1_001
        assert len(str(info.reason)) == 2_000

    stage.play(scene)


@pytest.mark.parametrize("kind", ["confirm", "due"])
def test_facts_have_so_many_names_and_no_more(stage: WatchStage, kind: str) -> None:
    async def look(op: Any, w: Any) -> Any:
        name = "x" * 101 if op == "long" else "half \ud800" if op == "odd" else ""
        for number in range(NAMES_LIMIT + 1) if op == "many" else range(1):
            fact = name or (f"fact {number}" if op == "many" else 7)
            w.confirm(fact, True) if kind == "confirm" else w.due(fact)
        return Done()

    watch = stage.watch(look)

    async def scene() -> None:
        for op, says in {
            "many": f"a run has at most {NAMES_LIMIT} of them",
            "long": "a name of 1 to 100 characters",
            "odd": "half a character.*a name of 1 to 100 characters",
            "number": "a name of 1 to 100 characters",
        }.items():
            with pytest.raises(RunFailed, match=says):
                await (await watch.begin(op)).result()

    stage.play(scene)


def test_counters_beyond_the_limit_share_one_and_fail_nothing(stage: WatchStage) -> None:
    """What a remote says may have become a name: that is no reason to fail."""

    async def look(_op: Any, w: Any) -> Any:
        for number in range(NAMES_LIMIT * 2):
            w.count(f"status {number}")
        w.count(7)
        return Done()

    watch = stage.watch(look)

    async def scene() -> None:
        run = await watch.begin({})
        await run.result()
        counters = (await run.info()).counters
        assert sum(counters.values()) == NAMES_LIMIT * 2 + 1 + 2, "with one look and one outcome"

    stage.play(scene)


def test_a_value_of_the_largest_size_comes_back_whole(stage: WatchStage) -> None:
    value = "x" * (PAYLOAD_LIMIT - 2)
    watch = stage.watch(_done)

    async def scene() -> None:
        run = await watch.begin(value, handle=value)
        assert await run.result() == value

    stage.play(scene)


async def _done(op: Any, w: Any) -> Done:
    assert op == w.handle
    return Done(op)


def test_a_remote_with_a_long_name_is_called_by_its_beginning(stage: WatchStage) -> None:
    watch = stage.watch(remote=lambda _op: LONG)
    assert len(watch.remote_of({})) == 200
