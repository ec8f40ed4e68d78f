"""Budget: how long, and how often, a watch may look at an operation before it gives up.

Promises: the reason names the budget that is spent, its limit and the actual value. Never measures: the caller passes
the elapsed time and the looks, counted from the stored start.
"""

from dataclasses import dataclass

from everpoll.policy.durations import Duration, human, seconds
from everpoll.policy.figures import whole_number


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Budget:
    """A time, and optionally a number of looks: `Budget("29m", looks=120)`."""

    time_s: float
    looks: int | None

    def __init__(self, time: Duration, looks: int | None = None) -> None:
        accepted = "how many looks are allowed, at least 1, or None for any number"
        checked = None if looks is None else whole_number(looks, name="looks", at_least=1, accepted=accepted)
        object.__setattr__(self, "time_s", seconds(time, name="time", positive=True))
        object.__setattr__(self, "looks", checked)

    def __repr__(self) -> str:
        return f"Budget({human(self.time_s)!r}, looks={self.looks})"

    def spent(self, elapsed_s: float, looks: int) -> str | None:
        """Return why there may be no further look, after that time and that many looks; None while there may."""
        if elapsed_s >= self.time_s:
            return f"time budget of {human(self.time_s)} is spent: {human(elapsed_s)} since the start"
        if self.looks is not None and looks >= self.looks:
            return f"budget of {self.looks} looks is spent: {looks} looks since the start"
        return None

    def remaining_s(self, elapsed_s: float) -> float:
        """Return the time left, from 0 to the whole budget: a clock that was set back cannot lengthen it."""
        return min(self.time_s, max(0.0, self.time_s - elapsed_s))
