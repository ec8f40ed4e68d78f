"""When to look: looks and detection delay, for doubling waits and for a cadence that learns from its own looks.

A simulation, not a measurement: the same seeds give the same figures on any machine. Each family of durations is run
400 times for each seed, the cadence learning from what its own looks saw; runs 100 to 400 count. Ratios are to
`Backoff("2s", cap="30s", jitter=0.2)`. The same backoff, scaled until its delay or its looks are those of the learned
cadence, gives what each is worth at equal terms.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random

from bench.cadence_plot import bars_svg
from bench.report import Ratio, Report
from everpoll import Backoff
from everpoll.watches.learned_plan import Plan, Waits, planned
from everpoll.watches.past_runs import PastRun, tenth

FALLBACK = Backoff("2s", factor=2, cap="30s", jitter=0.2)
LIMIT_S = 1_700.0
REMEMBERED, RUNS, SKIPPED = 200, 400, 100
# The constants of the plan were chosen with the seeds from 500 to 505: the figures are those of seeds it has not seen.
SEEDS = (900, 901, 902)
PROGRESS_SEEDS = tuple(range(900, 906))
"""More of them: the product of looks and delay varies by a tenth from seed to seed."""
SCALES = tuple(2 ** (step / 3) for step in range(-9, 13))
PLOT = Path(__file__).parent.parent / "docs" / "explanation" / "when-to-look.svg"

Family = Callable[[Random], float]
Percentage = Callable[[float], float]


def _mixture(rng: Random) -> float:
    chance = rng.random()
    middle, spread = (3.0, 0.5) if chance < 0.5 else (5.2, 0.4) if chance < 0.8 else (6.5, 0.3)
    return rng.lognormvariate(middle, spread)


FAMILIES: dict[str, Family] = {
    "about 60 s": lambda rng: rng.lognormvariate(math.log(60), 0.4),
    "about 20 s, widely spread": lambda rng: rng.lognormvariate(math.log(20), 1.0),
    "about 10 min": lambda rng: rng.lognormvariate(math.log(600), 0.3),
    "5 s or 180 s": lambda rng: (5 if rng.random() < 0.5 else 180) * rng.lognormvariate(0, 0.1),
    "Pareto 1.2 from 10 s on": lambda rng: 10 * rng.paretovariate(1.2),
    "exponential, 60 s": lambda rng: rng.expovariate(1 / 60),
    "a mixture of three": _mixture,
}
WANTED = {
    "about 60 s": 2.0,
    "about 20 s, widely spread": 2.0,
    "about 10 min": 1.85,
    "5 s or 180 s": 2.0,
    "Pareto 1.2 from 10 s on": 2.0,
    "exponential, 60 s": 1.6,
}
DRIFTS: dict[str, Callable[[int], float]] = {
    "halve": lambda number: 0.5 if number >= 60 else 1.0,
    "triple": lambda number: 3.0 if number >= 60 else 1.0,
    "grow 1 % a run": lambda number: 1.01**number,
    "alternate": lambda number: 3.0 if number // 20 % 2 else 1.0,
}
PERCENTAGES: dict[str, Callable[[float, Random], Percentage]] = {
    "honest": lambda duration_s, _: lambda at_s: at_s / duration_s,
    "uneven": lambda duration_s, rng: _uneven(duration_s, rng.uniform(0.6, 1.6)),
    "stuck at 90 %": lambda duration_s, _: lambda at_s: min(0.9, at_s / duration_s / 0.7 * 0.9),
    "after a queue": lambda duration_s, rng: _queued(duration_s, rng.random() * 0.6 * duration_s),
    "unrelated": lambda _, rng: _unrelated(rng.lognormvariate(4, 0.7)),
    "random": lambda _, rng: lambda _at_s: rng.random(),
}


def _uneven(duration_s: float, power: float) -> Percentage:
    return lambda at_s: (at_s / duration_s) ** power


def _queued(duration_s: float, queued_s: float) -> Percentage:
    return lambda at_s: max(0.0, (at_s - queued_s) / (duration_s - queued_s))


def _unrelated(scale_s: float) -> Percentage:
    return lambda at_s: min(0.99, at_s / scale_s)


@dataclass(frozen=True, slots=True)
class Found:
    """Looks and delay, in all."""

    looks: float = 0.0
    delay_s: float = 0.0

    def __add__(self, other: "Found") -> "Found":
        return Found(self.looks + other.looks, self.delay_s + other.delay_s)


def drawn(family: Family, seed: int, runs: int = RUNS) -> list[float]:
    """Durations of one family."""
    rng = Random(seed)
    return [min(family(rng), LIMIT_S) for _ in range(runs)]


def by_backoff(durations: Sequence[float], seed: int, backoff: Backoff = FALLBACK, skipped: int = SKIPPED) -> Found:
    """What a backoff finds."""
    rng, looks, delay_s = Random(seed), 0, 0.0
    for number, duration_s in enumerate(durations):
        at_s, count = 0.0, 0
        while at_s < duration_s:
            count += 1
            at_s += backoff.delay(count, rng)
        if number >= skipped:
            looks, delay_s = looks + count, delay_s + at_s - duration_s
    return Found(looks, delay_s)


def by_learning(
    durations: Sequence[float],
    seed: int,
    *,
    share: float | None = None,
    skipped: int = SKIPPED,
    history: Sequence[PastRun] = (),
    learns: bool = True,
    percentage: Callable[[float, Random], Percentage] | None = None,
) -> Found:
    """What a learned cadence finds that learns from its own looks."""
    rng, reports, known = Random(seed), Random(seed + 1), list(history)
    looks, delay_s, plan = 0, 0.0, Plan(Waits(FALLBACK))
    for number, duration_s in enumerate(durations):
        if number == 0 or (learns and (number < 30 or number % 5 == 0)):
            plan = planned(FALLBACK, share, 1.0, known)
        answer = None if percentage is None else percentage(duration_s, reports)
        count, run = _looked(plan, duration_s, answer, rng)
        known.insert(0, run)
        del known[REMEMBERED:]
        if number >= skipped:
            looks, delay_s = looks + count, delay_s + run.ended_s - duration_s
    return Found(looks, delay_s)


def _looked(plan: Plan, duration_s: float, answer: Percentage | None, rng: Random) -> tuple[int, PastRun]:
    count, before_s, at_s, marks = 0, 0.0, 0.0, list[tuple[float, float]]()
    while at_s < duration_s:
        wait_s, _ = plan.next_look(count, at_s, marks, rng)
        before_s, at_s, count = at_s, at_s + wait_s, count + 1
        if answer is not None and at_s < duration_s:
            share = answer(at_s)
            if share > 0 and (not marks or tenth(share) > tenth(marks[-1][0])):
                marks.append((share, at_s))
    return count, PastRun(before_s, at_s, tuple(marks))


@dataclass(frozen=True, slots=True)
class Gains:
    """Of one family: looks and delay beside the fallback, and beside a backoff at equal delay, or at equal looks."""

    looks: float
    delay: float
    fewer: float
    sooner: float
    plain: Found
    learned: Found
    counted: int


@cache
def gains(name: str, seeds: tuple[int, ...] = SEEDS, share: float | None = None) -> Gains:
    """How much a learned cadence gains on one family."""
    family, scaled = FAMILIES[name], dict.fromkeys(SCALES, Found())
    learned = plain = Found()
    for seed in seeds:
        durations = drawn(family, seed)
        learned += by_learning(durations, seed, share=share)
        plain += by_backoff(durations, seed + 1)
        for scale in SCALES:
            backoff = Backoff(2 * scale, factor=2, cap=30 * scale, jitter=0.2)
            scaled[scale] += by_backoff(durations, seed + 1, backoff)
    pairs = [(one.looks, one.delay_s) for one in scaled.values()]
    fewer = _along([(delay_s, looks) for looks, delay_s in pairs], learned.delay_s) / learned.looks
    sooner = _along(pairs, learned.looks) / learned.delay_s
    counted = len(seeds) * (RUNS - SKIPPED)
    return Gains(learned.looks / plain.looks, learned.delay_s / plain.delay_s, fewer, sooner, plain, learned, counted)


def _along(pairs: Sequence[tuple[float, float]], x: float) -> float:
    """The second value where the first is x, on lines between the logarithms; at the ends, that of the end."""
    ordered = sorted(pairs)
    for (x0, y0), (x1, y1) in pairwise(ordered):
        if x0 <= x <= x1 and x0 < x1:
            return float(y0 * (y1 / y0) ** (math.log(x / x0) / math.log(x1 / x0)))
    return ordered[0][1] if x < ordered[0][0] else ordered[-1][1]


def hard_cases(seeds: Sequence[int]) -> dict[str, list[tuple[str, float, float]]]:
    """Thin, drifting and swapped histories: the case, and looks and delay beside the fallback."""
    cases: dict[str, list[tuple[str, float, float]]] = {"thin": [], "drift": [], "swapped": []}
    for name, family in FAMILIES.items():
        for size in (5, 20, 50):
            cases["thin"].append((f"{name}, {size} runs", *_thin(family, size, seeds)))
        for drift, factor in DRIFTS.items():
            cases["drift"].append((f"{name}, {drift}", *_drifting(family, factor, seeds)))
        for other, before in FAMILIES.items():
            if other != name:
                cases["swapped"].append((f"{name} after {other}", *_swapped(before, family, seeds)))
    return cases


def _seen(durations: Sequence[float], seed: int) -> list[PastRun]:
    """What the fallback's looks saw of these runs, newest first."""
    rng = Random(seed)
    plan = Plan(Waits(FALLBACK))
    return [_looked(plan, duration_s, None, rng)[1] for duration_s in durations]


