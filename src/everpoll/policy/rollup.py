"""Rollups: totals of the looks at a service over a span of time.

    looks ──▶ Tally ──▶ Rollup of a minute ──merged──▶ of an hour ──merged──▶ of a day ──merged──▶ of any range

A look stands for the time until the next one was due. Uptime is a share of time and not of looks, because a service
that is down is looked at less often: its backoff grows.

Promises: merging is associative and commutative, since every figure is a whole number. Never rounds, never reads a
clock.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from everpoll.policy.histogram import Histogram, bucket_of

HealthWord = Literal["up", "degraded", "down", "unknown"]

NO_VALUES = Histogram()


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """How long a service was in which state, and its mean latency: what a list of many services shows."""

    up_ms: int = 0
    degraded_ms: int = 0
    down_ms: int = 0
    unknown_ms: int = 0
    """The time that looks stand for, by what they found."""
    timed: int = 0
    """Looks with a latency."""
    latency_sum_us: int = 0

    @property
    def latency_mean_ms(self) -> float | None:
        """The mean latency; None without latencies."""
        return self.latency_sum_us / self.timed / 1_000 if self.timed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollup(Availability):
    """All figures of a span of time."""

    up: int = 0
    degraded: int = 0
    down: int = 0
    unknown: int = 0
    """`up` to `unknown` count the looks that found the service in this state."""
    latency_min_us: int | None = None
    latency_max_us: int | None = None
    histogram: Histogram = NO_VALUES
    """The histogram of the latencies, in microseconds."""

    @property
    def count(self) -> int:
        """Looks."""
        return self.up + self.degraded + self.down + self.unknown

    def latency_ms(self, share: float) -> float | None:
        """Return the percentile of the latencies: 0.95 for p95. None without latencies."""
        return self.latencies_ms((share,))[0]

    def latencies_ms(self, shares: tuple[float, ...]) -> list[float | None]:
        """Return the percentiles of these shares, the smallest share first. None without latencies."""
        low, high = self.latency_min_us, self.latency_max_us
        if low is None or high is None:
            return [None] * len(shares)
        return [
            None if found is None else min(max(found, low), high) / 1_000
            for found in self.histogram.percentiles(shares)
        ]

    @classmethod
    def merged(cls, rollups: Iterable["Rollup"]) -> "Rollup":
        """Return one rollup of all of them."""
        tally = Tally()
        for rollup in rollups:
            tally.merge(rollup)
        return tally.rollup()


@dataclass(slots=True)
class Tally:
    """A rollup while it is being made."""

    looks: dict[HealthWord, int] = field(default_factory=dict)
    times_ms: dict[HealthWord, int] = field(default_factory=dict)
    timed: int = 0
    latency_sum_us: int = 0
    latency_min_us: int | None = None
    latency_max_us: int | None = None
    counts: dict[int, int] = field(default_factory=dict)

    def add(self, status: HealthWord, span_ms: int, latency_us: int | None) -> None:
        """Count one look."""
        self._count(status, 1, span_ms)
        if latency_us is not None and latency_us > 0:
            self._time(1, latency_us, latency_us, latency_us)
            bucket = bucket_of(latency_us)
            self.counts[bucket] = self.counts.get(bucket, 0) + 1

    def merge(self, rollup: Rollup) -> None:
        """Count everything that a rollup counts."""
        self._count("up", rollup.up, rollup.up_ms)
        self._count("degraded", rollup.degraded, rollup.degraded_ms)
        self._count("down", rollup.down, rollup.down_ms)
        self._count("unknown", rollup.unknown, rollup.unknown_ms)
        if rollup.latency_min_us is not None and rollup.latency_max_us is not None:
            self._time(rollup.timed, rollup.latency_sum_us, rollup.latency_min_us, rollup.latency_max_us)
        counts = self.counts
        for bucket, count in rollup.histogram.counts:
            counts[bucket] = counts.get(bucket, 0) + count

    def rollup(self) -> Rollup:
        """Return the figures so far."""
        looks, times_ms = self.looks.get, self.times_ms.get
        return Rollup(
            up=looks("up", 0),
            degraded=looks("degraded", 0),
            down=looks("down", 0),
            unknown=looks("unknown", 0),
            up_ms=times_ms("up", 0),
            degraded_ms=times_ms("degraded", 0),
            down_ms=times_ms("down", 0),
            unknown_ms=times_ms("unknown", 0),
            timed=self.timed,
            latency_sum_us=self.latency_sum_us,
            latency_min_us=self.latency_min_us,
            latency_max_us=self.latency_max_us,
            histogram=Histogram(tuple(sorted(self.counts.items()))) if self.counts else NO_VALUES,
        )

    def _count(self, status: HealthWord, looks: int, time_ms: int) -> None:
        if looks or time_ms:
            self.looks[status] = self.looks.get(status, 0) + looks
            self.times_ms[status] = self.times_ms.get(status, 0) + time_ms

    def _time(self, timed: int, sum_us: int, min_us: int, max_us: int) -> None:
        self.timed += timed
        self.latency_sum_us += sum_us
        if self.latency_min_us is None or min_us < self.latency_min_us:
            self.latency_min_us = min_us
        if self.latency_max_us is None or max_us > self.latency_max_us:
            self.latency_max_us = max_us
