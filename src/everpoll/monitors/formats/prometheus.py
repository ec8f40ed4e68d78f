"""prometheus: metrics about dependencies in Prometheus' text format, with the names of Depsera and proactive-deps.

Other metrics are ignored. A mapping can give other names for metrics and labels.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from everpoll.monitors.bounds import latency_ms, name, optional_text, quoted
from everpoll.monitors.gathering import MAX_ITEMS, Gathering, Unreadable
from everpoll.monitors.report import MAX_DEPENDENCIES, Dependency, Status

NAME = "prometheus"
METRICS = {
    "dependency_health_status": "state",
    "dependency_health_healthy": "healthy",
    "dependency_health_latency_ms": "latency",
    "dependency_health_code": "code",
    "dependency_health_check_skipped": "skipped",
    "dependency_health": "state",
    "dependency_latency_ms": "latency",
}
LABELS = {
    "name": "name",
    "dependency": "name",
    "type": "type",
    "impact": "impact",
    "description": "description",
    "error_message": "errorMessage",
}
MAX_LINES = 200_000
"""The most lines of a body; a longer body is not read."""
MAX_LINE_CHARS = 16_000
"""The most characters of a line; a longer line is not read."""
_BY_STATE = {0.0: Status.UP, 1.0: Status.DEGRADED, 2.0: Status.DOWN}
_LABEL = re.compile(r'[ \t]*([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*"([^"\\]*(?:\\.[^"\\]*)*)"[ \t]*(?:,|(?=\}))')
_END_OF_LABELS = re.compile(r"[ \t]*,?[ \t]*\}")
_VALUE = re.compile(r"[ \t]*(\S+)")
_ESCAPED = re.compile(r"\\(.)")
_ANY_SAMPLE = re.compile(r"^[A-Za-z_:][A-Za-z0-9_:]*(?:\{[^\n]*\})?[ \t]+[-+]?(?:[0-9.]|NaN|Inf)", re.MULTILINE)


class MetricNames(Struct, frozen=True):
    """The meaning of each metric and each label."""

    metrics: dict[str, str]
    labels: dict[str, str]
    sample: re.Pattern[str]
    """Finds a line of one of the metrics: its name, and the rest of the line."""
    latency_unit_ms: float = 1.0
    healthy_value: float = 1.0


class _Samples:
    """The values and labels of one dependency."""

    __slots__ = ("labels", "values")

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}
        self.values: dict[str, float] = {}


def metric_names(
    metrics: dict[str, str], labels: dict[str, str], latency_unit_ms: float = 1.0, healthy_value: float = 1.0
) -> MetricNames:
    """Return the default names, replaced by the user's: a field that the user maps loses its default name."""
    effective = _overridden(METRICS, metrics)
    either = "|".join(re.escape(metric) for metric in sorted(effective, key=len, reverse=True))
    return MetricNames(
        metrics=effective,
        labels=_overridden(LABELS, labels),
        sample=re.compile(rf"^[ \t]*({either})(?=[ \t{{])([^\n]*)$", re.MULTILINE),
        latency_unit_ms=latency_unit_ms,
        healthy_value=healthy_value,
    )


def _overridden(defaults: dict[str, str], mapped: dict[str, str]) -> dict[str, str]:
    targets = set(mapped.values())
    return {key: target for key, target in defaults.items() if target not in targets} | mapped


DEFAULT_NAMES = metric_names({}, {})
_RECOGNISED = re.compile(rb"dependency_(?:health|latency_ms)(?:_[a-z_]+)?[ \t{]")
_MAX_OCCURRENCES = 100
_BEGINNING_CHARS = 100_000


def recognizes_text(data: bytes) -> bool:
    """Tell whether a line has one of the default metrics, or describes one."""
    position = data.find(b"dependency_")
    for _ in range(_MAX_OCCURRENCES):
        if position < 0:
            return False
        before = data[max(position - 8, 0) : position]
        begins_a_line = not before or before.endswith((b"\n", b"# HELP ", b"# TYPE "))
        if begins_a_line and _RECOGNISED.match(data, position):
            return True
        position = data.find(b"dependency_", position + 1)
    return False


