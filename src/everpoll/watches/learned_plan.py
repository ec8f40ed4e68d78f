"""The plan of a learned cadence: when to look, derived from when earlier runs ended.

    runs ──weighted──▶ spans ──▶ Curve (the share that has ended by t) ──solved──▶ Plan ──look-up──▶ next look

Promises: pure; never raises, for any history. A plan is made once, where the history is read; a decision is a look-up.
For any history, the nth look never comes before the fallback's nth look, and no wait is longer than four caps of the
fallback or half of the elapsed time, whichever is longer (before jitter).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from everpoll.policy import Backoff, Rng, human
from everpoll.policy.durations import LONGEST_S
from everpoll.policy.jitter import spread
from everpoll.watches.end_curve import FEWEST, LEAST_S, Curve, Span, curve_of
from everpoll.watches.past_runs import Mark, PastRun, is_usable, tenth, weighted

TRUST = 6.5
"""With this many runs, a look costs half as much as with a long history, so a watch with few runs looks more often.

With 10, five runs of about 10 minutes change nothing; with 6, the ends of five runs that take 5 or 180 s are noticed
12 % later."""
BALANCE = 1.1
"""The number of looks shrinks by this factor more than the delay. Of the factors near 1 that were measured, this one
has the smallest product of looks and delay."""
SOLUTIONS = 4
PRICES = (8.0, 2.0, 0.5, 0.12, 0.03)
"""Prices of a look that are tried if the user names a share of looks, as multiples of the price that the fallback pays;

then half and twice the best of them."""
PROGRESS_POINTS = 100
"""Points of the curves of progress: ten of them are made for each plan, and no dynamic programming runs over them."""
PROGRESS_RUNS = 40
"""How many runs make the curve of each tenth of progress: the newest that reported progress there."""
ROUNDS = 3
"""How often the spans of progress are sharpened. Without this, a cadence that looks at 80 % and at 110 % never learns
that the end is at 100 %. Measured on short runs with an honest percentage: a gain of 1.6 to 2.3 without it, of 2.5 to 4
with it."""
CAPS = 4.0
JITTER = 0.1
STEPS = 300
"""How many looks a forecast adds up one by one; it takes the rest as evenly spaced."""
NARROWER = 0.7
"""Progress is used where its forecast is narrower than that of the durations by this factor …"""
FEW = 4
"""… times n / (n + 4) for the n runs that it is made from: few runs can look narrow by chance. With 4, a percentage
that has nothing to do with the operation costs 6 % in the worst case that was measured; with 3, 7 %."""


def solved(curve: Curve, price_s: float) -> list[float]:
    """Return for each point of the curve when to look next, if one look costs as much as a delay of `price_s`.

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
    """The waits of a plan, within the bounds that the fallback sets for any history."""

    fallback: Backoff
    least_s: float = 0.0
    curve: Curve | None = None
    nexts: Sequence[float] = ()

    def wait_s(self, looks: int, elapsed_s: float) -> float:
        """Return the wait after that many looks and that much time, without jitter."""
        if self.curve is None or elapsed_s >= self.curve.known_s:
            return self.fallback.wait_s(looks + 1)
        return self.bounded_s(looks, elapsed_s, self.curve.at(self.nexts, elapsed_s) - elapsed_s)

    def bounded_s(self, looks: int, elapsed_s: float, wished_s: float) -> float:
        """Return the wait that was wished for, within the bounds."""
        own_s = self.fallback.wait_s(looks + 1)
        # A look that jitter made early is followed by a longer wait: else looks would come earlier and earlier. Hints
        # and callers can cause more looks than the fallback makes: then the fallback's own wait is the floor.
        ahead_s = waited_s(self.fallback, looks) - elapsed_s
        floor_s = own_s + ahead_s if ahead_s <= JITTER * own_s else own_s
        cap_s = own_s if self.fallback.cap_s >= LONGEST_S else self.fallback.cap_s
        return max(floor_s, min(max(wished_s, self.least_s), max(CAPS * cap_s, elapsed_s / 2)), LEAST_S)