def _beside(learned: Found, plain: Found) -> tuple[float, float]:
    return learned.looks / plain.looks, learned.delay_s / plain.delay_s


def _thin(family: Family, size: int, seeds: Sequence[int]) -> tuple[float, float]:
    """Many short histories of that size, each followed by runs that teach nothing more."""
    learned = plain = Found()
    for seed in seeds:
        for part in range(10):
            number = seed * 100 + part
            history, durations = _seen(drawn(family, number, size), number), drawn(family, number + 50, 60)
            learned += by_learning(durations, number, skipped=0, history=history, learns=False)
            plain += by_backoff(durations, number + 1, skipped=0)
    return _beside(learned, plain)


def _drifting(family: Family, factor: Callable[[int], float], seeds: Sequence[int]) -> tuple[float, float]:
    learned = plain = Found()
    for seed in seeds:
        durations = [min(one * factor(number), LIMIT_S) for number, one in enumerate(drawn(family, seed, 200))]
        learned += by_learning(durations, seed, skipped=40)
        plain += by_backoff(durations, seed + 1, skipped=40)
    return _beside(learned, plain)


def _swapped(before: Family, family: Family, seeds: Sequence[int]) -> tuple[float, float]:
    learned = plain = Found()
    for seed in seeds:
        history, durations = _seen(drawn(before, seed + 7, 100), seed), drawn(family, seed, 60)
        learned += by_learning(durations, seed, skipped=0, history=history)
        plain += by_backoff(durations, seed + 1, skipped=0)
    return _beside(learned, plain)


