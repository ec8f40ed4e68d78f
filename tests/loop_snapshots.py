"""The state of a loop as the conformance vectors write it, for the tests of both implementations."""

from typing import Any

import msgspec

from everpoll.loops.state import LoopState


def seen(state: LoopState) -> dict[str, Any]:
    """The snapshot as JSON would have it, with what is computed from it."""
    plain: dict[str, Any] = msgspec.to_builtins(state)
    pauses = sorted(reason.value for reason in state.pauses)
    return plain | {"phase": state.phase.value, "next_due": state.next_due, "skips": state.skips, "pauses": pauses}
