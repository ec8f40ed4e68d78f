"""What a benchmark found: measured rows, ratios with their targets, and under which conditions."""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

RATIO_COLUMNS = ("ratio", "of the medians", "over the rounds", "of the best", "target", "")


@dataclass(frozen=True, slots=True)
class Ratio:
    """One figure that has, or could have, a target. Rounds are compared pairwise for the range."""

    label: str
    value: float | None
    """None: one of the two could not be measured."""
    at_least: float | None = None
    at_most: float | None = None
    low: float | None = None
    high: float | None = None
    best: float | None = None
    """The best round of the one against the best of the other: what a noisy machine spoils least."""

    @property
    def margin(self) -> float | None:
        """1 is on the target, more is better; None without a target."""
        if self.value is None:
            return None
        if self.at_least is not None:
            return self.value / self.at_least
        if self.at_most is None:
            return None
        return self.at_most / self.value if self.value > 0 else math.inf

    @property
    def target(self) -> str:
        """As people read it."""
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return "" if self.at_most is None else f"≤ {self.at_most:g}"

    @property
    def verdict(self) -> str:
        """Whether the target is met."""
        if self.value is None:
            return "not measured"
        if self.margin is None:
            return ""
        return "met" if self.margin >= 1 else "**missed**"


@dataclass(slots=True)
class Report:
    """Everything about one benchmark."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    samples: dict[str, Any] = field(default_factory=dict)

    def markdown(self) -> str:
        """Tables for people."""
        lines = [f"### {self.title}", ""]
        lines += table(self.columns, self.rows)
        if self.ratios:
            lines += [
                "",
                *table(RATIO_COLUMNS, [_ratio_row(one) for one in self.ratios]),
            ]
        if self.notes:
            lines += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines) + "\n"

    def as_json(self) -> str:
        """Everything, samples included."""
        whole = asdict(self)
        whole["ratios"] = [{**asdict(one), "verdict": one.verdict.strip("*")} for one in self.ratios]
        return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def compared(label: str, ours: Sequence[float], theirs: Sequence[float], *, at_least: float | None = None) -> Ratio:
    """The ratio of the medians; its range over the rounds beside it."""
    if not ours or not theirs:
        return Ratio(label, None, at_least=at_least)
    pairs = [a / b for a, b in zip(ours, theirs, strict=False)]
    value = statistics.median(ours) / statistics.median(theirs)
    return Ratio(label, value, at_least=at_least, low=min(pairs), high=max(pairs), best=max(ours) / max(theirs))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table: the first column to the left, figures to the right."""
    lines = [f"| {' | '.join(columns)} |", f"| --- |{' ---: |' * (len(columns) - 1)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def _ratio_row(one: Ratio) -> tuple[str, ...]:
    best = "" if one.best is None else f"{one.best:.2f}"
    span = "" if one.low is None or one.high is None else f"{one.low:.2f} … {one.high:.2f}"
    return (one.label, "-" if one.value is None else f"{one.value:.2f}", span, best, one.target, one.verdict)
