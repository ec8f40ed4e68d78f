"""Adaptive: an interval that follows how often the data changes.

Promises: a change makes the base shorter, a streak of unchanged looks makes it longer, within bounds. Never counts
failures: a remote that is down says nothing about how often its data changes.
"""

from dataclasses import dataclass

from everpoll.errors import BadDuration
from everpoll.policy.durations import Duration, human, seconds
from everpoll.policy.figures import number, shown, whole_number


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Adaptive:
    """Between a minimum and a maximum: `Adaptive("5s", "5m", faster=0.5, slower=1.5, patience=3)`."""

    minimum_s: float
    maximum_s: float
    faster: float
    slower: float
    patience: int

    def __init__(
        self,
        minimum: Duration,
        maximum: Duration,
        faster: float = 0.5,
        slower: float = 1.5,
        patience: int = 3,
    ) -> None:
        put = object.__setattr__
        put(self, "minimum_s", seconds(minimum, name="minimum", positive=True))
        put(self, "maximum_s", seconds(maximum, name="maximum", positive=True))
        put(
            self,
            "faster",
            number(faster, name="faster", at_least=0, at_most=1, accepted="a share of 1, as 0.5 for half"),
        )
        put(
            self,
            "slower",
            number(slower, name="slower", at_least=1, accepted="at least 1, as 1.5 for half as long again"),
        )
        put(self, "patience", whole_number(patience, name="patience", at_least=1, accepted="a streak of at least 1"))
        if self.maximum_s < self.minimum_s:
            raise BadDuration(
                f"maximum={shown(maximum)}: shorter than minimum={shown(minimum)}; write a maximum of at least that"
            )

    def __repr__(self) -> str:
        return (
            f"Adaptive({human(self.minimum_s)!r}, {human(self.maximum_s)!r}, "
            f"faster={self.faster:g}, slower={self.slower:g}, patience={self.patience})"
        )

    def next_base(self, base_s: float, unchanged: int, changed: bool) -> tuple[float, int]:
        """Return the base and the streak of unchanged looks after one more successful look."""
        if changed:
            return self._bounded(base_s * self.faster), 0
        if unchanged + 1 < self.patience:
            return base_s, unchanged + 1
        return self._bounded(base_s * self.slower), 0

    def _bounded(self, base_s: float) -> float:
        return min(self.maximum_s, max(self.minimum_s, base_s))
