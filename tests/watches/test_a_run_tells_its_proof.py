"""The reason of a ready run names the proof, in `why`, in the log and in its info."""

from typing import Any

from everpoll.watches import Done
from watches.stage import WatchStage


def test_done_says_which_proof_it_was(stage: WatchStage) -> None:
    async def look(_op: Any) -> Done:
        return Done(3, why="the probe saw rows")

    watch = stage.watch(look)

    async def scene() -> None:
        run = await watch.begin({}, id="r")
        assert await run.result() == 3
        assert (await run.info()).reason == "the probe saw rows"

    stage.play(scene)


def test_what_is_done_is_compared_by_its_value_alone() -> None:
    assert Done(3, why="the probe saw rows") == Done(3)
