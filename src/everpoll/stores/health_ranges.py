"""Ranges of history: which days, hours and minutes make up a range, and their totals. Pure.

       from_at                                                        to_at
          │ minutes │ hours │ days  …  days │ hours │ minutes │ looks   │
          └─────────┴───────┴───────────────┴───────┴─────────┴─────────┘

Looks that are not rolled up yet are added one by one, and cut short as the roll-up will do it. Where the minutes of an
end are pruned, its whole hour counts; where its hours are pruned, its whole day.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from everpoll.errors import BadInput
from everpoll.policy import Rollup
from everpoll.stores.health import BUCKET_LIMIT, Bucket, Retention, Step
from everpoll.stores.health_chunks import (
    DAY_MS,
    HOUR_MS,
    HOURS_A_DAY,
    MINUTE_MS,
    MINUTES_AN_HOUR,
    LookRow,
    unpack_minutes,
)
from everpoll.stores.health_limits import LATEST_S, milliseconds
from everpoll.stores.health_overlaps import cut_short, shorten
from everpoll.stores.health_rolling import last_looks, merge_into, tallied

STEPS_MS: dict[Step, int] = {"minute": MINUTE_MS, "hour": HOUR_MS, "day": DAY_MS}


class Horizon(NamedTuple):
    """What is before these hours, and this instant, was pruned."""

    looks: int = 0
    minutes: int = 0
    hours: int = 0
    errors_ms: int = 0


NOTHING_PRUNED = Horizon()


class Cutoffs(NamedTuple):
    """What is before these hours, this day and this instant is too old."""

    looks: int
    minutes: int
    hours: int
    days: int
    errors_ms: int


class RangeQuery(NamedTuple):
    """What to read for an answer."""

    from_ms: int
    to_ms: int
    """Whole minutes at least; looks outside are not wanted."""
    days: range
    hours: list[int]
    minutes: list[int]
    """The hours whose minutes are wanted."""


class Since(NamedTuple):
    """What to read for the figures since an hour: the days from one on, and before it some hours."""

    from_ms: int
    first_day: int
    hours: range


@dataclass(slots=True)
class Found:
    """What was read. What has no looks is not there."""

    days: dict[int, Rollup] = field(default_factory=dict)
    hours: dict[int, Rollup] = field(default_factory=dict)
    minutes: dict[int, bytes] = field(default_factory=dict)
    looks: list[LookRow] = field(default_factory=list)
    """Not rolled up yet; also those outside the range, since they may cut short those inside."""
    recent: bytes | None = None
    """The last that were rolled up."""
    horizon: Horizon = NOTHING_PRUNED


def bounds_ms(from_at: float, to_at: float) -> tuple[int, int]:
    """Return the instants of a range as they are stored; instants that no look can have are moved into the calendar."""
    if not from_at <= to_at:
        raise BadInput(f"a range must end after it begins, and {to_at!r} is not after {from_at!r}")
    return milliseconds(min(max(from_at, 0.0), LATEST_S)), milliseconds(min(max(to_at, 0.0), LATEST_S))


def for_summary(from_at: float, to_at: float) -> RangeQuery:
    """Return what the figures of a range are made of: its days, the hours of days that it has a part of, and so on."""
    from_ms, to_ms = bounds_ms(from_at, to_at)
    if from_ms == to_ms:
        return RangeQuery(from_ms, to_ms, range(0), [], [])
    from_ms, to_ms = from_ms - from_ms % MINUTE_MS, to_ms + -to_ms % MINUTE_MS
    ends_ms = (from_ms, to_ms)
    cut_days = sorted({end_ms // DAY_MS for end_ms in ends_ms if end_ms % DAY_MS})
    cut_hours = sorted({end_ms // HOUR_MS for end_ms in ends_ms if end_ms % HOUR_MS})
    first, last = from_ms // HOUR_MS, -(-to_ms // HOUR_MS)
    hours = [hour for day in cut_days for hour in hours_of(day) if first <= hour < last]
    return RangeQuery(from_ms, to_ms, range(from_ms // DAY_MS, -(-to_ms // DAY_MS)), hours, cut_hours)


def since(from_at: float, horizon: Horizon) -> Since:
    """Return what the figures since the hour of an instant are made of; if that is pruned, the whole day."""
    from_ms, _ = bounds_ms(from_at, LATEST_S)
    hour = from_ms // HOUR_MS
    day = hour // HOURS_A_DAY
    if hour % HOURS_A_DAY == 0 or hour < horizon.hours:
        return Since(hour * HOUR_MS, day, range(0))
    return Since(hour * HOUR_MS, day + 1, range(hour, (day + 1) * HOURS_A_DAY))


def hour_on(from_at: float) -> tuple[float, float]:
    """Return the range from the hour of an instant on."""
    from_ms, _ = bounds_ms(from_at, LATEST_S)
    return (from_ms - from_ms % HOUR_MS) / 1_000, LATEST_S


def for_buckets(step: Step, from_at: float, to_at: float) -> RangeQuery:
    """Return what the buckets of a range are made of."""
    if step not in STEPS_MS:
        raise BadInput(f"step must be one of {', '.join(STEPS_MS)}, not {step!r}")
    step_ms = STEPS_MS[step]
    from_ms, to_ms = bounds_ms(from_at, to_at)
    first, last = from_ms // step_ms, -(-to_ms // step_ms)
    if last - first > BUCKET_LIMIT:
        raise BadInput(
            f"the range has {last - first:,} buckets of a {step}, more than {BUCKET_LIMIT:,}: "
            "ask for a larger step or a shorter range"
        )
    days = range(first, last) if step == "day" else range(0)
    hours = list(range(first, last)) if step == "hour" else []
    minutes = list(range(first // MINUTES_AN_HOUR, -(-last // MINUTES_AN_HOUR))) if step == "minute" else []
    return RangeQuery(first * step_ms, last * step_ms, days, hours, minutes)


def summary_of(wanted: RangeQuery, found: Found) -> Rollup:
    """Return the figures of the range."""
    open_looks = _counted(wanted, found)
    cut_days = {hour // HOURS_A_DAY for hour in wanted.hours}
    pruned_days = {hour // HOURS_A_DAY for hour in wanted.hours if hour < found.horizon.hours}
    parts = [rollup for day, rollup in found.days.items() if day not in cut_days or day in pruned_days]
    for hour in wanted.hours:
        if hour // HOURS_A_DAY not in pruned_days:
            parts += _of_hour(hour, wanted, found)
    parts += tallied(open_looks, DAY_MS).values()
    return Rollup.merged(parts)


def buckets_of(step: Step, wanted: RangeQuery, found: Found) -> list[Bucket]:
    """Return the buckets of the range that have looks, oldest first."""
    step_ms = STEPS_MS[step]
    open_looks = _counted(wanted, found)
    rollups = dict(found.days if step == "day" else found.hours)
    if step == "minute":
        rollups = {
            hour * MINUTES_AN_HOUR + number: rollup
            for hour, packed in found.minutes.items()
            for number, rollup in unpack_minutes(packed).items()
        }
    for place, rollup in tallied(open_looks, step_ms).items():
        merge_into(rollups, place, rollup)
    first, last = wanted.from_ms // step_ms, wanted.to_ms // step_ms
    return [Bucket(place * step_ms / 1_000, rollups[place]) for place in sorted(rollups) if first <= place < last]


def _counted(wanted: RangeQuery, found: Found) -> list[LookRow]:
    """Return the looks of the range that are not rolled up, as they count; what they cut short is corrected."""
    cut = cut_short(last_looks(found.recent), sorted(found.looks))
    shorten(found, cut.excess)
    return [row for row in cut.looks if wanted.from_ms <= row.at_ms < wanted.to_ms]


def cutoffs(now: float, retention: Retention) -> Cutoffs:
    """Return what is too old. An hour is old as a whole, when its end is."""
    looks, minutes, hours, days, errors = (
        max(0, milliseconds(now - kept_s))
        for kept_s in (
            retention.looks_s,
            retention.minutes_s,
            retention.hours_s,
            retention.days_s,
            retention.errors_s,
        )
    )
    return Cutoffs(looks // HOUR_MS, minutes // HOUR_MS, hours // HOUR_MS, days // DAY_MS, errors)


def raised(horizon: Horizon, cut: Cutoffs, last_hour: int | None) -> Horizon:
    """Return the horizon after pruning. It stays behind what is recorded, also after a clock that was years ahead."""
    if last_hour is None:
        return horizon
    end = last_hour + 1
    return Horizon(
        max(horizon.looks, min(cut.looks, end)),
        max(horizon.minutes, min(cut.minutes, end)),
        max(horizon.hours, min(cut.hours, end)),
        max(horizon.errors_ms, min(cut.errors_ms, end * HOUR_MS)),
    )


def within(places: range, first: int | None, last: int | None) -> range:
    """Return the places that lie between the first and the last that there is."""
    if first is None or last is None:
        return range(0)
    return range(max(places.start, first), min(places.stop, last + 1))


def hours_of(day: int) -> range:
    """Return the hours of a day."""
    return range(day * HOURS_A_DAY, (day + 1) * HOURS_A_DAY)


def _of_hour(hour: int, wanted: RangeQuery, found: Found) -> Iterable[Rollup]:
    """Return what the range has of an hour."""
    if hour not in wanted.minutes or hour < found.horizon.minutes:
        return [found.hours[hour]] if hour in found.hours else []
    minutes: Mapping[int, Rollup] = unpack_minutes(found.minutes[hour]) if hour in found.minutes else {}
    start_ms = hour * HOUR_MS
    return [
        rollup for number, rollup in minutes.items() if wanted.from_ms <= start_ms + number * MINUTE_MS < wanted.to_ms
    ]
