"""A mapping that is wrong is refused with its field, its value and what to write; a right one is compiled once."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everpoll.errors import BadInput
from everpoll.monitors import compile_mapping, read

reproducible = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])

GOOD: dict[str, Any] = {"root": "checks", "fields": {"name": "name", "healthy": "ok"}}


def with_field(**fields: Any) -> dict[str, Any]:
    return {"root": "checks", "fields": {"name": "name", "healthy": "ok", **fields}}


WRONG: list[tuple[Any, str]] = [
    (5, "mapping=5: not a mapping"),
    ([], "mapping=[]: not a mapping"),
    ("{}", "mapping='{}': not a mapping"),
    ({}, "mapping.root=None: not a path"),
    ({"root": "x"}, "mapping.fields=None: not an object"),
    ({"root": None, "fields": {}}, "mapping.root=None: not a path"),
    ({"root": "x", "fields": {}}, "mapping.fields.name is missing"),
    ({"root": "x", "fields": {"name": "n"}}, "mapping.fields.healthy is missing"),
    ({"root": "x", "fields": [], "more": 1}, "mapping: 'more' is not known; write root, fields"),
    ({"root": "x" * 501, "fields": GOOD["fields"]}, "longer than 500 characters"),
    ({"root": "a." * 60 + "a", "fields": GOOD["fields"]}, "has more than 50 parts"),
    (with_field(colour="x"), "mapping.fields: 'colour' is not known"),
    (with_field(latency="$key"), 'mapping.fields.latency="$key": only the name can be the key'),
    (with_field(contact="$key"), 'mapping.fields.contact="$key": only the name can be the key'),
    (with_field(healthy="$key"), 'mapping.fields.healthy="$key": only the name can be the key'),
    (with_field(name=""), "mapping.fields.name='': not a path"),
    (with_field(name={"field": "x", "equals": "y"}), "mapping.fields.name="),
    (with_field(name=5), "mapping.fields.name=5: not a path"),
    (with_field(healthy=None), "mapping.fields.healthy=None: not a path"),
    (with_field(healthy={"field": "x"}), "write either equals or in beside field"),
    (with_field(healthy={"field": "x", "equals": "a", "in": ["a"]}), "write either equals or in beside field"),
    (with_field(healthy={"equals": "a"}), "mapping.fields.healthy.field=None: not a path"),
    (with_field(healthy={"field": "x", "equals": ""}), "mapping.fields.healthy.equals: '' is not a word"),
    (with_field(healthy={"field": "x", "equals": None}), "mapping.fields.healthy.equals: None is not a word"),
    (with_field(healthy={"field": "x", "in": []}), "mapping.fields.healthy.in=[]: write a list of 1 to 100 words"),
    (with_field(healthy={"field": "x", "in": "up"}), "mapping.fields.healthy.in='up': write a list"),
    (with_field(healthy={"field": "x", "in": ["a"] * 101}), "write a list of 1 to 100 words"),
    (with_field(healthy={"field": "x", "in": [["a"]]}), "mapping.fields.healthy.in: ['a'] is not a word"),
    (with_field(healthy={"field": "x", "equals": "UP", "warn": ["up"]}), "cannot mean both up and degraded"),
    (with_field(healthy={"field": "x", "equals": "UP", "warn": "slow"}), "mapping.fields.healthy.warn='slow'"),
    (with_field(healthy={"field": "x", "equals": "UP", "unit": "s"}), "mapping.fields.healthy: 'unit' is not known"),
    (with_field(skipped={"field": "x", "equals": "y", "warn": ["z"]}), "mapping.fields.skipped: 'warn' is not known"),
    (with_field(latency={"field": "x", "unit": "h"}), "mapping.fields.latency.unit='h': not a unit; write ms, s or us"),
    (with_field(latency={"field": "x", "unit": ["s"]}), "mapping.fields.latency.unit=['s']: not a unit"),
    (with_field(latency={"unit": "s"}), "mapping.fields.latency=None: not a path"),
    (with_field(contact={"field": "x", "equals": "y"}), "mapping.fields.contact="),
    (with_field(error={"field": "x", "equals": "y"}), "mapping.fields.error="),
    ({"metrics": []}, "mapping.metrics=[]: write an object"),
    ({"metrics": {"up": "colour"}}, "mapping.metrics.up='colour': not a field; write code, healthy, latency"),
    ({"metrics": {"up": ["healthy"]}}, "mapping.metrics.up=['healthy']: not a field"),
    ({"metrics": {"up": "healthy", "alive": "healthy"}}, "mapping.metrics: both up and alive stand for healthy"),
    ({"metrics": {"": "healthy"}}, "mapping.metrics: '' is not a name"),
    ({"labels": {"a": "state"}}, "mapping.labels.a='state': not a field; write description, errorMessage"),
    ({"labels": {}, "latency_unit": "m"}, "mapping.latency_unit='m': not a unit"),
    ({"labels": {}, "healthy_value": "1"}, "mapping.healthy_value='1': not a number"),
    ({"labels": {}, "healthy_value": float("nan")}, "mapping.healthy_value=nan: out of range"),
    ({"labels": {}, "fields": {}}, "mapping: 'fields' is not known"),
]


@pytest.mark.parametrize(("mapping", "words"), WRONG, ids=[words for _, words in WRONG])
def test_a_wrong_mapping_is_refused_in_words(mapping: Any, words: str) -> None:
    with pytest.raises(BadInput) as refused:
        compile_mapping(mapping)
    assert words in str(refused.value)
    with pytest.raises(ValueError, match="mapping"):
        read(b"[]", "application/json", 200, mapping=mapping)


@pytest.mark.parametrize(
    ("named", "mapping", "words"),
    [
        ("json", None, "format='json': not a known format; write one of auto, proactive-deps"),
        ("", None, "format='': not a known format"),
        (None, None, "format=None: not a known format"),
        (["auto"], None, "format=['auto']: not a known format"),
        ("mapping", None, 'format="mapping" needs a mapping'),
        ("spring", GOOD, 'format="spring" takes no such mapping; write auto or mapping'),
        ("prometheus", GOOD, 'format="prometheus" takes no such mapping'),
        ("plain", GOOD, 'format="plain" takes no such mapping'),
        ("spring", {"labels": {}}, 'format="spring" takes no such mapping; write auto or mapping or prometheus'),
    ],
)
def test_a_wrong_format_is_refused_in_words(named: Any, mapping: Any, words: str) -> None:
    with pytest.raises(BadInput) as refused:
        read(b"", None, 200, named, mapping)
    assert words in str(refused.value)


@pytest.mark.parametrize("mapping", [GOOD, {"metrics": {"up": "healthy"}, "labels": {"instance": "name"}}])
def test_a_compiled_mapping_is_frozen_and_reads_the_same(mapping: dict[str, Any]) -> None:
    compiled = compile_mapping(mapping)
    assert compile_mapping(compiled) is compiled
    body = b'{"checks":[{"name":"a","ok":false}]}' if "root" in mapping else b'up{instance="a"} 0'
    assert read(body, None, 200, mapping=compiled) == read(body, None, 200, mapping=mapping)
    assert [one.name for one in read(body, None, 200, mapping=compiled).dependencies] == ["a"]
    with pytest.raises(AttributeError):
        compiled.labels = {}  # type: ignore[misc, union-attr]


def test_changing_the_dictionary_later_changes_no_compiled_mapping() -> None:
    words = ["up"]
    compiled = compile_mapping({"root": "", "fields": {"name": "n", "healthy": {"field": "s", "in": words}}})
    words[0] = "down"
    assert read(b'[{"n":"a","s":"up"}]', None, 200, mapping=compiled).status == "up"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["$key", "a.b"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["root", "fields", "name", "healthy", "field", "equals", "in", "warn", "unit", "metrics"])
            | st.sampled_from(["labels", "latency", "latency_unit", "healthy_value", "up"]),
            inner,
            max_size=4,
        )
    ),
)


@settings(reproducible, max_examples=500)
@given(JSON)
def test_any_mapping_is_compiled_or_refused(mapping: Any) -> None:
    with suppress(BadInput):
        read(b'[{"a":{"b":"x"}}]', None, 200, mapping=compile_mapping(mapping))


@settings(reproducible, max_examples=300)
@given(st.lists(st.text(st.characters(exclude_characters="\0\\", exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_every_key_can_be_reached(keys: list[str]) -> None:
    """Dots within keys are escaped; the path then leads through exactly these keys."""
    path = ".".join(key.replace(".", "\\.") for key in keys)
    if len(path) > 500 or len(keys) > 50 or not path.strip():
        return
    body: Any = {"n": "found", "h": True}
    for key in reversed(keys):
        body = {key: body}
    mapping = {"root": "", "fields": {"name": f"{path}.n", "healthy": f"{path}.h"}}
    if len(f"{path}.n") > 500:
        return
    report = read(msgspec.json.encode([body]), None, 200, mapping=mapping)
    assert [one.name for one in report.dependencies] == ["found"]
