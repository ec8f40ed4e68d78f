"""Evidence: when a sighting counts, and when it is time to look for one.

Promises: `Confirm` confirms only what was seen several times in a row, far enough apart; a contrary sighting resets the
count, an unknown one changes nothing. `Gate` opens at a time, and then at most so often. Never looks itself: the caller
passes what it saw, and when.

A hint is the earliest instant at which a look can change something. It may lie in the past, if a look at that time saw
nothing. Only a hint in the future may shorten a wait: otherwise looks would follow one another without a pause at a
remote that answers "unknown".
"""

from dataclasses import dataclass

from everpoll.policy.durations import Duration, human, seconds
from everpoll.policy.figures import whole_number


@dataclass(frozen=True, slots=True)
class Confirmation:
    """How many sightings counted, and when the last of them did; `Confirmation()` is nothing seen yet."""

    count: int = 0
    last_at: float | None = None


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Confirm:
    """Seen that many times, at least the gap apart: `Confirm(times=2, gap="15s")`."""

    times: int
    gap_s: float

    def __init__(self, times: int = 2, gap: Duration = 0) -> None:
        accepted = "how many sightings confirm, at least 1"
        object.__setattr__(self, "times", whole_number(times, name="times", at_least=1, accepted=accepted))
        object.__setattr__(self, "gap_s", seconds(gap, name="gap"))

    def __repr__(self) -> str:
        return f"Confirm(times={self.times}, gap={human(self.gap_s)!r})"

    def observe(self, state: Confirmation, seen: bool | None, now: float) -> tuple[Confirmation, bool]:
        """Return the state after this observation, and True if the sighting is confirmed."""
        if seen is None:
            return state, False
        if seen is False:
            return Confirmation(), False
        if state.count < self.times and self._far_enough(state, now):
            state = Confirmation(state.count + 1, now)
        return state, state.count >= self.times

    def hint_at(self, state: Confirmation) -> float | None:
        """Return when the next sighting could count, while one is pending."""
        if state.last_at is None or state.count >= self.times:
            return None
        return state.last_at + self.gap_s

    def _far_enough(self, state: Confirmation, now: float) -> bool:
        return state.last_at is None or now >= state.last_at + self.gap_s


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Gate:
    """Opens once the run is `after` old, and then at most once per `every`: `Gate(after="5s", every="15s")`."""

    after_s: float
    every_s: float

    def __init__(self, after: Duration = 0, every: Duration = 0) -> None:
        object.__setattr__(self, "after_s", seconds(after, name="after"))
        object.__setattr__(self, "every_s", seconds(every, name="every"))

    def __repr__(self) -> str:
        return f"Gate(after={human(self.after_s)!r}, every={human(self.every_s)!r})"

    def due(self, last_at: float | None, started_at: float, now: float) -> bool:
        """Return True if the gate is open now. `last_at` is when it was last passed; None: never."""
        return now >= self.hint_at(last_at, started_at)

    def hint_at(self, last_at: float | None, started_at: float) -> float:
        """Return when the gate opens next."""
        opens_at = started_at + self.after_s
        return opens_at if last_at is None else max(opens_at, last_at + self.every_s)
