"""Fixtures for pytest, available once everpoll is installed.

    everpoll_clock     a `VirtualClock`
    everpoll_memory    gives an app a store in memory until the test ends: `app = everpoll_memory(shop.app)`

Nothing of everpoll is imported before a test asks for one of them.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from everpoll.testing.clock import VirtualClock


@pytest.fixture
def everpoll_clock() -> "VirtualClock":
    """Return a clock that stands still until the test advances it."""
    from everpoll.testing.clock import VirtualClock  # noqa: PLC0415 - see above

    return VirtualClock()


@pytest.fixture
def everpoll_memory() -> Iterator[Callable[..., Any]]:
    """Return a function that gives an app a store in memory until the test ends; `clock=` as for `in_memory`."""
    from everpoll.testing.in_memory import in_memory  # noqa: PLC0415 - see above

    with ExitStack() as until:
        yield lambda app, **options: until.enter_context(in_memory(app, **options))
