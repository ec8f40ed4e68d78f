"""An answer that differs from the last one in latencies alone has the report that `read` makes of it."""

import json
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from everpoll.monitors.reading import read
from everpoll.monitors.rereading import MAX_KEPT_BYTES, read_again, read_first

reproducible = settings(derandomize=True, deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
JSON = "application/json"

numbers = st.floats(-10, 1e6, allow_nan=False) | st.integers(-5, 10**20)
words = st.sampled_from(["db", "cache", " db ", "", "x\u00e9", "# HELP dependency_latency_ms"])
anything = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)
LATENCIES = ("latency", "latencyMs")
OF_HEALTH = ("state", "code", "skipped", "latency")
OF_ITEM = (
    *("name", "healthy", "skipped", "state", "latencyMs", "type", "impact", "description", "contact"),
    *("checkDetails", "error", "errorMessage", "lastChecked", "other"),
)


def members(names: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names), anything, max_size=4)


@st.composite
def items(draw: st.DrawFn) -> Any:
    if draw(st.integers(0, 9)) == 0:
        return draw(anything)
    item: dict[str, Any] = {"name": draw(words), "healthy": draw(st.booleans())}
    item |= draw(members(OF_ITEM))
    if draw(st.booleans()):
        item["health"] = draw(members(OF_HEALTH))
    return item


@st.composite
def two_bodies(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A body, and one that differs from it a little: in latencies, or in any one member."""
    body = draw(st.lists(items(), max_size=4))
    other = json.loads(json.dumps(body))
    for item in other:
        if not isinstance(item, dict):
            continue
        if draw(st.booleans()):
            item["latencyMs"] = draw(numbers)
        if isinstance(item.get("health"), dict) and draw(st.booleans()):
            item["health"]["latency"] = draw(numbers)
        if draw(st.integers(0, 5)) == 0:
            item.update(draw(members(OF_ITEM)))
    spaces = draw(st.sampled_from([None, 1]))
    return json.dumps(body).encode(), json.dumps(other, indent=spaces, ensure_ascii=draw(st.booleans())).encode()


@reproducible
@given(two_bodies(), st.sampled_from(["auto", "proactive-deps", "plain", "spring"]), st.sampled_from([200, 503]))
def test_what_is_not_read_anew_is_what_would_have_been_read(
    bodies: tuple[bytes, bytes], form: str, status: int
) -> None:
    before, after = bodies
    last = read_first(before, JSON, status, form, None)
    assert last.report == read(before, JSON, status, form)
    again = read_again(last, after, JSON, status)
    assert again is None or again == read(after, JSON, status, form)


@reproducible
@given(st.binary(max_size=40), st.binary(max_size=40), st.sampled_from([JSON, "text/plain", None]))
def test_so_it_is_for_any_bytes(before: bytes, after: bytes, content_type: str | None) -> None:
    last = read_first(before, content_type, 200, "auto", None)
    assert read_again(last, before, content_type, 200) == last.report
    again = read_again(last, after, content_type, 200)
    assert again is None or again == read(after, content_type, 200)


def body(latency_ms: float, **more: Any) -> bytes:
    item = {"name": "db", "healthy": True, "health": {"state": 0, "latency": latency_ms}, "type": "database"}
    return json.dumps([{**item, **more}]).encode()


@reproducible
@given(st.floats(0.001, 1e6), st.floats(0.001, 1e6))
def test_other_latencies_are_no_reason_to_read_anew(one: float, other: float) -> None:
    last = read_first(body(one), JSON, 200, "auto", None)
    again = read_again(last, body(other), JSON, 200)
    assert again is not None
    assert again.dependencies[0].latency_ms == other
    assert last.report.dependencies[0].latency_ms == one


@reproducible
@given(members(OF_ITEM))
def test_anything_else_that_is_read_is(more: dict[str, Any]) -> None:
    last = read_first(body(1.0), JSON, 200, "auto", None)
    after = body(2.0, **more)
    assume(read(after, JSON, 200).dependencies != read(body(2.0), JSON, 200).dependencies)
    again = read_again(last, after, JSON, 200)
    assert again is None or again == read(after, JSON, 200)


def test_another_status_or_content_type_is() -> None:
    last = read_first(body(1.0), JSON, 200, "auto", None)
    assert read_again(last, body(1.0), JSON, 503) is None
    assert read_again(last, body(1.0), "text/plain", 200) is None


def test_a_long_body_is_told_by_its_checksum() -> None:
    long = b"x" * (MAX_KEPT_BYTES + 1)
    last = read_first(long, "text/plain", 200, "auto", None)
    assert last.body is None
    assert read_again(last, long, "text/plain", 200) is last.report
    assert read_again(last, long + b"y", "text/plain", 200) is None