def worse_on_both(cases: Sequence[tuple[str, float, float]]) -> list[str]:
    """Those that make more looks than the fallback and find the end later."""
    return [name for name, looks, delay in cases if looks > 1 and delay > 1]


def progress_gain(percentage: str, name: str, seeds: Sequence[int]) -> float:
    """How many times smaller looks * delay is with the percentage than without."""
    with_it = without = Found()
    for seed in seeds:
        with_it += by_learning(drawn(FAMILIES[name], seed), seed, percentage=PERCENTAGES[percentage])
        without += _without_progress(name, seed)
    return without.looks * without.delay_s / (with_it.looks * with_it.delay_s)


@cache
def _without_progress(name: str, seed: int) -> Found:
    return by_learning(drawn(FAMILIES[name], seed), seed)


def costs() -> tuple[float, float]:
    """CPU milliseconds of a plan, CPU microseconds of a decision: of the dearest kind, the best of several rounds.

    The dearest plan is that of 200 runs that reported progress in each tenth, for a share of looks that the user names.
    """
    rng, marks = Random(1), ((0.45, 90.0),)
    seen = _seen(drawn(_mixture, 1, REMEMBERED), 1)
    shares = [number / 10 + 0.05 for number in range(10)]
    history = [PastRun(one.running_s, one.ended_s, tuple((x, x * one.middle_s) for x in shares)) for one in seen]
    plans, decisions = [], []
    for _ in range(9):
        began = time.process_time()
        plan = planned(FALLBACK, 0.5, 1.0, history)
        plans.append((time.process_time() - began) * 1e3)
        began = time.process_time()
        for number in range(1_000):
            plan.next_look(3, number * 0.2, marks, rng)
        decisions.append((time.process_time() - began) * 1e3)
    return min(plans), min(decisions)