def waited_s(backoff: Backoff, looks: int) -> float:
    """Return when the nth look of a backoff comes: the sum of its first n waits, without jitter."""
    steady = min(looks, backoff.steady)
    grown, limit = looks - steady, backoff.cap_s / backoff.initial_s
    factor = backoff.factor
    if factor == 1.0:
        return looks * backoff.initial_s
    growing = min(grown, math.floor(math.log(limit) / math.log(factor) + 1e-9))
    sum_s = factor * (factor**growing - 1) / (factor - 1) * backoff.initial_s
    return steady * backoff.initial_s + sum_s + (grown - growing) * backoff.cap_s


def forecast(curve: Curve, waits: Waits) -> tuple[float, float]:
    """Return the mean looks and the mean delay of these waits, over the runs that end within the curve."""
    at_s = looks = delay_s = 0.0
    gap_s, number = 1.0, 0
    while at_s < curve.known_s and number < STEPS:
        gap_s = waits.wait_s(number, at_s)
        ended, area = curve.at(curve.ended, at_s), curve.at(curve.area, at_s)
        next_s = at_s + gap_s
        over_s = max(0.0, next_s - curve.known_s)
        looks += 1 - ended
        delay_s += curve.at(curve.area, next_s) + over_s * curve.ended[-1] - area - ended * gap_s
        at_s, number = next_s, number + 1
    if at_s < curve.known_s:
        rest_s = curve.known_s - at_s - (curve.area[-1] - curve.at(curve.area, at_s))
        looks += rest_s / gap_s
        delay_s += (curve.ended[-1] - curve.at(curve.ended, at_s)) * gap_s / 2
    return looks, max(delay_s, LEAST_S)


@dataclass(frozen=True, slots=True)
class Plan:
    """When to look, for runs of one history."""

    waits: Waits
    price_s: float = 0.0
    """The price of a look, in seconds of delay."""
    by_progress: tuple[Curve | None, ...] = ()
    """For each tenth of progress: the end of a run as a multiple of the end that its progress predicted."""

    def next_look(self, looks: int, elapsed_s: float, progress: Sequence[Mark], rng: Rng) -> tuple[float, str]:
        """Return the seconds until the next look, and why."""
        waits = self.waits
        curve = waits.curve
        if found := self._by_progress(elapsed_s, progress):
            wished_s, why = found
            return spread(waits.bounded_s(looks, elapsed_s, wished_s), JITTER, rng.random()), why
        if curve is None or elapsed_s >= curve.known_s:
            wait_s = waits.fallback.delay(looks + 1, rng)
            known = f"fewer than {FEWEST} runs have ended" if curve is None else "longer than nearly all earlier runs"
            return wait_s, f"{known}: the backoff waits {human(round(wait_s, 1))}"
        wait_s = waits.wait_s(looks, elapsed_s)
        return spread(wait_s, JITTER, rng.random()), _in_words(curve, elapsed_s, wait_s)

    def _by_progress(self, elapsed_s: float, progress: Sequence[Mark]) -> tuple[float, str] | None:
        if not progress or not self.by_progress or not is_usable(progress[-1]):
            return None
        share, at_s = progress[-1]
        curve, scale_s = self.by_progress[tenth(share)], at_s / share
        if curve is None or not elapsed_s / scale_s < curve.known_s:
            return None
        known, place = self.waits.curve, curve.place(elapsed_s / scale_s)
        if known is not None and elapsed_s < known.known_s:
            width = math.sqrt(scale_s) * curve.width_at(place)
            if width > _narrower(curve.ends) * known.width_at(known.place(elapsed_s)):
                return None
        # Looks are best at equal steps of the integral of sqrt(hazard), each as long as sqrt(2 * price).
        step = math.sqrt(2 * self.price_s / scale_s)
        until = min(curve.time_of(curve.steps, curve.value(curve.steps, place) + step), curve.known_s)
        likely_s = curve.time_of(curve.ended, (1 + curve.value(curve.ended, place)) / 2) * scale_s - elapsed_s
        when = f"half of such runs ended within the next {_short(likely_s)}" if likely_s < math.inf else "it ends soon"
        return until * scale_s - elapsed_s, f"{share:.0%} after {_short(at_s)}: {when}"


