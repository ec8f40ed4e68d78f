"""Every test that asks for a `stage` plays in virtual time, the heartbeat included."""

import pytest

from engine.engine_stage import EngineStage, VirtualHeartbeat
from everpoll.engine import worker


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> EngineStage:
    stage = EngineStage()
    heart = type("StagedHeartbeat", (VirtualHeartbeat,), {"frozen": stage.frozen})
    monkeypatch.setattr(worker, "Heartbeat", heart)
    return stage
