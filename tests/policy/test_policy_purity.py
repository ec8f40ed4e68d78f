"""The policy room decides and does nothing else: it imports no clock, no chance, no I/O, and exports what it has."""

import ast
import inspect
import random
from pathlib import Path

import pytest

from everpoll import policy
from everpoll.policy import Clock, Rng

MODULES = sorted(Path(policy.__file__).parent.glob("*.py"))
ALLOWED = {
    "collections.abc",
    "dataclasses",
    "datetime",
    "enum",
    "everpoll.errors",
    "fractions",
    "itertools",
    "math",
    "re",
    "sys",
    "typing",
}


def imports(module: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.stem)
def test_a_policy_imports_values_only(module: Path) -> None:
    assert {name for name in imports(module) if not name.startswith("everpoll.policy")} <= ALLOWED


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.stem)
def test_a_policy_opens_with_what_it_promises_and_never_does(module: Path) -> None:
    opening = ast.get_docstring(ast.parse(module.read_text("utf-8"))) or ""
    assert "Promises" in opening
    assert "Never" in opening


USED_BY_THEIR_OWN_NAME = {
    "everpoll.policy.start_window",
    "everpoll.policy.storable_texts",
    "everpoll.policy.visible_texts",
}
"""Their names say little without that of their module, and few rooms need them."""


def test_every_public_name_is_exported_once_and_in_order() -> None:
    """Constants, then classes, then functions, each by name: the order that ruff keeps."""
    defined = {
        name
        for module in vars(policy).values()
        if inspect.ismodule(module) and module.__name__.startswith("everpoll.policy.")
        if module.__name__ not in USED_BY_THEIR_OWN_NAME
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        if inspect.isclass(value) or inspect.isfunction(value)
    }
    assert defined <= set(policy.__all__)
    assert all(hasattr(policy, name) for name in policy.__all__)
    assert policy.__all__ == sorted(set(policy.__all__), key=lambda name: (not name.isupper(), name[0].islower(), name))


def test_the_standard_generator_is_an_rng() -> None:
    """Checked by mypy as well: what the rooms above hand in fits the protocols."""
    rng: Rng = random.Random(1)
    assert policy.Backoff("1s").delay(1, rng) == policy.Backoff("1s").delay(1, random.Random(1))


def test_a_clock_is_anything_with_two_times() -> None:
    class Stopped:
        def now(self) -> float:
            return 1.0

        def wall(self) -> float:
            return 1_700_000_000.0

    clock: Clock = Stopped()
    assert (clock.now(), clock.wall()) == (1.0, 1_700_000_000.0)