def run(quick: bool) -> Report:
    """The tables, and the picture of the documentation."""
    seeds = SEEDS[:1] if quick else SEEDS
    few = seeds[:2]
    columns = ("durations", "looks, share", "delay, share", "fewer looks at equal delay", "less delay at equal looks")
    report = Report("cadence", "When to look: a cadence that learns, beside doubling waits", columns)
    found = {name: gains(name, seeds) for name in FAMILIES}
    for name, one in found.items():
        report.rows.append((name, *(f"{x:.2f}" for x in (one.looks, one.delay, one.fewer, one.sooner))))
        report.ratios.append(Ratio(f"{name}: the worse of looks and delay", max(one.looks, one.delay), at_most=0.95))
        if name in WANTED:
            best = max(one.fewer, one.sooner)
            report.ratios.append(Ratio(f"{name}: better on one axis", best, at_least=WANTED[name]))
    for kind, cases in hard_cases(few).items():
        worse = worse_on_both(cases)
        report.ratios.append(Ratio(f"{kind}: cases of {len(cases)} worse on both", len(worse), at_most=0.5))
        report.notes += [f"{kind}, worse on both: {name}" for name in worse]
        report.samples[kind] = cases
        if kind == "thin":
            after_five = [one for one in cases if one[0].endswith(", 5 runs")]
            report.ratios.append(Ratio("five runs: most looks", max(one[1] for one in after_five), at_most=1.0))
            report.ratios.append(Ratio("five runs: most delay", max(one[2] for one in after_five), at_most=1.1))
    for percentage in PERCENTAGES:
        each = {name: progress_gain(percentage, name, seeds if quick else PROGRESS_SEEDS) for name in FAMILIES}
        report.samples[f"progress, {percentage}"] = each
        low, high = min(each.values()), max(each.values())
        wanted = {"honest": 2.5, "unrelated": 0.93, "random": 0.93}.get(percentage)
        report.ratios.append(
            Ratio(f"progress, {percentage}: looks * delay, least", low, at_least=wanted, low=low, high=high)
        )
    plan_ms, decision_us = costs()
    report.ratios.append(Ratio("CPU of a plan, ms", plan_ms, at_most=10.0))
    report.ratios.append(Ratio("CPU of a decision, us", decision_us, at_most=10.0))
    report.notes.append("A simulation with fixed seeds: but for CPU, the figures are the same on every machine.")
    if not quick:
        PLOT.write_text(bars_svg({name: (one.looks, one.delay) for name, one in found.items()}))
    return report
