"""Each look in the log of a run has its number and its latency, so that a link to a look is exact."""

import asyncio
from typing import Any

from everpoll.watches import Done, Wait
from watches.stage import WatchStage


def test_every_look_is_found_by_its_number_once(stage: WatchStage) -> None:
    """Equal looks in a row are one entry with the number of the last: together the entries have every number once."""

    async def look(_op: Any, w: Any) -> Done | Wait:
        await asyncio.sleep(0.25)
        if w.looks == 3:
            raise OSError("the line broke")
        if w.looks == 6:
            w.memory["rows"] = 17
        return Done() if w.looks == 9 else Wait(status="running")

    watch = stage.watch(look)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await run.result()
        info = await run.info()
        numbers: list[int] = []
        for entry in info.log:
            if entry.look is None:
                assert entry.took_s is None
                continue
            assert entry.took_s == 0.25
            numbers += range(entry.look - entry.times + 1, entry.look + 1)
        assert numbers == list(range(1, 10))
        assert info.looks == 9
        [failed] = [entry for entry in info.log if "error" in entry.facts]
        assert (failed.look, failed.times) == (3, 1)

    stage.play(scene)


def test_what_is_no_look_has_no_number(stage: WatchStage) -> None:
    """A start is in the log, without a number; the first look behind it is number 1."""

    async def look(_op: Any) -> Done:
        return Done()

    watch = stage.watch(look)

    async def start(_op: Any, key: str) -> str:
        return f"https://remote.example/{key}"

    watch.start(start)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        await run.result()
        info = await run.info()
        assert [entry.look for entry in info.log] == [None, 1]
        assert info.target == f"https://remote.example/{watch.name}:r"

    stage.play(scene)


def test_a_run_names_its_remote_and_the_fact_that_changed_last(stage: WatchStage) -> None:
    """The remote of its watch goes before its handle."""

    async def look(_op: Any, w: Any) -> Done | Wait:
        w.confirm("gone", w.looks == 2, times=1)
        return Done() if w.looks == 4 else Wait()

    watch = stage.watch(look, remote=lambda op: op["host"])

    async def scene() -> None:
        run = await watch.begin({"host": "shop.example.com"}, id="r")
        await run.result()
        info = await run.info()
        assert info.target == "shop.example.com"
        assert info.last_fact is not None
        changed = [entry for entry in info.log if entry.facts][-1]
        assert (info.last_fact.look, info.last_fact.at) == (changed.look, changed.at)
        assert info.last_fact.name in changed.facts

    stage.play(scene)
