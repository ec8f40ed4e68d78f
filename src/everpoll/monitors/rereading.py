"""Rereading: reuses the last report if the answer is the same, or differs only in latencies.

    status, content type and bytes as before     the same report
    only latencies of proactive-deps differ      the same report with the new latencies
    anything else                                read again, by `read`

Promises: the report equals that of `read` for the same answer, except for one warning: a number beyond the range of a
double, in a member that is not read, is not noticed. Nearly every look at a healthy service ends here, at a third of
the cost. Pure; never raises for a body.
"""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from everpoll.monitors.body import MAX_NESTING, media_type
from everpoll.monitors.formats import proactive_deps
from everpoll.monitors.mapping import CompiledMapping
from everpoll.monitors.reading import AUTO, checksum, read
from everpoll.monitors.report import Report

MAX_KEPT_BYTES = 8 * 1024
"""Bodies up to this size are kept to be compared; of larger bodies, only the checksum."""
_FORMATS = frozenset({AUTO, proactive_deps.NAME})


class LastRead(Struct, gc=False):
    """The last answer that was read."""

    body: bytes | None
    """None: the body is too long to be kept."""
    content_type: str | None
    status: int
    report: Report
    checksum: str
    """The checksum of the answer; an answer that differs only in latencies keeps it."""
    facts: list[proactive_deps.Facts] | None
    """The dependencies without latencies; None if the body has other contents or another format."""


def read_first(
    body: bytes, content_type: str | None, status: int, form: str, mapping: CompiledMapping | None
) -> LastRead:
    """Read an answer."""
    report = read(body, content_type, status, form, mapping)
    is_small = len(body) <= MAX_KEPT_BYTES
    facts = None
    if is_small and form in _FORMATS and mapping is None and media_type(content_type).charset is None:
        facts = _facts(body, report)
    return LastRead(
        body if is_small else None, content_type, status, report, checksum(body, content_type, status), facts
    )


def read_again(last: LastRead, body: bytes, content_type: str | None, status: int) -> Report | None:
    """Return the report of an answer that equals the last one, except for latencies; None: it must be read."""
    if status != last.status or content_type != last.content_type:
        return None
    if last.body is None:
        return last.report if checksum(body, content_type, status) == last.checksum else None
    if body == last.body:
        return last.report
    if last.facts is None or not _is_ordinary(body):
        return None
    found = proactive_deps.facts_of(body)
    return _with_latencies(last.report, found[1]) if found is not None and found[0] == last.facts else None


def _facts(body: bytes, report: Report) -> list[proactive_deps.Facts] | None:
    if report.format != proactive_deps.NAME or report.warnings or not _is_ordinary(body):
        return None
    found = proactive_deps.facts_of(body)
    # Each item must be one dependency, so that latencies of items are latencies of dependencies.
    return None if found is None or len(found[0]) != len(report.dependencies) else found[0]


def _is_ordinary(body: bytes) -> bool:
    """Return True if `facts_of` sees everything in the body that `read` would see.

    That is not so for deep nesting, metrics in a text, or invalid UTF-8.
    """
    return (
        len(body) <= MAX_KEPT_BYTES
        and body.isascii()
        and body.startswith(b"[")
        and b"dependency_" not in body
        and body.count(b"[") + body.count(b"{") <= MAX_NESTING
    )


def _with_latencies(report: Report, latencies: list[float | None]) -> Report:
    changed: list[Any] = [
        one if one.latency_ms == latency_ms else replace(one, latency_ms=latency_ms)
        for one, latency_ms in zip(report.dependencies, latencies, strict=True)
    ]
    return replace(report, dependencies=tuple(changed))
