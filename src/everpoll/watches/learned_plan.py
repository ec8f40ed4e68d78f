"""The plan of a learned cadence: when to look, from when earlier runs ended.

    runs ──weighted──▶ spans ──smeared──▶ Curve (the share that has ended by t) ──solved──▶ Plan ──look-up──▶ next look

Promises: pure; never raises, for any history. A plan is made once, where the history is read; a decision is a look-up.
Whatever the history says, the nth look never comes before the nth of the fallback, and no gap is longer than four caps
of the fallback or half of the time elapsed, whichever is longer (before jitter).
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from everpoll.policy import Backoff, Rng, human
from everpoll.policy.durations import LONGEST_S
from everpoll.policy.jitter import spread

FEWEST = 5
"""Ends that make a distribution; with fewer, the fallback decides."""
HALF_LIFE = 60
"""Runs after which a run counts half."""
NEWEST = 6
"""At least this many runs must differ from the older ones before those are forgotten …"""
ERRORS_APART = 4.0
"""… by this many standard errors of the log duration."""
NEIGHBOURS = 0.7
"""A run is spread as far as its 0.7 * sqrt(n)-th neighbour."""
POINTS = 400
KNOWN = 0.985
"""Past this share of the ends the waits are those of the fallback."""
TRUST = 10
"""Runs at which a look is worth half of what it is worth with a long history: thin histories look more often."""
BALANCE = 1.1
"""Looks shrink this much more than the delay: of the worths nearby, these have the least product of both."""
SOLUTIONS = 4
PRICES = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.12, 0.06, 0.03, 0.015)
"""Worths that are tried where the user names a share of looks, as multiples of what the fallback pays."""
CAPS = 4.0
JITTER = 0.1
STEPS = 300
"""Looks that are followed one by one in a forecast; the rest is taken as even."""
NARROWER = 0.7
"""Progress is used where its forecast is narrower than that of the durations by this factor."""
LEAST_S = 1e-6


@dataclass(frozen=True, slots=True)
class PastRun:
    """When an earlier run ended, as far as its looks can tell."""

    running_s: float
    """Since its start: the last look that saw it running."""
    ended_s: float
    """The first look that saw it ended; infinity: the run timed out or was canceled."""
    progress: tuple[tuple[float, float], ...] = ()
    """What the remote reported: the first (share, seconds since the start) in each tenth."""

    @property
    def middle_s(self) -> float:
        """Where it ended, as one number; for a run that was given up: how long it ran at least."""
        return self.running_s if self.ended_s >= LONGEST_S else (self.running_s + self.ended_s) / 2


def weighted(runs: Sequence[PastRun]) -> list[tuple[PastRun, float]]:
    """Runs, newest first, with their weights. If the newest ones clearly differ from the rest, only they are kept."""
    return [(run, 0.5 ** (age / HALF_LIFE)) for age, run in enumerate(runs[: _newest_alike(runs)])]


def _newest_alike(runs: Sequence[PastRun]) -> int:
    """How many of the newest runs belong together: all, unless the durations have changed."""
    logs = [math.log(max(run.middle_s, 0.001)) for run in runs]
    count, sums, squares = len(logs), [0.0, *accumulate(logs)], sum(one * one for one in logs)
    best, apart = count, ERRORS_APART
    for newest in range(NEWEST, count - NEWEST + 1):
        rest = count - newest
        mean, other = sums[newest] / newest, (sums[count] - sums[newest]) / rest
        within = max(squares - newest * mean * mean - rest * other * other, 0.0) / (count - 2)
        error = math.sqrt((within + 1e-4) * (1 / newest + 1 / rest))
        if abs(mean - other) / error > apart:
            best, apart = newest, abs(mean - other) / error
    return best


class Curve:
    """The share of runs that has ended by a time, on points that are close where many runs end."""

    __slots__ = ("area", "ended", "ends", "known_s", "left", "points", "steps")

    def __init__(self, pieces: Sequence[tuple[float, float, float]], behind: float, ends: int) -> None:
        self.ends = ends
        xs, masses = _summed(pieces)
        total = masses[-1] + behind
        shares = [mass / total for mass in masses]
        xs, shares = _cut(xs, shares, KNOWN * shares[-1])
        self.known_s = xs[-1]
        self.points, self.steps = _resampled(xs, shares)
        self.ended = _interpolated(self.points, xs, shares)
        points, ended = self.points, self.ended
        gaps = [b - a for a, b in pairwise(points)]
        self.area = [0.0, *accumulate(g * (a + b) / 2 for g, a, b in zip(gaps, ended, ended[1:], strict=False))]
        # The cost of an optimal plan from each point on is proportional to this integral of sqrt(density * survival).
        roots = [
            math.sqrt(max(b - a, 0.0) * g * (1 - (a + b) / 2)) for g, a, b in zip(gaps, ended, ended[1:], strict=False)
        ]
        self.left = [*reversed([0.0, *accumulate(reversed(roots))])]

    def place(self, at_s: float) -> tuple[int, float]:
        """The point before, and how far towards the next one."""
        index = min(bisect_right(self.points, at_s), len(self.points) - 1) - 1
        index = max(index, 0)
        start, end = self.points[index], self.points[index + 1]
        return index, min(max((at_s - start) / (end - start), 0.0), 1.0)

    def at(self, values: Sequence[float], at_s: float) -> float:
        """A value of this curve at that time."""
        index, share = self.place(at_s)
        return values[index] + share * (values[index + 1] - values[index])

    def width(self, at_s: float) -> float:
        """How much it costs to find the end of a run that still runs at that time; less is narrower."""
        return self.at(self.left, at_s) / (1 - self.at(self.ended, at_s))

    def time_of(self, values: Sequence[float], value: float) -> float:
        """When rising values reach this one; infinity: never within the curve."""
        index = bisect_right(values, value) - 1
        if index >= len(values) - 1:
            return math.inf
        share = (value - values[index]) / (values[index + 1] - values[index])
        return self.points[index] + share * (self.points[index + 1] - self.points[index])

    def forecast(self, waits: "Waits") -> tuple[float, float]:
        """Mean looks and mean delay of these waits, over the runs that end within the curve."""
        at_s = looks = delay_s = 0.0
        gap_s, number = 1.0, 0
        while at_s < self.known_s and number < STEPS:
            gap_s = waits.wait_s(number, at_s)
            ended, area = self.at(self.ended, at_s), self.at(self.area, at_s)
            next_s = at_s + gap_s
            over_s = max(0.0, next_s - self.known_s)
            looks += 1 - ended
            delay_s += self.at(self.area, next_s) + over_s * self.ended[-1] - area - ended * gap_s
            at_s, number = next_s, number + 1
        if at_s < self.known_s:
            rest_s = self.known_s - at_s - (self.area[-1] - self.at(self.area, at_s))
            looks += rest_s / gap_s
            delay_s += (self.ended[-1] - self.at(self.ended, at_s)) * gap_s / 2
        return looks, max(delay_s, LEAST_S)


def curve_of(spans: Sequence[tuple[float, float, float]]) -> Curve | None:
    """Spans (from, to, weight) as one curve; None where too few of them have an end.

    Each run is spread evenly over its span, widened to its neighbours. A run that was given up passes its weight to
    those that took longer. Half an imagined run lies before the last end, one behind it.
    """
    found = sorted(((low + high) / 2 if high < LONGEST_S else low, low, high, weight) for low, high, weight in spans)
    ends = [one for one in found if one[2] < LONGEST_S]
    if len(ends) < FEWEST or ends[-1][0] <= 0:
        return None
    reach = max(1, round(NEIGHBOURS * math.sqrt(len(ends)) / 2))
    pieces: list[tuple[float, float, float]] = []
    later, factor, number = sum(one[3] for one in found) + 1.0, 1.0, 0
    for middle, low, high, weight in found:
        later -= weight
        if high >= LONGEST_S:
            factor *= 1 + weight / later
            continue
        before = middle - ends[number - reach][0] if number >= reach else math.inf
        behind = ends[number + reach][0] - middle if number + reach < len(ends) else math.inf
        # At the first and the last ends there are neighbours on one side only.
        before, behind = (min(before, behind),) * 2 if math.inf in (before, behind) else (before, behind)
        before, behind = (0.0, 0.0) if before == math.inf else (before, behind)
        narrow = max(middle * 0.001, LEAST_S)
        start, end = max(0.0, min(low, middle - before)), max(high, middle + behind)
        pieces.append((start, max(end, start + narrow), weight * factor))
        number += 1
    pieces.append((0.0, max(end for _, end, _ in pieces), 0.5))
    curve = Curve(pieces, factor, len(ends))
    return curve if len(curve.points) > 1 else None


def _summed(pieces: Sequence[tuple[float, float, float]]) -> tuple[list[float], list[float]]:
    """Where the sum of even pieces bends, and how much lies before each of these points."""
    bends: dict[float, float] = {0.0: 0.0}
    for start, end, mass in pieces:
        rate = mass / (end - start)
        bends[start] = bends.get(start, 0.0) + rate
        bends[end] = bends.get(end, 0.0) - rate
    xs = sorted(bends)
    masses, rate = [0.0], 0.0
    for start, end in pairwise(xs):
        rate += bends[start]
        masses.append(masses[-1] + max(rate, 0.0) * (end - start))
    return xs, masses


def _cut(xs: list[float], shares: list[float], most: float) -> tuple[list[float], list[float]]:
    index = max(1, bisect_right(shares, most))
    if index >= len(xs):
        return xs, shares
    start, end, low, high = xs[index - 1], xs[index], shares[index - 1], shares[index]
    at = start + (end - start) * (most - low) / (high - low)
    return ([*xs[:index], at], [*shares[:index], most]) if at > start else (xs[:index], shares[:index])


def _resampled(xs: Sequence[float], shares: Sequence[float]) -> tuple[list[float], list[float]]:
    """Points at equal steps of the integral of sqrt(hazard), and that integral at each."""
    sums = [0.0]
    for start, end, low, high in zip(xs, xs[1:], shares, shares[1:], strict=False):
        # sqrt(hazard) * gap, with hazard = (high - low) / gap / survival
        sums.append(sums[-1] + math.sqrt((high - low) * (end - start) / (1 - (low + high) / 2)))
    steps = [sums[-1] * number / POINTS for number in range(POINTS + 1)]
    points = _interpolated(steps, sums, xs)
    points[-1] = xs[-1]
    kept = [0, *(n for n in range(1, POINTS + 1) if points[n] > points[n - 1])]
    return [points[n] for n in kept], [steps[n] for n in kept]


def _interpolated(wanted: Sequence[float], xs: Sequence[float], ys: Sequence[float]) -> list[float]:
    """The values of a line with bends, at rising places."""
    found, index = [], 0
    for x in wanted:
        while index < len(xs) - 2 and xs[index + 1] < x:
            index += 1
        gap = xs[index + 1] - xs[index]
        share = 1.0 if gap <= 0 else min(max((x - xs[index]) / gap, 0.0), 1.0)
        found.append(ys[index] + share * (ys[index + 1] - ys[index]))
    return found


def solved(curve: Curve, price_s: float) -> list[float]:
    """For each point of the curve, when to look next if a look costs as much as waiting `price_s`.

    Dynamic programming from the last point to the first. What a gap costs is a line in the share that has ended, so
    the best next point is found on the lower hull of lines: 400 points take 400 steps and not 80,000.
    """
    points, ended, area = curve.points, curve.ended, curve.area
    last = len(points) - 1
    slopes, bases = [-points[last]], [area[last]]
    nexts, front = [points[last]] * (last + 1), 0
    for index in range(last - 1, -1, -1):
        share = ended[index]
        while (
            front + 1 < len(slopes)
            and bases[front + 1] + slopes[front + 1] * share <= bases[front] + slopes[front] * share
        ):
            front += 1
        nexts[index] = -slopes[front]
        cost = price_s * (1 - share) + bases[front] + slopes[front] * share - area[index] + share * points[index]
        slope, base = -points[index], cost + area[index]
        while len(slopes) - front >= 2 and (base - bases[-2]) * (slopes[-1] - slopes[-2]) <= (bases[-1] - bases[-2]) * (
            slope - slopes[-2]
        ):
            slopes.pop()
            bases.pop()
        slopes.append(slope)
        bases.append(base)
    return nexts


@dataclass(frozen=True, slots=True)
class Waits:
    """A plan beside its fallback: the bounds that hold whatever the history says."""

    fallback: Backoff
    least_s: float = 0.0
    curve: Curve | None = None
    nexts: Sequence[float] = ()

    def wait_s(self, looks: int, elapsed_s: float) -> float:
        """How long after that many looks and that much time, without jitter."""
        if self.curve is None or elapsed_s >= self.curve.known_s:
            return self.fallback.wait_s(looks + 1)
        return self.bounded_s(looks, elapsed_s, self.curve.at(self.nexts, elapsed_s) - elapsed_s)

    def bounded_s(self, looks: int, elapsed_s: float, wished_s: float) -> float:
        """What is wished for, within the bounds."""
        own_s = self.fallback.wait_s(looks + 1)
        # Pending facts and people can cause more looks than the fallback would make: then its own wait is the floor.
        floor_s = own_s - max(0.0, elapsed_s - waited_s(self.fallback, looks))
        cap_s = own_s if self.fallback.cap_s >= LONGEST_S else self.fallback.cap_s
        return max(floor_s, min(max(wished_s, self.least_s), max(CAPS * cap_s, elapsed_s / 2)), LEAST_S)


def waited_s(backoff: Backoff, looks: int) -> float:
    """When the nth look of a backoff comes: the sum of its first n waits, without jitter."""
    steady = min(looks, backoff.steady)
    grown, limit = looks - steady, backoff.cap_s / backoff.initial_s
    factor = backoff.factor
    if factor == 1.0:
        return looks * backoff.initial_s
    growing = min(grown, math.floor(math.log(limit) / math.log(factor) + 1e-9))
    sum_s = factor * (factor**growing - 1) / (factor - 1) * backoff.initial_s
    return steady * backoff.initial_s + sum_s + (grown - growing) * backoff.cap_s


@dataclass(frozen=True, slots=True)
class Plan:
    """When to look, for runs of one history."""

    waits: Waits
    price_s: float = 0.0
    """What a look is worth, in seconds of waiting."""
    by_progress: tuple[Curve | None, ...] = ()
    """For each tenth: the end of a run as a multiple of the end that its progress promised."""

    def next_look(
        self, looks: int, elapsed_s: float, progress: Sequence[tuple[float, float]], rng: Rng
    ) -> tuple[float, str]:
        """Seconds until the next look, and why."""
        waits = self.waits
        curve = waits.curve
        if forecast := self._by_progress(elapsed_s, progress):
            wished_s, why = forecast
            return spread(waits.bounded_s(looks, elapsed_s, wished_s), JITTER, rng.random()), why
        if curve is None or elapsed_s >= curve.known_s:
            wait_s = waits.fallback.delay(looks + 1, rng)
            known = f"fewer than {FEWEST} runs have ended" if curve is None else "longer than nearly all earlier runs"
            return wait_s, f"{known}: the backoff says {human(round(wait_s, 1))}"
        wait_s = waits.wait_s(looks, elapsed_s)
        return spread(wait_s, JITTER, rng.random()), _in_words(curve, elapsed_s, wait_s)

    def _by_progress(self, elapsed_s: float, progress: Sequence[tuple[float, float]]) -> tuple[float, str] | None:
        if not progress or not self.by_progress:
            return None
        share, at_s = progress[-1]
        curve, scale_s = self.by_progress[tenth(share)], at_s / share
        if curve is None or scale_s <= 0 or elapsed_s / scale_s >= curve.known_s:
            return None
        known, passed = self.waits.curve, elapsed_s / scale_s
        width = math.sqrt(scale_s) * curve.width(passed)
        if known is not None and elapsed_s < known.known_s and width > NARROWER * known.width(elapsed_s):
            return None
        # Looks are best at equal steps of the integral of sqrt(hazard), each as long as sqrt(2 * price).
        step = math.sqrt(2 * self.price_s / scale_s)
        until = min(curve.time_of(curve.steps, curve.at(curve.steps, passed) + step), curve.known_s)
        likely_s = curve.time_of(curve.ended, (1 + curve.at(curve.ended, passed)) / 2) * scale_s - elapsed_s
        when = f"half of such runs ended within the next {_short(likely_s)}" if likely_s < math.inf else "it ends soon"
        return until * scale_s - elapsed_s, f"{share:.0%} after {_short(at_s)}: {when}"


def tenth(share: float) -> int:
    """Which tenth of the way this share lies in."""
    return min(9, int(share * 10))


def _in_words(curve: Curve, elapsed_s: float, wait_s: float) -> str:
    ended = curve.at(curve.ended, elapsed_s)
    half_s = curve.time_of(curve.ended, (1 + ended) / 2) - elapsed_s
    if half_s < math.inf:
        so_far = "the runs" if elapsed_s <= 0 else "the runs that took this long"
        return f"half of {so_far} ended within the next {_short(half_s)}"
    soon = (curve.at(curve.ended, elapsed_s + wait_s) - ended) / (1 - ended)
    return f"{soon:.0%} of the runs that took this long ended within the next {_short(wait_s)}"


def _short(value_s: float) -> str:
    return human(round(value_s, 1) if value_s < 10 else round(value_s))


def planned(fallback: Backoff, looks: float | None, least_s: float, runs: Sequence[PastRun]) -> Plan:
    """The plan for runs of this history, newest first."""
    known = weighted([run for run in runs if 0 <= run.running_s <= min(run.ended_s, LONGEST_S)])
    curve = curve_of([(run.running_s, run.ended_s, weight) for run, weight in known])
    if curve is None:
        return Plan(Waits(fallback))
    own_looks, own_delay_s = curve.forecast(Waits(fallback))
    base_s = own_delay_s / own_looks

    def tried(price_s: float) -> tuple[Waits, float, float]:
        waits = Waits(fallback, least_s, curve, solved(curve, price_s))
        some_looks, delay_s = curve.forecast(waits)
        return waits, some_looks / own_looks, delay_s / own_delay_s

    by_progress = _progress_curves(known)
    if looks is not None:
        found = [(price * base_s, *tried(price * base_s)) for price in PRICES]
        allowed = [one for one in found if one[2] <= looks] or found[:1]
        price_s, waits, _, _ = min(allowed, key=lambda one: one[3])
        return Plan(waits, price_s, by_progress)
    trust = curve.ends**2 / (curve.ends**2 + TRUST**2)
    price_s = base_s * trust
    waits, fewer, sooner = tried(price_s)
    for _ in range(SOLUTIONS - 1):
        factor = min(max(fewer / sooner * BALANCE * trust, 1 / 16), 16.0)
        if abs(math.log(factor)) < 0.1:
            break
        price_s *= factor
        waits, fewer, sooner = tried(price_s)
    return Plan(waits, price_s, by_progress)


def _progress_curves(known: Sequence[tuple[PastRun, float]]) -> tuple[Curve | None, ...]:
    """How the end of a run compares with the end that its progress promised, for each tenth of the way."""
    spans: list[list[tuple[float, float, float]]] = [[] for _ in range(10)]
    for run, weight in known:
        for share, at_s in run.progress:
            if share > 0 and at_s > 0:
                spans[tenth(share)].append((run.running_s * share / at_s, run.ended_s * share / at_s, weight))
    return tuple(curve_of(one) for one in spans) if any(spans) else ()
