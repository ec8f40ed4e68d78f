"""A snapshot never changes, says where the loop stands, and can be written as JSON."""

import msgspec
import pytest

from everpoll import LoopPolicy, LoopState, Phase
from everpoll.loops.events import Pause, Start
from everpoll.loops.reducer import initial, step
from loops.stage import Stage


def test_semantics_12_a_frozen_snapshot_with_everything_in_it() -> None:
    stage = Stage()

    async def scene() -> None:
        loop = stage.add(stage.runs(None, ValueError("x")), when=lambda: stage.clock.now() < 100)
        before = loop.state
        assert (before.phase, before.next_due, before.runs) == (Phase.IDLE, None, 0)
        async with stage.app:
            await stage.clock.advance(130)
            loop.pause("hidden")
            after = loop.state
            assert (after.phase, after.failures, after.multiplier, after.base_s) == (Phase.PAUSED, 1, 2.0, 30.0)
            assert (after.next_due, after.last_ok, after.last_error) == (None, 30.0, "ValueError: x")
            assert (after.runs, after.skips, set(after.pauses)) == (2, {"condition": 1}, {"hidden"})
            with pytest.raises(AttributeError):
                after.failures = 0  # type: ignore[misc]
        assert (before.phase, before.runs) == (Phase.IDLE, 0)
        assert repr(loop) == "<Loop 'prices' closed>"

    stage.play(scene)


def test_semantics_12_a_snapshot_survives_json() -> None:
    policy = LoopPolicy(every_s=30)
    state, _ = step(policy, initial(policy), Start(), 5.0)
    state, _ = step(policy, state, Pause(), 6.0)
    assert msgspec.json.decode(msgspec.json.encode(state), type=LoopState) == state
