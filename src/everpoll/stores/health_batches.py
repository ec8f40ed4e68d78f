"""A batch of looks as rows: what every store writes of it.

Promises: of two looks at a service at the same instant the first counts, of two states of a dependency the one of the
later look, so no statement meets the same row twice.
"""

from collections.abc import Sequence
from typing import NamedTuple

from everpoll.policy.rollup import HealthWord
from everpoll.stores.health import NewDependency, NewLook
from everpoll.stores.health_chunks import CODES, LookRow, pack_latencies
from everpoll.stores.health_limits import (
    check_looks,
    dependency_name,
    fitting_json,
    fitting_text,
    http_status,
    latency_us,
    milliseconds,
    span_ms,
)

ROW_BYTES = 60
"""What a look takes beside its texts, roughly."""


class DependencyRow(NamedTuple):
    """A dependency as it is stored, in the order of its columns."""

    name: str
    at_ms: int
    """The look that said so; an earlier one changes nothing."""
    changed_ms: int
    seen_ms: int
    latency_us: int | None
    vanished: bool
    skipped: bool
    status: HealthWord
    type: str
    impact: str | None
    description: str | None
    contact: str | None
    check_details: str | None
    error: str | None
    error_message: str | None


class ErrorRow(NamedTuple):
    """An entry of the error history as it is stored, in the order of its columns."""

    dependency: str
    at_ms: int
    error: str | None
    error_message: str | None


class ServiceBatch(NamedTuple):
    """What a batch has of one service."""

    looks: dict[int, LookRow]
    """The rows by their instants, in order."""
    dependencies: dict[str, DependencyRow]
    errors: dict[tuple[str, int], ErrorRow]


def batch_of(looks: Sequence[NewLook]) -> dict[str, ServiceBatch]:
    """Return the rows of a batch, by service. `BadInput` for a batch that cannot be written."""
    check_looks(looks)
    batch: dict[str, ServiceBatch] = {}
    for look in sorted(looks, key=_instant):
        of_service = batch.get(look.service)
        if of_service is None:
            of_service = batch[look.service] = ServiceBatch({}, {}, {})
        at_ms = milliseconds(look.at)
        of_service.looks.setdefault(at_ms, _look_row(look, at_ms))
        for one in look.dependencies:
            row = _dependency_row(one, at_ms)
            known = of_service.dependencies.get(row.name)
            if known is None or at_ms > known.at_ms:  # as between two batches: at one instant the first counts
                of_service.dependencies[row.name] = row
        for error in look.errors:
            name = dependency_name(error.dependency)
            row_of_error = ErrorRow(name, at_ms, fitting_json(error.error), fitting_text(error.error_message))
            of_service.errors.setdefault((name, at_ms), row_of_error)
    return batch


def size_of_batch(batch: dict[str, ServiceBatch]) -> int:
    """Return bytes that it writes, roughly."""
    size = 0
    for of_service in batch.values():
        for look in of_service.looks.values():
            size += ROW_BYTES + len(look.error or "") + len(look.latencies or b"")
        if of_service.dependencies or of_service.errors:
            rows = (*of_service.dependencies.values(), *of_service.errors.values())
            size += sum(len(value) for row in rows for value in row if isinstance(value, str))
    return size


def _instant(look: NewLook) -> float:
    return look.at


def _look_row(look: NewLook, at_ms: int) -> LookRow:
    latencies = None
    if look.latencies:
        kept = {}
        for name, latency_ms in look.latencies.items():
            latency = latency_us(latency_ms)
            if latency is not None:
                kept[dependency_name(name)] = latency
        latencies = pack_latencies(kept)
    return LookRow(
        at_ms,
        span_ms(look.span_s),
        CODES[look.status],
        None if look.latency_ms is None else latency_us(look.latency_ms),
        None if look.http_status is None else http_status(look.http_status),
        None if look.error is None else fitting_text(look.error),
        latencies,
    )


def _dependency_row(one: NewDependency, at_ms: int) -> DependencyRow:
    return DependencyRow(
        dependency_name(one.name),
        at_ms,
        milliseconds(one.changed_at),
        milliseconds(one.seen_at),
        latency_us(one.latency_ms),
        one.vanished,
        one.skipped,
        one.status,
        fitting_text(one.type) or "other",
        fitting_text(one.impact),
        fitting_text(one.description),
        fitting_json(one.contact),
        fitting_json(one.check_details),
        fitting_json(one.error),
        fitting_text(one.error_message),
    )
