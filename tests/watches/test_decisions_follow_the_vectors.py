"""`decide` does what the vectors in `conformance/watches` say, changes nothing that goes in, and needs nothing outside.

The vectors are written from the rules; `conformance/README.md` is their format.
"""

import ast
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from everpoll import Backoff, Budget
from everpoll.watches import Done, Fail, Verify, Wait
from everpoll.watches import decisions as room
from everpoll.watches.decisions import decide
from everpoll.watches.decisions.events import Event
from everpoll.watches.decisions.policy import CheckPolicy, RunPolicy
from everpoll.watches.memory import RunMemory

VECTORS = Path(__file__).parents[2] / "conformance" / "watches"
CASES = [
    pytest.param(case, id=case["name"])
    for path in sorted(VECTORS.glob("*.json"))
    for case in msgspec.json.decode(path.read_bytes())
]
IMPURE = {"asyncio", "logging", "os", "pathlib", "random", "secrets", "socket", "threading", "time", "uuid", "datetime"}
ALLOWED = {
    *("everpoll.policy", "everpoll.watches.limits", "everpoll.watches.memory"),
    *("everpoll.watches.past_runs", "everpoll.watches.schedule", "everpoll.watches.verdicts"),
}


def policy_of(given: dict[str, Any]) -> RunPolicy:
    budget = Budget(given.pop("budget_s", 1740), given.pop("budget_looks", None))
    checks = {name: CheckPolicy(every=Backoff("2s", jitter=0), **one) for name, one in given.pop("checks", {}).items()}
    return RunPolicy(budget=budget, own_budget=budget, outage_s=given.pop("outage_s", 0.0), checks=checks, **given)


def event_of(given: dict[str, Any]) -> Event:
    kinds: dict[str, Any] = {"done": Done, "fail": Fail, "verify": Verify, "wait": Wait}
    if given.get("verdict"):
        (kind, argument), *options = given["verdict"].items()
        given = given | {"verdict": kinds[kind](argument, **dict(options))}
    return msgspec.convert(given, Event)  # type: ignore[arg-type, no-any-return, unused-ignore]


def as_json(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def approximately(expected: Any) -> Any:
    """Numbers are equal within 1e-9, wherever they stand; everything else is equal exactly."""
    if isinstance(expected, dict):
        return {name: approximately(one) for name, one in expected.items()}
    if isinstance(expected, list):
        return [approximately(one) for one in expected]
    is_number = isinstance(expected, (int, float)) and not isinstance(expected, bool)
    return pytest.approx(expected, rel=1e-9, abs=1e-9) if is_number else expected


@pytest.mark.parametrize("case", CASES)
def test_vector(case: dict[str, Any]) -> None:
    case = deepcopy(case)
    policy = policy_of(case["policy"])
    memory = msgspec.convert({"run_id": "r"} | case["given"], RunMemory)
    for number, step in enumerate(case["steps"], 1):
        before = msgspec.json.encode(memory)
        chance = (step["chance"],) if "chance" in step else ()
        after, plan = decide(policy, memory, event_of(step["event"]), step["at"], *chance)
        assert msgspec.json.encode(memory) == before, "what goes in stays as it is"
        planned = as_json(plan)
        if planned["type"] in {"due", "over"}:
            assert after.step is None, "between two steps nothing of a step is stored"
        decision = None if (found := getattr(plan, "decision", None)) is None else msgspec.structs.asdict(found)
        for name, expected in step["expect"].items():
            where = f"step {number}: {name}"
            if name == "plan":
                assert {one: planned[one] for one in expected} == approximately(expected), where
            elif name in {"decision", "rule"}:
                fields = expected if name == "decision" else {"rule": expected}
                assert decision is not None, where
                assert {one: as_json(decision[one]) for one in fields} == approximately(fields), where
            else:
                assert as_json(getattr(after, name)) == approximately(expected), where
        memory = after


@pytest.mark.parametrize("path", sorted(Path(room.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_a_decision_imports_no_clock_no_randomness_and_no_io(path: Path) -> None:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    assert {one.partition(".")[0] for one in found} & IMPURE == set()
    ours = {one for one in found if one.startswith("everpoll") and not one.startswith("everpoll.watches.decisions")}
    assert ours - ALLOWED == set()
