"""Everything that was done to the simulated cloud, so that a test can prove what was done once, and what never."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Asked:
    """One request."""

    at_s: float
    """By the cloud's clock, since it was switched on."""
    action: str
    """As "Perform Start", "Retrieve AsyncActivityStatus", "isrunning", "rowset"."""
    key: str | None
    """The CustomerKey that it is about."""
    ending: str = "open"
    """answered, or the trouble that it met."""


@dataclass(slots=True)
class Records:
    """What the cloud remembers for its tests."""

    requests: list[Asked] = field(default_factory=list)
    starts: Counter[str] = field(default_factory=Counter)
    """How often a query was really started, by CustomerKey."""
    stops: Counter[str] = field(default_factory=Counter)
    creates: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Assets that came into being, by type and CustomerKey."""
    deletes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Assets that were really deleted."""
    deleted_while_running: list[str] = field(default_factory=list)
    """QueryDefinitions that were deleted under a running query: what clean-up must never do."""
    too_early: list[Asked] = field(default_factory=list)
    """Requests that came before the Retry-After of the same kind about the same query was over."""

    def times(self, action: str, key: str | None = None) -> list[float]:
        """When that was asked."""
        return [one.at_s for one in self.of(action, key)]

    def of(self, action: str, key: str | None = None) -> list[Asked]:
        """Those requests."""
        return [one for one in self.requests if one.action == action and key in {None, one.key}]
