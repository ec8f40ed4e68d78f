"""What a row remembers is small, survives JSON, and is understood whichever release wrote it."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll.monitors import Status
from everpoll.monitors.control import Control, read, write
from everpoll.monitors.decision import decide, wake
from everpoll.monitors.incident_changes import MAX_TRACKED

from .scenes import NOON, Story, answer, dependency, report, service

reproducible = settings(derandomize=True, deadline=None, max_examples=100)


def test_the_memory_of_a_healthy_service_is_small() -> None:
    story = Story(service())
    for _ in range(100):
        story.answers(latency_ms=12.5, body="0123456789abcdef")
    assert len(write(story.control)) < 450
    assert read(write(story.control)) == story.control


def test_the_memory_stays_bounded_whatever_a_service_reports() -> None:
    story = Story(service())
    hostile = [dependency(f"{number:04}" + "x" * 1_996, Status.DOWN) for number in range(1_000)]
    for _ in range(3):
        story.answers(report=report(*hostile, status=Status.DOWN), error="y" * 10_000)
    assert len(story.control.dependencies) == MAX_TRACKED
    assert len(write(story.control)) < 2_300 * MAX_TRACKED


def test_fields_of_a_later_release_are_ignored() -> None:
    story = Story(service())
    story.refuses()
    fields = json.loads(write(story.control)) | {"version": 7, "of_tomorrow": {"a": [1]}}
    fields["streak"]["of_tomorrow"] = 1
    assert msgspec.structs.replace(read(json.dumps(fields)), version=1) == story.control


def test_a_field_that_cannot_be_read_costs_no_other() -> None:
    story = Story(service())
    for _ in range(10):
        story.refuses()
    fields = json.loads(write(story.control)) | {"status": "on fire", "waits": 7, "latency_ms": "fast"}
    salvaged = read(json.dumps(fields))
    assert salvaged.status is Status.UNKNOWN
    assert (salvaged.failures, salvaged.opened_at) == (10, story.control.opened_at)
    assert salvaged.streak == story.control.streak
    assert salvaged.due_at == story.control.due_at


@pytest.mark.parametrize("memory", ["", "null", "[]", "7", "{", '"x"', b"\xff\xfe", '{"streak": 5, "failures": -1}'])
def test_a_memory_that_is_nothing_like_one_starts_over(memory: Any) -> None:
    control = read(memory)
    definition = service()
    assert wake(definition, control, NOON).looks
    assert decide(definition, control, answer(NOON), NOON).next_at > NOON


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@reproducible
@given(st.dictionaries(st.sampled_from(Control.__struct_fields__), json_values, max_size=8))
def test_any_json_object_is_read_as_a_memory(fields: dict[str, Any]) -> None:
    control = read(json.dumps(fields))
    assert read(write(control)) == control


@reproducible
@given(st.binary(max_size=40) | st.text(max_size=40))
def test_anything_at_all_is_read_as_a_memory(memory: Any) -> None:
    assert isinstance(read(memory), Control)
