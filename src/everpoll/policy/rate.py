"""Rate: how often something may be done, as a bucket of tokens.

Promises: never more than `count` calls in any period of `per`, plus at most `count` tokens saved up while idle.
Never waits: returns how long the caller must wait.
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
    """A number of calls in a period: `Rate(10, per="1s")`."""

    count: int
    per_s: float

    def __init__(self, count: int, per: Duration = "1s") -> None:
        accepted = "how many are allowed, at least 1"
        object.__setattr__(self, "count", whole_number(count, name="count", at_least=1, accepted=accepted))
        object.__setattr__(self, "per_s", seconds(per, name="per", positive=True))

    def __repr__(self) -> str:
        return f"Rate({self.count}, per={human(self.per_s)!r})"

    def take(self, tokens: Tokens, now: float) -> tuple[Tokens, float]:
        """Take one token: return the bucket without it, and how long the caller must wait before it acts.

        A caller that must wait holds its token already and does not take another one after the wait. So each further
        caller waits longer, and callers that ask together act one after another.
        """
        left = self._left(tokens, now) - 1
        wait_s = 0.0 if left >= 0 else -left * self.per_s / self.count
        return Tokens(left, now), wait_s

    def _left(self, tokens: Tokens, now: float) -> float:
        if tokens.left is None:
            return float(self.count)
        grown = max(0.0, now - tokens.at) * self.count / self.per_s
        return min(float(self.count), tokens.left + grown)
