"""Whatever a remote answers, `read` returns a report that is bounded, printable and the same every time."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everpoll.monitors import FORMATS, Dependency, Report, Status, read
from everpoll.monitors.bounds import MAX_TREE_CHARS, MAX_TREE_DEPTH, MAX_TREE_VALUES
from everpoll.monitors.report import MAX_DEPENDENCIES, MAX_TEXT, MAX_WARNINGS

from .health_cases import CASES

reproducible = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])

MAPPINGS: list[dict[str, Any] | None] = [
    None,
    {"root": "", "fields": {"name": "name", "healthy": "healthy", "error": "error", "checkDetails": "checkDetails"}},
    {"root": "components", "fields": {"name": "$key", "healthy": {"field": "status", "in": ["UP"], "warn": ["WARN"]}}},
    {"root": "checks.0", "fields": {"name": "name", "healthy": "status", "latency": {"field": "t", "unit": "us"}}},
]
METRICS = {"metrics": {"up": "healthy"}, "labels": {"instance": "name"}}
NAMED = [(name, None) for name in FORMATS if name != "mapping"] + [("auto", one) for one in (*MAPPINGS, METRICS)]
# The keys and words of all formats, so that random objects come close to real ones.
KEYS = st.sampled_from(
    [
        *("name", "healthy", "health", "state", "status", "components", "details", "checks", "entries", "results"),
        *("failures", "info", "error", "message", "latency", "skipped", "contact", "checkDetails", "errorMessage"),
        *("description", "type", "impact", "data", "exception", "duration", "output", "observedValue", "observedUnit"),
        *("componentType", "outcome", "system", "a:responseTime"),
    ]
) | st.text(max_size=5)
WORDS = st.sampled_from(
    [
        *("UP", "DOWN", "UNKNOWN", "OUT_OF_SERVICE", "up", "down", "ok", "error", "pass", "warn", "fail", "Healthy"),
        *("Degraded", "Unhealthy", "OK", "working", "WARNING", "ms", "s", "00:00:01.5", "1.00:00:00", "NaN"),
        *("Partially Available", "Unavailable", "Warning: x", "unavailable: y\nwarning: z"),
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=20)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=6))
CONTENT_TYPES = st.sampled_from(
    [
        *(None, "", "application/json", "application/health+json", "text/html", "text/plain; version=0.0.4"),
        *("application/vnd.spring-boot.actuator.v3+json", "application/json; charset=utf-16", "x; charset=shift_jis"),
    ]
) | st.text(max_size=30)
STATUSES = st.sampled_from([200, 204, 302, 404, 500, 503]) | st.integers(-1, 1000)
REAL = st.sampled_from([case.data for _, case in CASES if len(case.data) < 5_000])
BROKEN = st.builds(
    lambda body, at, length, inserted: body[: at % (len(body) + 1)] + inserted + body[at % (len(body) + 1) + length :],
    REAL,
    st.integers(0, 5_000),
    st.integers(0, 40),
    st.binary(max_size=8)
    | st.sampled_from([b'"', b"{", b"[", b"\\ud800", b"\\u0000", b"\0", b"\xff", b"NaN", b"1e999"]),
)
BODIES = st.binary(max_size=300) | REAL | BROKEN | JSON.map(lambda value: json.dumps(value).encode())


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield key
            yield from texts_in(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from texts_in(member)


def values_and_depth(value: Any) -> tuple[int, int]:
    if not isinstance(value, dict | list):
        return 1, 0
    inner = [values_and_depth(member) for member in (value.values() if isinstance(value, dict) else value)]
    return sum(count for count, _ in inner) + 1, 1 + max((depth for _, depth in inner), default=0)


def check_dependency(dependency: Dependency) -> None:
    assert dependency.name == dependency.name.strip() != ""
    assert dependency.latency_ms is None or 0 < dependency.latency_ms < float("inf")
    assert not dependency.skipped or dependency.status is Status.UP
    for tree in (dependency.contact, dependency.check_details, dependency.error):
        count, depth = values_and_depth(tree)
        assert count <= MAX_TREE_VALUES + 1
        assert depth <= MAX_TREE_DEPTH
        assert sum(len(text) for text in texts_in(tree)) <= MAX_TREE_CHARS + MAX_TREE_VALUES


def check_report(report: Report, status: int) -> None:
    assert len(report.dependencies) <= MAX_DEPENDENCIES
    assert len({dependency.name for dependency in report.dependencies}) == len(report.dependencies)
    assert len(report.warnings) <= MAX_WARNINGS
    assert len(set(report.warnings)) == len(report.warnings)
    assert (report.status is Status.DOWN) or status < 400
    for dependency in report.dependencies:
        check_dependency(dependency)
    written = msgspec.json.encode(report)
    assert msgspec.json.decode(written, type=Report) == report
    for text in texts_in(msgspec.to_builtins(report)):
        assert len(text) <= MAX_TEXT
        assert "\0" not in text
        text.encode("utf-8")


@settings(reproducible, max_examples=400)
@given(BODIES, CONTENT_TYPES, STATUSES, st.sampled_from(NAMED))
def test_any_answer_makes_a_report_within_bounds(
    body: bytes, content_type: str | None, status: int, named: tuple[str, dict[str, Any] | None]
) -> None:
    report = read(body, content_type, status, *named)
    check_report(report, status)
    assert read(body, content_type, status, *named) == report


@settings(reproducible, max_examples=300)
@given(BODIES, CONTENT_TYPES, STATUSES)
def test_a_recognised_format_reads_the_same_when_it_is_named(
    body: bytes, content_type: str | None, status: int
) -> None:
    report = read(body, content_type, status)
    named = read(body, content_type, status, report.format)
    if report.format == "plain":
        assert (named.status, named.dependencies) == (report.status, ())
    else:
        assert named == report


@settings(reproducible, max_examples=300)
@given(st.text(max_size=200), STATUSES)
def test_a_body_may_be_text_as_well(body: str, status: int) -> None:
    check_report(read(body, None, status), status)


@settings(reproducible, max_examples=300)
@given(st.lists(st.sampled_from(["[+]a ok", "[-]b failed: x", "[+]", "[-] c", "ok", "", "[+]d excluded: ok", "\r"])))
def test_any_lines_of_kubernetes_are_read(lines: list[str]) -> None:
    check_report(read("\n".join(lines), "text/plain", 200, "kubernetes"), 200)


@settings(reproducible, max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["dependency_health_status", "dependency_health", "dependency_health_healthy", "up"]),
            st.text('abn="{}\\, \t', max_size=12),
            st.sampled_from(["0", "1", "2", "NaN", "+Inf", "", "x", "1e999", "0 123"]),
        )
    )
)
def test_any_samples_of_prometheus_are_read(samples: list[tuple[str, str, str]]) -> None:
    body = "\n".join(f'{metric}{{name="{label}"}} {value}' for metric, label, value in samples)
    check_report(read(body, "text/plain", 200, "prometheus"), 200)
