"""The reducer does what the shared vectors say, and every rule, mistake and edge case of LOOPS has its proof.

The vectors are written from the rules, not recorded from the code; `conformance/README.md` is their format.
"""

import math
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from everpoll.loops.events import Event
from everpoll.loops.options import LoopPolicy
from everpoll.loops.reducer import initial, step
from everpoll.loops.state import LoopState
from loop_snapshots import seen

HERE = Path(__file__).parent
VECTORS = HERE.parents[1] / "conformance" / "loops"
TOLERANCE = 1e-9


class VectorStep(msgspec.Struct, forbid_unknown_fields=True):
    at: float
    event: Event
    expect: dict[str, Any]
    chance: float = 0.5
    policy: LoopPolicy | None = None


class Case(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    rule: str
    policy: LoopPolicy
    steps: list[VectorStep]
    given: dict[str, Any] = {}


def read_cases() -> list[tuple[str, Case]]:
    decoder = msgspec.json.Decoder(list[Case])
    return [(path.stem, case) for path in sorted(VECTORS.glob("*.json")) for case in decoder.decode(path.read_bytes())]


CASES = read_cases()

# What LOOPS asks for. Each needs a shell test whose name begins so and, unless only the shell can show it, a vector.
SEMANTICS = {f"semantics {n}": f"test_semantics_{n:02}_" for n in range(1, 13)}
MISTAKES = {f"mistake {n}": f"test_mistake_{n:02}_" for n in range(1, 11)}
EDGES = {
    f"edge: {words}": f"test_edge_{re.sub(r'[^a-z0-9]+', '_', words.lower())}"
    for words in (
        "cap 1",
        "cap infinity",
        "interval 0 or negative",
        "jitter 0",
        "jitter 1",
        "wall clock jumps",
        "8 h suspended",
        "cancel during sleep",
        "cancel during run",
        "cancel during hook",
        "a hook that raises",
        "100 triggers during one run",
        "trigger while paused",
        "trigger while open",
        "1,000 pause-resume cycles",
        "re-register during a run",
        "reset during a run",
        "Stop during a run",
        "a sync function",
        "10,000 loops resuming",
        "Retry-After longer than the cap",
        "a function that suppresses cancellation",
    )
}
SHELL_ONLY = {
    "edge: interval 0 or negative",
    "edge: wall clock jumps",
    "edge: cancel during sleep",
    "edge: cancel during run",
    "edge: cancel during hook",
    "edge: a hook that raises",
    "edge: 1,000 pause-resume cycles",
    "edge: a sync function",
    "edge: 10,000 loops resuming",
    "edge: a function that suppresses cancellation",
}
RULES = SEMANTICS | MISTAKES | EDGES


@pytest.mark.parametrize(("file", "case"), [pytest.param(*c, id=f"{c[0]}: {c[1].name}") for c in CASES])
def test_vector(file: str, case: Case) -> None:
    policy = case.policy
    state = msgspec.convert(msgspec.to_builtins(initial(policy)) | case.given, LoopState)
    for number, taken in enumerate(case.steps, 1):
        policy = taken.policy or policy
        state, effect = step(policy, state, taken.event, taken.at, taken.chance)
        shown = seen(state) | {"effect": effect.value}
        for field, expected in taken.expect.items():
            where = f"{file}.json, {case.name!r}, step {number} at {taken.at:g} s ({case.rule}): {field}"
            assert same(shown[field], expected), f"{where} is {shown[field]!r}, should be {expected!r}"


def same(actual: object, expected: object) -> bool:
    if isinstance(actual, int | float) and isinstance(expected, int | float):
        both_flags = isinstance(actual, bool) == isinstance(expected, bool)
        return both_flags and math.isclose(actual, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(actual, dict) and isinstance(expected, dict):
        return actual.keys() == expected.keys() and all(same(actual[key], expected[key]) for key in expected)
    return actual == expected


def test_there_are_enough_vectors_each_with_its_own_name() -> None:
    assert len(CASES) >= 60
    names = [(file, case.name) for file, case in CASES]
    assert len(set(names)) == len(names)


def test_every_step_expects_something() -> None:
    bare = [case.name for _, case in CASES for taken in case.steps if taken.expect.keys() <= {"effect"}]
    allowed = {"join", "run"}  # Nothing but the effect matters while a run is under way.
    assert [case.name for _, case in CASES for taken in case.steps if not taken.expect] == []
    effects = {taken.expect["effect"] for _, case in CASES for taken in case.steps if taken.expect.keys() == {"effect"}}
    assert effects <= allowed, bare


def test_every_vector_names_a_rule_that_exists() -> None:
    known = RULES.keys() | {"push with polling as the fallback"}
    assert {case.rule for _, case in CASES} - known == set()


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in SHELL_ONLY])
def test_every_rule_has_a_vector(rule: str) -> None:
    assert any(case.rule == rule for _, case in CASES), f"no vector in conformance/loops/ has the rule {rule!r}"


@pytest.mark.parametrize(("rule", "prefix"), RULES.items())
def test_every_rule_has_a_shell_test(rule: str, prefix: str) -> None:
    begins = re.compile(r"^def (test_\w+)", re.MULTILINE)
    tests = {name for path in HERE.glob("test_*.py") for name in begins.findall(path.read_text())}
    assert any(name.startswith(prefix) for name in tests), f"{rule}: no test in tests/loops is called {prefix}…"
