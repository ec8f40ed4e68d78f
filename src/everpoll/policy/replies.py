"""What a handler may answer beside a value: the same again later, or never.

Promises of a snooze: the same row, after that delay, with no attempt used and no failure counted. Never sleeps by
itself.
"""

from dataclasses import dataclass

from everpoll.policy.durations import Duration, human, seconds


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Snooze:
    """Returned by a job or a loop to come back later: `Snooze("30s")`."""

    delay_s: float

    def __init__(self, delay: Duration) -> None:
        object.__setattr__(self, "delay_s", seconds(delay, name="delay"))

    def __repr__(self) -> str:
        return f"Snooze({human(self.delay_s)!r})"


@dataclass(frozen=True, slots=True)
class Cancel:
    """Returned by a job: there is nothing to do any more, and why."""

    reason: str = "canceled by the job itself"
