"""History is dropped about once an hour by any worker; one that may not says so once, and works on."""

import logging

import pytest

from engine.engine_stage import EngineStage
from everpoll.errors import StoreUnavailable


def test_a_worker_that_may_not_drop_history_says_so_once(stage: EngineStage, caplog: pytest.LogCaptureFixture) -> None:
    stage.handler()
    problems = [StoreUnavailable("must be owner")] * 5 + [None, StoreUnavailable("must be owner")]
    asked: list[float] = []

    async def prune(older_than_s: float) -> int:
        asked.append(older_than_s)
        if problems and (problem := problems.pop(0)) is not None:
            raise problem
        return 0

    stage.store.prune = prune  # type: ignore[method-assign]

    async def scene() -> None:
        async with stage.working(keep_s=86_400.0):
            await stage.clock.advance(24 * 3600)
            assert len(asked) >= 7

    with caplog.at_level(logging.WARNING):
        stage.play(scene)
    answer = [one.message for one in caplog.records if "cannot drop old history" in one.message]
    assert answer == ["cannot drop old history: StoreUnavailable: must be owner"] * 2
