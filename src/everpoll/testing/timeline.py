"""A timeline: every decision that a watch makes, with its time and its reason, to assert on.

timeline = Timeline(shell_query)
…
assert timeline.waits("run-42") == [2, 4, 8, 16, 30]
"""

from typing import Any, NamedTuple, Protocol

from everpoll.errors import BadInput


class Moment(NamedTuple):
    """One decision."""

    at: float
    """Seconds since the first decision of the run, by the store's clock."""
    rule: str
    why: str
    next_s: float | None


class Watched(Protocol):
    """The part of a watch that this needs."""

    on_decision: list[Any]


class Timeline:
    """The decisions of one watch, from now on."""

    def __init__(self, watch: Watched) -> None:
        if not isinstance(getattr(watch, "on_decision", None), list):
            raise BadInput(f"Timeline({watch!r}): write the watch itself, as app.watch made it")
        self._moments: dict[str, list[tuple[float, Moment]]] = {}
        watch.on_decision.append(self._decided)

    def _decided(self, run_id: str, decision: Any) -> None:
        moments = self._moments.setdefault(run_id, [])
        since = moments[0][0] if moments else decision.at
        moments.append((decision.at, Moment(decision.at - since, decision.rule, decision.why, decision.next_s)))

    def of(self, run_id: str) -> list[Moment]:
        """Return all decisions of a run, in order."""
        return [moment for _, moment in self._moments.get(run_id, [])]

    def rules(self, run_id: str) -> list[str]:
        """Return which rules decided, in order."""
        return [moment.rule for moment in self.of(run_id)]

    def waits(self, run_id: str) -> list[float]:
        """Return the planned length of each wait, to the millisecond."""
        return [round(moment.next_s, 3) for moment in self.of(run_id) if moment.next_s is not None]
