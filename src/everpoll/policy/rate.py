"""Rate: how often something may be done, as a bucket of tokens.

Promises: never more than `count` in any stretch of `per`, plus what was saved while nobody asked, up to `count`.
Never waits: says how long to.
"""

from dataclasses import dataclass

from everpoll.policy.durations import Duration, human, seconds
from everpoll.policy.figures import whole_number


@dataclass(frozen=True, slots=True)
class Tokens:
    """What is in the bucket, and when that was counted; None: it is full."""

    left: float | None = None
    at: float = 0.0


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Rate:
    """So many in so long: `Rate(10, per="1s")`."""

    count: int
    per_s: float

    def __init__(self, count: int, per: Duration = "1s") -> None:
        accepted = "how many are allowed, at least 1"
        object.__setattr__(self, "count", whole_number(count, name="count", at_least=1, accepted=accepted))
        object.__setattr__(self, "per_s", seconds(per, name="per", positive=True))

    def __repr__(self) -> str:
        return f"Rate({self.count}, per={human(self.per_s)!r})"

    def take(self, tokens: Tokens, now: float) -> tuple[Tokens, float]:
        """The bucket after one more, and how long to wait first.

        Whoever has to wait has its token all the same, and needs no other one when it comes back: so the next one
        waits longer, and those that ask at once come back one after another.
        """
        left = self._left(tokens, now) - 1
        wait_s = 0.0 if left >= 0 else -left * self.per_s / self.count
        return Tokens(left, now), wait_s

    def _left(self, tokens: Tokens, now: float) -> float:
        if tokens.left is None:
            return float(self.count)
        grown = max(0.0, now - tokens.at) * self.count / self.per_s
        return min(float(self.count), tokens.left + grown)
