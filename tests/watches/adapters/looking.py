"""Looks at an adapter until it has ended, without waiting in between."""

from typing import Any

from everpoll.watches.adapters import Adapter, RemoteBusy
from everpoll.watches.verdicts import Verdict, Wait

LOOKS_AT_MOST = 50


async def ended(adapter: Adapter, handle: Any) -> Verdict:
    """The verdict that ends it; memory lasts between looks, as it does in a watch."""
    return (await timeline(adapter, handle))[-1]


async def timeline(adapter: Adapter, handle: Any) -> list[Verdict]:
    """Every verdict up to the last; a remote that is busy is asked again."""
    memory: dict[str, Any] = {}
    verdicts: list[Verdict] = []
    for _ in range(LOOKS_AT_MOST):
        try:
            verdicts.append(await adapter.look(handle, memory))
        except RemoteBusy:
            continue
        if not isinstance(verdicts[-1], Wait):
            return verdicts
    raise AssertionError(f"not ended after {LOOKS_AT_MOST} looks: {verdicts[-1]}")
