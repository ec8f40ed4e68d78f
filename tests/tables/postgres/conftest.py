"""Postgres alone."""

import pytest

from everpoll.tables import Guard
from tables.conftest import GUARDS


@pytest.fixture(params=GUARDS)
def guard(request: pytest.FixtureRequest) -> Guard:
    """Each."""
    guard: Guard = request.param
    return guard
