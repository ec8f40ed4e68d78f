"""When to look: detection delay and number of looks, for the schedule of the document and for one that learns.

A simulation, not a measurement: the same seed gives the same figures on any machine. 10,000 runs of mixed length: half
of them about 20 seconds, three in ten about 3 minutes, two in ten about 11 minutes; the budget is 29 minutes.
"""

import statistics
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench.report import Ratio, Report
from everpoll import Backoff
from everpoll.watches import History, Learned
from everpoll.watches.cadence import Cadence, Growing

RUNS = 10_000
BUDGET_S = 1740.0
REMEMBERED = 200
DOCUMENT = Backoff("2s", factor=2, cap="30s", jitter=0.2)
MIXTURE = ((0.5, 3.0, 0.5), (0.8, 5.2, 0.4), (1.0, 6.5, 0.3))
"""Share so far, and the lognormal of its runs."""
PLOT = Path(__file__).parent.parent / "docs" / "explanation" / "when-to-look.svg"
BINS = ((0, 30), (30, 60), (60, 120), (120, 300), (300, 600), (600, 1740))


@dataclass(frozen=True, slots=True)
class Figures:
    """One schedule, over all runs."""

    looks: float
    mean_s: float
    median_s: float
    p95_s: float
    bins: tuple[tuple[float, float], ...]
    """Of runs by their length: mean looks and mean delay."""


def simulated(runs: int = RUNS) -> tuple[Figures, Figures]:
    """The document's schedule, and the one that learns."""
    durations = _durations(runs, Random(5))
    return _figures(Growing(DOCUMENT), durations), _figures(Learned(DOCUMENT), durations)


def _durations(runs: int, rng: Random) -> list[float]:
    drawn = []
    for _ in range(runs):
        chance = rng.random()
        _, mu, sigma = next(one for one in MIXTURE if chance < one[0])
        drawn.append(min(rng.lognormvariate(mu, sigma), BUDGET_S - 40))
    return drawn


def _figures(cadence: Cadence, durations: list[float]) -> Figures:
    rng = Random(9)
    seen: list[float] = []
    outcomes: list[tuple[float, int, float]] = []
    for duration_s in durations:
        looks, before_s, found_s = _run(cadence, duration_s, tuple(seen), rng)
        outcomes.append((duration_s, looks, found_s - duration_s))
        seen.insert(0, (before_s + found_s) / 2)
        del seen[REMEMBERED:]
    delays = sorted(delay for _, _, delay in outcomes)
    return Figures(
        statistics.mean(looks for _, looks, _ in outcomes),
        statistics.mean(delays),
        statistics.median(delays),
        delays[int(len(delays) * 0.95)],
        tuple(_bin(outcomes, low, high) for low, high in BINS),
    )


def _run(cadence: Cadence, duration_s: float, seen: tuple[float, ...], rng: Random) -> tuple[int, float, float]:
    looks, before_s, at_s = 0, 0.0, 0.0
    while at_s < duration_s and at_s < BUDGET_S:
        wait_s = cadence.next_s(History(looks, at_s, seen), rng)
        before_s, at_s, looks = at_s, min(at_s + wait_s, BUDGET_S), looks + 1
    return looks, before_s, at_s


def _bin(outcomes: list[tuple[float, int, float]], low: float, high: float) -> tuple[float, float]:
    inside = [(looks, delay) for duration_s, looks, delay in outcomes if low <= duration_s < high]
    return statistics.mean(looks for looks, _ in inside), statistics.mean(delay for _, delay in inside)


def run(_quick: bool) -> Report:
    """The table, and the plot of the documentation."""
    document, learned = simulated()
    report = Report("cadence", f"When to look: {RUNS:,} simulated runs of mixed length", ("", "document", "learned"))
    for label, figure in (
        ("looks a run", "looks"),
        ("detection delay, mean s", "mean_s"),
        ("detection delay, median s", "median_s"),
        ("detection delay, 95 % s", "p95_s"),
    ):
        report.rows.append((label, f"{getattr(document, figure):.2f}", f"{getattr(learned, figure):.2f}"))
        ratio = getattr(learned, figure) / getattr(document, figure)
        report.ratios.append(Ratio(f"cadence: {label}, learned / document", ratio, at_most=1.0))
    report.notes.append("A simulation with a fixed seed: the figures are the same on every machine.")
    PLOT.write_text(_plot(document, learned))
    return report


def _plot(document: Figures, learned: Figures) -> str:
    """Two groups of bars for each length of run: looks, and delay."""
    width, height, left, base = 720, 300, 60, 120
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>Looks and detection delay by length of run</title>",
        '<g font-family="system-ui, sans-serif" font-size="11" fill="#222">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for row, (name, index) in enumerate((("looks a run", 0), ("mean delay, s", 1))):
        y0 = base + row * 140
        most = max(one[index] for one in (*document.bins, *learned.bins))
        parts.append(f'<text x="8" y="{y0 - 95}" font-weight="600">{name}</text>')
        for number, (low, high) in enumerate(BINS):
            x = left + number * 108
            parts.append(f'<text x="{x + 35}" y="{y0 + 14}" text-anchor="middle">{low} to {high} s</text>')
            for shift, figures, colour in ((0, document, "#9aa5b1"), (36, learned, "#2e7d5b")):
                value = figures.bins[number][index]
                tall = value / most * 85
                at = f'x="{x + shift}" y="{y0 - tall:.1f}" width="32" height="{tall:.1f}"'
                parts.append(f'<rect {at} fill="{colour}"/>')
                parts.append(
                    f'<text x="{x + shift + 16}" y="{y0 - tall - 3:.1f}" text-anchor="middle">{value:.1f}</text>'
                )
    legend = '<tspan fill="#6b7785">grey: the document</tspan>, green: learned'
    parts.append(f'<text x="{width - 225}" y="16">{legend}</text>')
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"
