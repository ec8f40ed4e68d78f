"""A stage for each test."""

import pytest

from .stage import Stage


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Virtual time, an empty store, and remotes that are all up."""
    return Stage(monkeypatch)
