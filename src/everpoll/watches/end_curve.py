"""The curve of a history: which share of the runs has ended by a time.

    spans ──widened to their neighbours, summed──▶ shares ──cut where little is known, resampled──▶ Curve

Promises: pure. A curve has at least two points, and its times and shares rise.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

from everpoll.policy.durations import LONGEST_S

FEWEST = 5
"""With fewer ended runs than this, the fallback decides."""
NEIGHBOURS = 0.7
"""A run is spread up to its 0.7 * sqrt(n)-th neighbour, of n ends."""
POINTS = 400
KNOWN = 0.985
"""Beyond this share of the ends, the fallback decides the waits."""
LEAST_S = 1e-6

Span = tuple[float, float, float]
"""From, to, and weight: somewhere in between, that much of a run has ended."""


class Curve:
    """The share of runs that has ended by a time, on points that are close together where many runs end."""

    __slots__ = ("area", "ended", "ends", "known_s", "left", "points", "steps")

    def __init__(self, xs: list[float], masses: list[float], later_mass: float, ends: int, points: int) -> None:
        """Make the curve of a line that rises to the mass of all ends; `later_mass` lies after its last point."""
        self.ends = ends
        """The number of ended runs that it was made from."""
        total = masses[-1] + later_mass
        shares = [mass / total for mass in masses]
        xs, shares = _cut(xs, shares, KNOWN * shares[-1])
        self.known_s = xs[-1]
        self.points, self.steps = _resampled(xs, shares, points)
        ended = self.ended = _interpolated(self.points, xs, shares)
        self.area, roots = [0.0], []
        """The integral of `ended` up to each point."""
        for (start, end), (low, high) in zip(pairwise(self.points), pairwise(ended), strict=True):
            middle = (low + high) / 2
            self.area.append(self.area[-1] + (end - start) * middle)
            roots.append(math.sqrt(max(high - low, 0.0) * (end - start) * (1 - middle)))
        self.left = [*reversed([0.0, *accumulate(reversed(roots))])]
        """The integral of sqrt(density * survival) from each point on: the cost of an optimal plan is proportional."""

    def place(self, at_s: float) -> tuple[int, float]:
        """Return the point before a time, and how far it is from there towards the next point."""
        points = self.points
        index = max(min(bisect_right(points, at_s), len(points) - 1) - 1, 0)
        start, end = points[index], points[index + 1]
        return index, min(max((at_s - start) / (end - start), 0.0), 1.0)

    @staticmethod
    def value(values: Sequence[float], place: tuple[int, float]) -> float:
        """Return a value of this curve at that place."""
        index, share = place
        low = values[index]
        return low + share * (values[index + 1] - low)

    def at(self, values: Sequence[float], at_s: float) -> float:
        """Return a value of this curve at that time."""
        return self.value(values, self.place(at_s))

    def width_at(self, place: tuple[int, float]) -> float:
        """Return the cost of finding the end of a run that still runs at that place; less means a narrower forecast."""
        return self.value(self.left, place) / (1 - self.value(self.ended, place))

    def time_of(self, values: Sequence[float], value: float) -> float:
        """Return when rising values reach this one; infinity if they do not within the curve."""
        index = bisect_right(values, value) - 1
        if index >= len(values) - 1:
            return math.inf
        return self.value(self.points, (index, (value - values[index]) / (values[index + 1] - values[index])))


def curve_of(spans: Sequence[Span], points: int = POINTS, rounds: int = 0) -> Curve | None:
    """Make one curve of spans; None if too few of them have an end.

    Each run is spread evenly over its span, which is widened to its neighbours. A run that was given up passes its
    weight to the runs that took longer. The weight of half an imagined run lies before the last end, and that of a
    whole one after it. In each of `rounds`, each run is spread again over its span, now in proportion to the curve of
    the round before: more weight lies where other runs ended.
    """
    found = sorted(((low + high) / 2 if high < LONGEST_S else low, low, high, weight) for low, high, weight in spans)
    ends = [one for one in found if one[2] < LONGEST_S]
    if len(ends) < FEWEST or ends[-1][0] <= 0:
        return None
    reach = max(1, round(NEIGHBOURS * math.sqrt(len(ends)) / 2))
    pieces: list[Span] = []
    later, factor, number = sum(one[3] for one in found) + 1.0, 1.0, 0
    for middle, low, high, weight in found:
        later -= weight
        if high >= LONGEST_S:
            factor *= 1 + weight / later
            continue
        before = middle - ends[number - reach][0] if number >= reach else math.inf
        behind = ends[number + reach][0] - middle if number + reach < len(ends) else math.inf
        # The first and the last ends have neighbours on one side only.
        before, behind = (min(before, behind),) * 2 if math.inf in (before, behind) else (before, behind)
        before, behind = (0.0, 0.0) if before == math.inf else (before, behind)
        narrow = max(middle * 0.001, LEAST_S)
        start, end = max(0.0, min(low, middle - before)), max(high, middle + behind)
        pieces.append((start, max(end, start + narrow), weight * factor))
        number += 1
    imagined = (0.0, max(end for _, end, _ in pieces), 0.5)
    xs, masses = _summed([*pieces, imagined])
    for _ in range(rounds):
        masses = _sharpened(pieces, imagined, xs, masses)
    curve = Curve(xs, masses, factor, len(ends), points)
    return curve if len(curve.points) > 1 else None


def _summed(pieces: Sequence[Span]) -> tuple[list[float], list[float]]:
    """Return where the sum of even pieces bends, and how much of it lies before each of these points."""
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


def _sharpened(pieces: Sequence[Span], imagined: Span, xs: Sequence[float], masses: Sequence[float]) -> list[float]:
    """Spread each piece again, in proportion to the curve: most of a wide piece belongs where narrow ones are."""
    place = {x: index for index, x in enumerate(xs)}
    rates = [0.0] * len(xs)
    for start, end, mass in pieces:
        first, last = place[start], place[end]
        rate = mass / (masses[last] - masses[first])
        rates[first] += rate
        rates[last] -= rate
    sums, rate, even = [0.0], 0.0, imagined[2] / imagined[1]
    for index in range(len(xs) - 1):
        rate += rates[index]
        gap = even * (xs[index + 1] - xs[index])
        sums.append(sums[-1] + max(rate, 0.0) * (masses[index + 1] - masses[index]) + gap)
    return sums


def _cut(xs: list[float], shares: list[float], most: float) -> tuple[list[float], list[float]]:
    """Return the line up to the place where it reaches `most`."""
    index = max(1, bisect_right(shares, most))
    if index >= len(xs):
        return xs, shares
    start, end, low, high = xs[index - 1], xs[index], shares[index - 1], shares[index]
    at = start + (end - start) * (most - low) / (high - low)
    return ([*xs[:index], at], [*shares[:index], most]) if at > start else (xs[:index], shares[:index])


def _resampled(xs: Sequence[float], shares: Sequence[float], count: int) -> tuple[list[float], list[float]]:
    """Return points at equal steps of the integral of sqrt(hazard), and that integral at each."""
    sums = [0.0]
    for (start, end), (low, high) in zip(pairwise(xs), pairwise(shares), strict=True):
        # sqrt(hazard) * gap, with hazard = (high - low) / gap / survival
        sums.append(sums[-1] + math.sqrt((high - low) * (end - start) / (1 - (low + high) / 2)))
    steps = [sums[-1] * number / count for number in range(count + 1)]
    points = _interpolated(steps, sums, xs)
    points[-1] = xs[-1]
    kept = [0, *(n for n in range(1, count + 1) if points[n] > points[n - 1])]
    return [points[n] for n in kept], [steps[n] for n in kept]


def _interpolated(wanted: Sequence[float], xs: Sequence[float], ys: Sequence[float]) -> list[float]:
    """Return the values of a line with bends, at rising places within it."""
    found, index, last = [], 0, len(xs) - 2
    for x in wanted:
        while index < last and xs[index + 1] < x:
            index += 1
        start, gap = xs[index], xs[index + 1] - xs[index]
        low, high = ys[index], ys[index + 1]
        found.append(high if x - start >= gap else low + (x - start) / gap * (high - low))
    return found
