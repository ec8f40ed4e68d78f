import pytest

from watches.stage import WatchStage


@pytest.fixture
def stage() -> WatchStage:
    return WatchStage()