def _narrower(ends: int) -> float:
    return NARROWER * ends / (ends + FEW)


def _in_words(curve: Curve, elapsed_s: float, wait_s: float) -> str:
    ended = curve.at(curve.ended, elapsed_s)
    half_s = curve.time_of(curve.ended, (1 + ended) / 2) - elapsed_s
    if half_s < math.inf:
        so_far = "the runs" if elapsed_s <= 0 else "the runs that took this long"
        return f"half of {so_far} ended within the next {_short(half_s)}"
    soon = (curve.at(curve.ended, elapsed_s + wait_s) - ended) / (1 - ended)
    return f"{soon:.0%} of the runs that took this long ended within the next {_short(wait_s)}"


@lru_cache(maxsize=1_000)
def _human(rounded_s: float) -> str:
    return human(rounded_s)


def _short(value_s: float) -> str:
    # A decision takes 7 us, of which 3 went into formatting durations; most durations repeat.
    return _human(round(value_s, 1) if value_s < 10 else round(value_s))


class _Tried(NamedTuple):
    price_s: float
    waits: Waits
    looks: float
    """As a share of the looks of the fallback."""
    delay: float
    """As a share of the delay of the fallback."""


def planned(fallback: Backoff, looks: float | None, least_s: float, runs: Sequence[PastRun]) -> Plan:
    """Return the plan for runs of this history, newest first."""
    known = weighted([run for run in runs if 0 <= run.running_s <= min(run.ended_s, LONGEST_S)])
    curve = curve_of([(run.running_s, run.ended_s, weight) for run, weight in known])
    if curve is None:
        return Plan(Waits(fallback))
    own_looks, own_delay_s = forecast(curve, Waits(fallback))
    base_s = own_delay_s / own_looks

    def tried(price_s: float) -> _Tried:
        waits = Waits(fallback, least_s, curve, solved(curve, price_s))
        some_looks, delay_s = forecast(curve, waits)
        return _Tried(price_s, waits, some_looks / own_looks, delay_s / own_delay_s)

    by_progress = _progress_curves(known)
    if looks is not None:
        found = [tried(price * base_s) for price in PRICES]
        price_s = _best(found, looks).price_s
        best = _best([*found, tried(price_s * 2), tried(price_s / 2)], looks)
        return Plan(best.waits, best.price_s, by_progress)
    trust = curve.ends**2 / (curve.ends**2 + TRUST**2)
    one = tried(base_s * trust)
    for _ in range(SOLUTIONS - 1):
        factor = min(max(one.looks / one.delay * BALANCE * trust, 1 / 16), 16.0)
        if abs(math.log(factor)) < 0.1:
            break
        one = tried(one.price_s * factor)
    return Plan(one.waits, one.price_s, by_progress)


def _best(found: Sequence[_Tried], looks: float) -> _Tried:
    """Return the plan with the least delay among those with few enough looks; the first plan if there is none."""
    return min([one for one in found if one.looks <= looks] or found[:1], key=lambda one: one.delay)


def _progress_curves(known: Sequence[tuple[PastRun, float]]) -> tuple[Curve | None, ...]:
    """Return a curve for each tenth of progress: the end of a run, relative to the end that its progress predicted."""
    spans: list[list[Span]] = [[] for _ in range(10)]
    for run, weight in known:
        for share, at_s in filter(is_usable, run.progress):
            one = spans[tenth(share)]
            if len(one) < PROGRESS_RUNS:
                one.append((run.running_s * share / at_s, run.ended_s * share / at_s, weight))
    return tuple(curve_of(one, PROGRESS_POINTS, ROUNDS) for one in spans) if any(spans) else ()
