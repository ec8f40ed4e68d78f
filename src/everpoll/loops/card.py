"""Card: the state of a loop that other processes can show."""

from everpoll.loops.loop import Loop
from everpoll.policy.storable_texts import storable
from everpoll.stores.figures import LoopCard

ERROR_BYTES = 500
"""How many bytes of a loop's last error a card has."""


def card_of(loop: Loop) -> LoopCard:
    """Return the card of a loop.

    Instants are rounded to tenths of a second: they are computed from two clocks, and would change a little each time.
    """
    state = loop.state
    last_run_at, next_due_at = (loop._on_wall(one) for one in (state.last_started, state.next_due))
    return LoopCard(
        name=loop.name,
        phase=state.phase.value,
        every_s=state.base_s,
        multiplier=state.multiplier,
        runs=state.runs,
        failures=state.failures,
        last_run_at=None if last_run_at is None else round(last_run_at.timestamp(), 1),
        next_due_at=None if next_due_at is None else round(next_due_at.timestamp(), 1),
        last_error=None if state.last_error is None else storable(state.last_error, ERROR_BYTES),
        strip=loop._strip,
    )
