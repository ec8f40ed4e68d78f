"""After a poll that had to count for limits, the next one waits a moment for more free slots."""

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from engine.engine_stage import EngineStage
from everpoll.engine.poller import GATHER_S

SLOTS, QUICK_S = 10, 0.001


@pytest.mark.parametrize("is_costly", [True, False])
def test_half_free_slots_are_filled_later_after_a_costly_poll(
    stage: EngineStage, monkeypatch: pytest.MonkeyPatch, is_costly: bool
) -> None:
    """Half of the slots stay busy: the other half becomes free again and again."""
    stage.handler("slow", takes_s=60.0)
    stage.handler("quick", takes_s=QUICK_S)
    lease = stage.store.lease

    async def marked_lease(*values: Any) -> Any:
        return replace(await lease(*values), is_costly=is_costly)

    monkeypatch.setattr(stage.store, "lease", marked_lease)

    async def scene() -> None:
        await stage.put(SLOTS // 2, name="slow", priority=1)
        await stage.put(4 * SLOTS, name="quick")
        async with stage.working(slots=SLOTS):
            await stage.clock.advance(1)
            full = [look.at for look in stage.store.looks if look.found == SLOTS // 2]
            rests = [later - earlier for earlier, later in pairwise(full)]
        assert len(rests) >= 5
        assert all((rest > QUICK_S + GATHER_S / 2) == is_costly for rest in rests), rests

    stage.play(scene)
