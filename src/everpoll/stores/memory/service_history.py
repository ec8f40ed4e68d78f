"""Service history: the records of one service in the memory store."""

from collections import defaultdict
from dataclasses import dataclass, field
from operator import attrgetter

from everpoll.stores.health_answers import HistoryRequest, PackedRow
from everpoll.stores.health_batches import DependencyRow, ErrorRow
from everpoll.stores.health_chunks import LookRow
from everpoll.stores.health_ranges import Cutoffs, Found, RangeQuery
from everpoll.stores.health_rolling import ServiceRecord

_instant = attrgetter("at_ms")


@dataclass(slots=True)
class ServiceHistory:
    """The records of one service."""

    number: int
    looks: dict[int, LookRow] = field(default_factory=dict)
    """Looks that are not rolled up yet."""
    record: ServiceRecord = field(default_factory=ServiceRecord)
    dependencies: dict[str, DependencyRow] = field(default_factory=dict)
    errors: defaultdict[str, dict[int, ErrorRow]] = field(default_factory=lambda: defaultdict(dict))

    def between(self, from_ms: int, to_ms: int) -> list[LookRow]:
        """Return looks that are not rolled up, newest first."""
        rows = [row for row in self.looks.values() if from_ms <= row.at_ms < to_ms]
        return sorted(rows, key=_instant, reverse=True)

    def packed(self, request: HistoryRequest) -> list[PackedRow]:
        """Return the packed hours of a range, newest first."""
        hours = sorted(hour for hour in self.record.packed if hour in request.hours)
        return [
            PackedRow(hour, self.record.packed[hour].looks, self.record.packed[hour].latencies)
            for hour in reversed(hours)
        ]

    def found_for(self, request: RangeQuery) -> Found:
        """Return the requested records that exist."""
        record = self.record
        return Found(
            days={day: rollup for day, rollup in record.days.items() if day in request.days},
            hours={hour: record.hours[hour] for hour in request.hours if hour in record.hours},
            minutes={hour: record.minutes[hour] for hour in request.minutes if hour in record.minutes},
            looks=list(self.looks.values()),
            recent=record.recent,
        )

    def prune(self, cut: Cutoffs) -> None:
        """Drop records that are too old."""
        record = self.record
        record.packed = {hour: packed for hour, packed in record.packed.items() if hour >= cut.looks}
        record.minutes = {hour: minutes for hour, minutes in record.minutes.items() if hour >= cut.minutes}
        record.hours = {hour: rollup for hour, rollup in record.hours.items() if hour >= cut.hours}
        record.days = {day: rollup for day, rollup in record.days.items() if day >= cut.days}
        for rows in self.errors.values():
            for at_ms in [at_ms for at_ms in rows if at_ms < cut.errors_ms]:
                del rows[at_ms]
        self.dependencies = {
            name: row for name, row in self.dependencies.items() if not row.vanished or row.seen_ms >= cut.errors_ms
        }
