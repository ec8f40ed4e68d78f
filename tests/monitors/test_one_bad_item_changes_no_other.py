"""An item that cannot be read leaves a warning, and every other item as it was."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everpoll.monitors import read

reproducible = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])

BAD_ITEMS: list[Any] = [
    *(None, 7, "x", [], {}, {"name": 5, "healthy": True}, {"name": " ", "healthy": False}, {"healthy": True}),
    *({"name": "bad", "healthy": "no"}, {"name": "bad", "healthy": None}, {"name": "bad", "healthy": 0, "status": 1}),
]
MAPPING = {"root": "items", "fields": {"name": "name", "healthy": "healthy"}}


def good(count: int) -> list[dict[str, Any]]:
    return [{"name": f"good {number}", "healthy": number % 3 > 0, "status": "UP"} for number in range(count)]


@settings(reproducible, max_examples=300)
@given(st.integers(0, 8), st.integers(0, 8), st.sampled_from(BAD_ITEMS))
def test_in_a_list_of_dependencies(count: int, position: int, bad: Any) -> None:
    items = good(count)
    without = read(json.dumps(items), "application/json", 200, "proactive-deps")
    items.insert(position, bad)
    with_it = read(json.dumps(items), "application/json", 200, "proactive-deps")
    assert with_it.dependencies == without.dependencies
    assert len(with_it.warnings) == 1
    assert with_it.status == without.status or not count


@settings(reproducible, max_examples=300)
@given(st.integers(0, 8), st.integers(0, 8), st.sampled_from(BAD_ITEMS))
def test_in_a_mapped_list(count: int, position: int, bad: Any) -> None:
    items = good(count)
    without = read(json.dumps({"items": items}), "application/json", 200, mapping=MAPPING)
    items.insert(position, bad)
    with_it = read(json.dumps({"items": items}), "application/json", 200, mapping=MAPPING)
    # The word "no" is none of a mapping's words, so it is bad there too.
    assert with_it.dependencies == without.dependencies
    assert len(with_it.warnings) == 1


def checks(parts: dict[str, Any]) -> str:
    return json.dumps({"status": "UP", "checks": list(parts.values())})


def among(key: str) -> Callable[[dict[str, Any]], str]:
    return lambda parts: json.dumps({"status": "UP", key: parts})


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("spring", among("components")),
        ("aspnet", among("entries")),
        ("health+json", among("checks")),
        ("details", among("details")),
        ("microprofile", checks),
        ("django", json.dumps),
    ],
)
@pytest.mark.parametrize("bad", [None, 7, [], True], ids=repr)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_in_the_other_formats(name: str, write: Callable[[dict[str, Any]], str], bad: Any, position: int) -> None:
    value: Any = "working" if name == "django" else {"name": "a", "status": "UP"}
    other: Any = "OK" if name == "django" else {"name": "b", "status": "DOWN"}
    parts = [("a", value), ("b", other)]
    without = read(write(dict(parts)), "application/json", 200, name)
    parts.insert(position, ("bad", bad))
    with_it = read(write(dict(parts)), "application/json", 200, name)
    assert [one for one in with_it.dependencies if one.name != "bad"] == list(without.dependencies)
    assert len(without.dependencies) == 2
    assert with_it.status == without.status
    assert len(with_it.warnings) >= 1
