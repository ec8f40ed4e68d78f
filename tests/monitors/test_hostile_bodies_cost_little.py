"""A hostile body costs a bounded amount of memory and work, and is reported in words.

Memory is measured, not guessed: `tracemalloc` sees every block that decoding takes. No test here looks at a clock.
"""

import json
import tracemalloc
from collections.abc import Callable, Iterator, Mapping

import pytest

from everpoll.monitors import Report, Status, read
from everpoll.monitors.body import MAX_BODY_BYTES
from everpoll.monitors.gathering import MAX_ITEMS
from everpoll.monitors.report import MAX_DEPENDENCIES, MAX_WARNINGS

MEGABYTE = 1_000_000
# A look may take 128 MB at its peak; the body itself, and what fetches it, need their share of that.
MAX_PEAK = 80 * MEGABYTE
FULL = MAX_BODY_BYTES


def filled(item: bytes, begin: bytes = b"[", end: bytes = b"]", size: int = FULL) -> bytes:
    """A body of at most `size` bytes, full of one item."""
    return begin + b",".join([item] * ((size - len(begin) - len(end)) // (len(item) + 1))) + end


def keys(size: int = FULL) -> Iterator[bytes]:
    for number in range(size // 12):
        yield b'"%07d":{}' % number


HOSTILE: Mapping[str, Callable[[], bytes]] = {
    "empty objects": lambda: filled(b"{}"),
    "small objects": lambda: filled(b'{"":0}'),
    "numbers": lambda: filled(b"1.5"),
    "short texts": lambda: filled(b'"ab"'),
    "different keys": lambda: b"{" + b",".join(keys()) + b"}",
    "one long text": lambda: b'["' + b"x" * (FULL - 4) + b'"]',
    "one long text beyond the basic plane": lambda: b'["' + "😀".encode() * (FULL // 4 - 4) + b'"]',
    "one long number": lambda: b"[" + b"1" * (FULL - 2) + b"]",
    "one long fraction": lambda: b"[0." + b"1" * (FULL - 4) + b"]",
    "open lists": lambda: b"[" * FULL,
    "open objects": lambda: b'{"a":' * (FULL // 5),
    "open texts": lambda: b'["' + b'\\"' * (FULL // 2 - 2),
    "white space": lambda: b" " * FULL,
    "line ends": lambda: b"\n" * FULL,
    "lines of Kubernetes": lambda: b"[+]a ok\n" * (FULL // 8),
    "lines of metrics": lambda: b'dependency_health{dependency="a"} 0\n' * (FULL // 36),
    "labels of one metric": lambda: b'dependency_health{dependency="a"' + b',a="b"' * (FULL // 7) + b"} 0\n",
    "a label that never ends": lambda: b'dependency_health{dependency="' + b"\\\\" * (FULL // 2 - 20),
    "lines that are not metrics": lambda: b"ab\n" * (FULL // 3),
    "dependencies": lambda: filled(b'{"name":"a","healthy":true,"health":{"state":0,"latency":5}}', size=1_500_000),
    "details": lambda: b'[{"name":"a","healthy":true,"checkDetails":' + filled(b"[1]", size=300_000) + b"}]",
    "components in components": lambda: (
        b'{"status":"UP","components":' + b'{"a":{"components":' * 48 + b"{}" + b"}}" * 48 + b"}"
    ),
    "nearly JSON": lambda: filled(b"NaN", size=900_000),
    "wide characters": lambda: ("[" + "1," * (FULL // 4 - 8) + "1]").encode("utf-16"),
}
"""Each is made by the test that reads it: together they take 200 MB."""
FORMATS = ["auto", "proactive-deps", "spring", "health+json", "django", "kubernetes", "prometheus"]


def measured(body: bytes, named: str) -> tuple[Report, int]:
    tracemalloc.start()
    try:
        report = read(body, "application/json", 200, named)
        return report, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("named", FORMATS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_the_peak_of_memory_is_bounded(kind: str, named: str) -> None:
    report, peak = measured(HOSTILE[kind](), named)
    assert peak < MAX_PEAK, f"{kind} as {named} took {peak / MEGABYTE:.0f} MB"
    assert len(report.dependencies) <= MAX_DEPENDENCIES
    assert len(report.warnings) <= MAX_WARNINGS


@pytest.mark.parametrize("named", ["auto", "proactive-deps"])
def test_a_body_beyond_the_limit_is_not_looked_at(named: str) -> None:
    body = b"[" * (MAX_BODY_BYTES + 1)
    report, peak = measured(body, named)
    assert peak < MEGABYTE
    assert report.warnings == ("the body is longer than 8,388,608 bytes",)
    assert report.status is (Status.UP if named == "auto" else Status.UNKNOWN)


def test_100_megabytes_of_json_are_not_looked_at() -> None:
    body = b'[{"name":"a","healthy":true}' + b" " * (100 * MEGABYTE) + b"]"
    report, peak = measured(body, "proactive-deps")
    assert peak < MEGABYTE
    assert report.warnings == ("the body is longer than 8,388,608 bytes",)


def test_the_reasons_are_in_words() -> None:
    assert read(HOSTILE["empty objects"](), None, 200).warnings == ("the JSON has more than 100,000 objects and lists",)
    assert read(HOSTILE["numbers"](), None, 200).warnings == ("the JSON has more than 300,000 values",)
    assert read(HOSTILE["open lists"](), None, 200).warnings == ("the JSON has more than 100,000 objects and lists",)
    assert read(b"[" * 50_000, None, 200).warnings == ("the JSON is nested deeper than 100 levels",)


def test_a_thousand_dependencies_are_kept_and_further_ones_are_left_out() -> None:
    items = [{"name": f"d{number}", "healthy": True} for number in range(MAX_DEPENDENCIES)]
    report = read(json.dumps(items), "application/json", 200)
    assert len(report.dependencies) == MAX_DEPENDENCIES
    assert report.warnings == ()
    items.append({"name": "one too many", "healthy": False})
    report = read(json.dumps(items), "application/json", 200)
    assert len(report.dependencies) == MAX_DEPENDENCIES
    assert report.warnings == ("more than 1,000 dependencies; the further ones are left out",)
    assert report.status is Status.UP


@pytest.mark.parametrize("count", [MAX_DEPENDENCIES, MAX_DEPENDENCIES + 1])
def test_a_thousand_dependencies_of_metrics_are_kept_with_all_their_samples(count: int) -> None:
    names = [f"d{number}" for number in range(count)]
    lines = [f'dependency_health_status{{name="{name}"}} 0' for name in names]
    lines += [f'dependency_health_latency_ms{{name="{name}"}} 5' for name in names]
    report = read("\n".join(lines), "text/plain", 200)
    assert len(report.dependencies) == MAX_DEPENDENCIES
    assert {one.latency_ms for one in report.dependencies} == {5}
    assert len(report.warnings) == count - MAX_DEPENDENCIES


def test_a_hundred_warnings_are_kept_and_the_last_one_says_that_there_were_more() -> None:
    report = read(json.dumps([0] * MAX_WARNINGS), "application/json", 200, "proactive-deps")
    assert report.warnings == tuple(f"item {number}: not an object" for number in range(MAX_WARNINGS))
    report = read(json.dumps([0] * 5_000), "application/json", 200, "proactive-deps")
    assert report.warnings[:-1] == tuple(f"item {number}: not an object" for number in range(MAX_WARNINGS - 1))
    assert report.warnings[-1] == "further warnings are left out"


def test_items_that_cannot_be_read_are_looked_at_up_to_a_bound() -> None:
    body = json.dumps([{"name": "same", "healthy": True}] * (MAX_ITEMS + 1))
    report = read(body, "application/json", 200)
    assert [one.name for one in report.dependencies] == ["same"]
    assert f"more than {MAX_ITEMS:,} items; the further ones are not read" in report.warnings