def read(body: object, into: Gathering, names: MetricNames = DEFAULT_NAMES) -> Status:
    """Read every dependency in the metrics."""
    if not isinstance(body, str):
        raise Unreadable("the body is not text with metrics")
    if body.count("\n") > MAX_LINES:
        raise Unreadable(f"the body has more than {MAX_LINES:,} lines")
    found: dict[str, _Samples] = {}
    count = 0
    for count, line in enumerate(names.sample.finditer(body), 1):
        if count > MAX_ITEMS:
            into.warn(f"more than {MAX_ITEMS:,} samples; the further ones are not read")
            break
        _read_sample(line[1], line[2], names, found, into)
    if not count:
        beginning = body[:_BEGINNING_CHARS]
        if _ANY_SAMPLE.search(beginning) is None and not recognizes_text(beginning.encode("utf-8", "replace")):
            raise Unreadable("the body has no metrics in Prometheus' text format")
        into.warn("no metric is about a dependency")
    for label, samples in found.items():
        if into.more():
            _add(label, samples, names, into)
    return into.from_parts()


def _read_sample(metric: str, rest: str, names: MetricNames, found: dict[str, _Samples], into: Gathering) -> None:
    # A label without a closing quote would be matched again from every backslash: 750 MB for a line of 8 MiB.
    parsed = _parsed(rest) if len(rest) <= MAX_LINE_CHARS else None
    if parsed is None:
        into.warn(f"metric {quoted(metric)}: a line cannot be read: {quoted(rest.strip())}")
        return
    written, value = parsed
    # If a line has two labels for one field, the order of the mapping decides.
    fields = {target: written[label] for label, target in reversed(names.labels.items()) if label in written}
    label = name(fields.pop("name", ""))
    if not label:
        into.warn(f"metric {quoted(metric)}: a line has no label for the dependency's name")
        return
    samples = found.get(label)
    if samples is None:
        if len(found) >= MAX_DEPENDENCIES:
            into.warn(f"more than {MAX_DEPENDENCIES:,} dependencies; the further ones are left out")
            return
        samples = found[label] = _Samples()
    for field, text in fields.items():
        samples.labels.setdefault(field, text)
    samples.values[names.metrics[metric]] = value


def _parsed(rest: str) -> tuple[dict[str, str], float] | None:
    """Return the labels and the value of a sample; None if the line is malformed."""
    labels: dict[str, str] = {}
    position = 0
    if rest.startswith("{"):
        position = 1
        for label in _labels(rest):
            labels[label[1]] = _ESCAPED.sub(_unescaped, label[2]) if "\\" in label[2] else label[2]
            position = label.end()
        end = _END_OF_LABELS.match(rest, position)
        if end is None:
            return None
        position = end.end()
    token = _VALUE.match(rest, position)
    try:
        return None if token is None else (labels, float(token[1]))
    except ValueError:
        return None


def _labels(rest: str) -> Iterator[re.Match[str]]:
    position = 1
    while label := _LABEL.match(rest, position):
        yield label
        position = label.end()


def _unescaped(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]


def _add(label: str, samples: _Samples, names: MetricNames, into: Gathering) -> None:
    values, labels = samples.values, samples.labels
    is_skipped = values.get("skipped") == 1
    status = Status.UP if is_skipped else _status(values.get("healthy"), values.get("state"), names.healthy_value)
    if status is None:
        into.warn(f"dependency {quoted(label)}: no metric says whether it is healthy")
        return
    into.add(
        Dependency(
            name=label,
            status=status,
            skipped=is_skipped,
            latency_ms=latency_ms(values.get("latency"), names.latency_unit_ms),
            type=optional_text(labels.get("type")) or "other",
            impact=optional_text(labels.get("impact")),
            description=optional_text(labels.get("description")),
            error_message=optional_text(labels.get("errorMessage")),
        )
    )


def _status(healthy: float | None, state: float | None, healthy_value: float) -> Status | None:
    if healthy is None:
        return None if state is None else _BY_STATE.get(state)
    if healthy != healthy:  # noqa: PLR0124 - NaN says nothing
        return None
    if healthy != healthy_value:
        return Status.DOWN
    return Status.DEGRADED if state == 1 else Status.UP
