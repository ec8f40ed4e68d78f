"""Figures: counts that workers publish with their heartbeat, and the series of them for charts.

    tally of a worker ──heartbeat──▶ one row for each span and name ──merged──▶ series of all workers

Promises: a worker publishes absolute figures of its own spans, so a repeated call changes nothing and a lost answer
loses nothing. A series reads published rows only, never tasks or history, and of them the longest spans that fit into
its steps. Spans of one and five minutes are kept for two days, hours and days for 90; the present bucket is as fresh as
the last heartbeat.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

from msgspec import Struct, field

from everpoll.errors import BadInput
from everpoll.policy import Histogram, shown

SeriesOf = Literal["throughput", "waiting", "running", "lateness"]
SERIES: tuple[SeriesOf, ...] = ("throughput", "waiting", "running", "lateness")
KINDS: dict[SeriesOf, tuple[str, ...]] = {
    "throughput": ("job",),
    "waiting": ("job",),
    "running": ("job",),
    "lateness": ("watch", "check"),
}
"""The kinds of tasks that each series is about."""
MINUTE_S, FIVE_MINUTES_S, HOUR_S, DAY_S = 60, 300, 3_600, 86_400
KEPT_S = {MINUTE_S: 2 * DAY_S, FIVE_MINUTES_S: 2 * DAY_S, HOUR_S: 90 * DAY_S, DAY_S: 90 * DAY_S}
"""How long the rows of each span are kept. A day of 8 workers is 11,520 minutes: reading and merging their histograms
took 200 ms, and a fifth of that in spans of five minutes."""
POINTS_LIMIT = 500
OTHERS = "others"
"""The name under which a worker counts tasks once it has counted too many different names."""


class Figure(Struct, frozen=True, gc=False):
    """The figures of one worker in one span of time: for the tasks of a name, of a queue (`name` is empty), or of a
    kind (both are empty)."""

    span_s: int
    began: int
    """Seconds since the epoch, a multiple of the span."""
    kind: str
    name: str
    queue: str
    counts: dict[str, int]
    """How many tasks had each outcome."""
    waited: bytes
    """An encoded histogram, in microseconds: from due to leased."""
    ran: bytes
    """An encoded histogram, in microseconds: how long handlers ran."""


class LoopCard(Struct, frozen=True, gc=False, kw_only=True):
    """A loop as its process publishes it. Instants are seconds since the epoch."""

    name: str
    phase: str
    every_s: float
    multiplier: float = 1.0
    runs: int = 0
    failures: int = 0
    last_run_at: float | None = None
    next_due_at: float | None = None
    last_error: str | None = None
    strip: str = ""
    """Its last runs, oldest first, a letter each: o ok, f failed, z snoozed, s stopped, - skipped, c canceled."""


class PublishedLoops(Struct, frozen=True, kw_only=True):
    """The loops of one process, as of its last heartbeat that reported a change."""

    incarnation: int
    worker: str
    """Its label."""
    host: str
    pid: int
    is_alive: bool
    loops: tuple[LoopCard, ...]


class SeriesPoint(Struct, frozen=True, kw_only=True):
    """One step of a series."""

    at: float
    """When the step begins: seconds since the epoch, a multiple of the step."""
    counts: dict[str, int] = field(default_factory=dict)
    """throughput: how many tasks ended with each outcome."""
    count: int = 0
    """Other series: how many values there are."""
    p50_s: float | None = None
    """The 50th percentile of these values; the 95th and 99th follow."""
    p95_s: float | None = None
    p99_s: float | None = None


class Publishing(Protocol):
    """The further part of a heartbeat's connection to a store."""

    def publish(self, incarnation: int, figures: Sequence[Figure], loops: str | None) -> None:
        """Store the figures; they replace those of the same worker, span, start and name. `loops` is a JSON array that
        replaces the earlier one; None keeps it."""


class Figures(Protocol):
    """Reads published figures."""

    async def series(
        self,
        of: SeriesOf,
        from_at: float,
        to_at: float,
        step_s: int,
        queue: str | None = None,
        name: str | None = None,
    ) -> list[SeriesPoint]:
        """Return the steps between two instants that have figures, by time, over all workers.

        Steps begin at multiples of `step_s`, which is a multiple of a minute. Multiples of an hour go back 90 days,
        others two. Raises `BadInput` for more than 500 steps.
        """
        ...

    async def published_loops(self) -> list[PublishedLoops]:
        """Return the loops of every process that has published some and lives, or ended within the last hour."""
        ...


class Row(Struct, frozen=True, gc=False):
    """The part of a published figure that a series needs."""

    began: int
    counts: str
    waited: bytes
    ran: bytes


class Steps(Struct, frozen=True):
    """The steps of a series, and the span of the rows to read for them."""

    of: SeriesOf
    first: int
    last: int
    """The first instant after the series."""
    step_s: int
    span_s: int
    """The span of the rows to read."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of tasks."""
        return KINDS[self.of]


def steps_of(of: SeriesOf, from_at: float, to_at: float, step_s: int) -> Steps:
    """Check the request; return the steps of the series."""
    if of not in KINDS:
        raise BadInput(f"of={shown(of)}: there are {', '.join(SERIES)}")
    if step_s < MINUTE_S or step_s % MINUTE_S:
        raise BadInput(f"step_s={shown(step_s)}: must be a multiple of {MINUTE_S} seconds")
    span_s = max(one for one in KEPT_S if step_s % one == 0)
    if not 0 <= from_at <= to_at < 2**53:
        raise BadInput(f"from_at={from_at!r}, to_at={to_at!r}: must be instants in this order, seconds since the epoch")
    first, last = int(from_at) // step_s * step_s, -(-int(to_at) // step_s) * step_s
    if (count := (last - first) // step_s) > POINTS_LIMIT:
        raise BadInput(f"{count:,} steps of {step_s} s are more than {POINTS_LIMIT}: choose longer ones")
    return Steps(of, first, last, step_s, span_s)


def points(steps: Steps, rows: Iterable[Row], decode: "Decode") -> list[SeriesPoint]:
    """Merge the rows of all workers into steps; steps without rows are left out."""
    by_step: dict[int, list[Row]] = {}
    for row in rows:
        by_step.setdefault(row.began // steps.step_s * steps.step_s, []).append(row)
    return [_point(steps.of, at, some, decode) for at, some in sorted(by_step.items())]


class Decode(Protocol):
    """Reads the counts of a row."""

    def __call__(self, text: str, /) -> dict[str, int]:
        """Read the counts from their JSON."""
        ...


def _point(of: SeriesOf, at: int, rows: list[Row], decode: Decode) -> SeriesPoint:
    if of == "throughput":
        counts: dict[str, int] = {}
        for row in rows:
            for outcome, count in decode(row.counts).items():
                counts[outcome] = counts.get(outcome, 0) + count
        return SeriesPoint(at=at, counts=counts, count=sum(counts.values()))
    packed = (row.ran if of == "running" else row.waited for row in rows)
    histogram = Histogram.merged_of(packed)
    p50, p95, p99 = (None if one is None else one / 1e6 for one in histogram.percentiles((0.5, 0.95, 0.99)))
    return SeriesPoint(at=at, count=histogram.total, p50_s=p50, p95_s=p95, p99_s=p99)
