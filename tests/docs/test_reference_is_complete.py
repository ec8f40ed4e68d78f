"""The reference names every public name, option, field and method; the glossary stays in order."""

import inspect
import re
from enum import Enum

import pytest
from doc_pages import ROOT

import everpoll
import everpoll.errors
import everpoll.policy
from everpoll.loops import Loop, LoopOptions, Loops, LoopState, Outcome, Phase
from everpoll.policy import PauseReason
from everpoll.testing import VirtualClock

REFERENCE = ROOT / "docs/reference"
# These belong to the registry; their own comment in loop.py says so.
INTERNAL_OF_LOOP = {"become", "due", "end", "entry", "forget_run", "resume_at", "start", "under_way"}
INTERNAL_OF_LOOPS = {"event_loop_for", "in_thread", "now", "set_deadline", "spawn", "start"}


def reference(page: str) -> str:
    return (REFERENCE / page).read_text(encoding="utf-8")


def code_words(text: str) -> set[str]:
    """Every name that is written as code, inline or in a block, whatever is around it."""
    spans = re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
    return {word for span in spans for word in re.findall(r"\w+", span)}


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def missing(wanted: set[str], page: str) -> list[str]:
    return sorted(wanted - code_words(reference(page)))


def test_every_public_name_is_in_the_reference() -> None:
    written = {word for page in REFERENCE.glob("*.md") for word in code_words(page.read_text(encoding="utf-8"))}
    assert sorted(set(everpoll.__all__) - written) == []


def test_every_option_of_a_loop_is_documented_with_its_own_row() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \|", reference("loops.md"), re.MULTILINE))
    assert sorted({"every", *LoopOptions.__annotations__} - rows) == []


def test_every_field_of_state_and_outcome_is_documented() -> None:
    assert missing(public(LoopState) - {"life"}, "loops.md") == []
    assert missing(set(LoopState.__struct_fields__) - {"life"}, "loops.md") == []
    assert missing(set(Outcome.__struct_fields__) | {"ok"}, "loops.md") == []


def test_every_method_of_a_loop_and_of_all_loops_is_documented() -> None:
    assert missing(public(Loop) - INTERNAL_OF_LOOP, "loops.md") == []
    assert missing(public(Loops) - INTERNAL_OF_LOOPS, "loops.md") == []


@pytest.mark.parametrize("words", [Phase, PauseReason], ids=lambda words: words.__name__)
def test_every_phase_and_pause_reason_is_documented(words: type[Enum]) -> None:
    assert missing({member.value for member in words}, "loops.md") == []


def test_every_policy_and_its_parameters_are_documented() -> None:
    page = "policies.md"
    values = [
        getattr(everpoll.policy, name) for name in ("Adaptive", "Backoff", "Breaker", "Budget", "Confirm", "Gate")
    ]
    assert missing({value.__name__ for value in values}, page) == []
    for value in values:
        assert missing(set(inspect.signature(value).parameters), page) == [], value.__name__
        assert missing({name for name in public(value) if callable(getattr(value, name))}, page) == [], value.__name__


def test_every_error_is_documented() -> None:
    kinds = {name for name, value in vars(everpoll.errors).items() if isinstance(value, type)}
    assert missing(kinds, "errors.md") == []


def test_every_method_of_the_virtual_clock_is_documented() -> None:
    assert missing(public(VirtualClock), "testing.md") == []


def test_glossary_terms_are_sorted_and_appear_once() -> None:
    terms = re.findall(r"^\| \*\*(.+?)\*\*", reference("glossary.md"), re.MULTILINE)
    assert len(terms) > 20
    assert terms == sorted(set(terms), key=str.casefold)
