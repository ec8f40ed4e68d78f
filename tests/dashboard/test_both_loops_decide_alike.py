"""The loop in Python and the loop in TypeScript decide alike, also where no vector has looked: on random histories."""

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from build_dashboard import ROOT
from dashboard.built import node
from everpoll.loops.events import Event
from everpoll.loops.options import LoopPolicy
from everpoll.loops.reducer import initial, step
from loop_snapshots import seen

CASES = 400
STEPS = 40
SEED = 20_261_118
REASONS = ("hidden", "operator", "shutdown")
KINDS = ("ok", "ok", "ok", "failed", "failed", "failed", "snoozed", "stopped", "skipped", "canceled")


def _policy(rng: random.Random) -> dict[str, Any]:
    every_s = rng.choice([0.1, 1, 10, 60])
    policy: dict[str, Any] = {
        "every_s": every_s,
        "jitter": rng.choice([0, 0.1, 1]),
        "cap": rng.choice([None, 1, 2.5, 8]),
    }
    policy["fixed_rate"] = rng.random() < 0.4
    choices = {
        "first_s": rng.choice([0, 3.5]),
        "slow_when_hidden": rng.choice([1, 6]),
        "safety_every_s": every_s * 5,
        "adaptive": {"minimum_s": every_s / 4, "maximum_s": every_s * 4, "faster": 0.5, "slower": 1.5, "patience": 2},
        "breaker": {"failures": 2, "cooldown_s": rng.choice([5, 30])},
    }
    return policy | {name: value for name, value in choices.items() if rng.random() < 0.3}


def _event(rng: random.Random, run: int, generation: int) -> dict[str, Any]:
    kind = rng.choice(["tick"] * 6 + ["finished"] * 6 + ["overran", "trigger", "pause", "resume", "resume", "reset"])
    if rng.random() < 0.12:
        kind = rng.choice(["start", "replace", "push_up", "push_down", "close"])
    match kind:
        case "tick":
            return {"type": kind, "condition": rng.choice([True] * 8 + [False, "it raised"])}
        case "finished" | "overran":
            outcome = {
                "kind": "failed" if kind == "overran" else rng.choice(KINDS),
                "reason": rng.choice([None, "busy"]),
                "delay_s": rng.choice([0, 0, 2.5, 200]),
                "changed": rng.choice([None, True, False]),
            }
            ours = rng.random() < 0.9
            return {"type": kind, "run": run, "generation": generation - (not ours), "outcome": outcome}
        case "trigger":
            return {"type": kind, "force": rng.random() < 0.3}
        case "pause":
            return {"type": kind, "reason": rng.choice(REASONS)}
        case "resume":
            return {"type": kind, "reason": rng.choice(REASONS), "position": rng.randrange(3)}
    return {"type": kind}


def _case(number: int) -> dict[str, Any]:
    """A random history, with what the Python implementation makes of it as the expectation."""
    rng = random.Random(f"{SEED} {number}")
    written = _policy(rng)
    policy = msgspec.convert(written, LoopPolicy)
    state, now, steps = initial(policy), 0.0, []
    for taken in range(STEPS):
        event = {"type": "start"} if taken == 0 else _event(rng, state.in_flight, state.generation)
        due = state.next_due
        now = (
            max(now, due)
            if event["type"] == "tick" and due is not None and rng.random() < 0.8
            else now + rng.random() * 9
        )
        chance = rng.random()
        state, effect = step(policy, state, msgspec.convert(event, Event), now, chance)
        expect = seen(state) | {"effect": effect.value}
        for counted in ("skipped_condition", "skipped_paused", "skipped_stopped"):
            del expect[counted]
        steps.append({"at": now, "event": event, "chance": chance, "expect": expect})
    return {"file": "random", "name": str(number), "rule": f"seed {SEED}", "policy": written, "steps": steps}


def test_random_histories_end_in_the_same_states(tmp_path: Path) -> None:
    """Every field of the state agrees after every step; a difference names the case, which its number replays."""
    cases = tmp_path / "cases.json"
    cases.write_text(json.dumps([_case(number) for number in range(CASES)]))
    script = ROOT / "dashboard" / "src" / "loop" / "tests" / "replay.ts"
    command = [str(node().program), "--disable-warning=ExperimentalWarning", str(script), str(cases)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr
    assert f"{CASES} cases, 0 differ" in ended.stdout
