"""`from everpoll import …` offers exactly what `__all__` says: sorted, importable, and documented in place."""

import importlib
from types import ModuleType

import pytest

import everpoll

# The rooms that users import from; the others are reached through these.
PUBLIC_ROOMS = (
    "everpoll",
    "everpoll.jobs",
    "everpoll.logs",
    "everpoll.loops",
    "everpoll.monitors",
    "everpoll.monitors.importing",
    "everpoll.policy",
    "everpoll.testing",
    "everpoll.watches",
    "everpoll.watches.adapters",
)


@pytest.fixture(params=PUBLIC_ROOMS)
def room(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(request.param)


def test_public_names_are_sorted_and_appear_once(room: ModuleType) -> None:
    names = list(room.__all__)
    assert len(set(names)) == len(names)
    # Constants, then classes, then the rest, each in order: as ruff sorts it.
    assert names == sorted(names, key=lambda name: (0 if name.isupper() else 1 if name[0].isupper() else 2, name))


def test_public_names_can_be_imported(room: ModuleType) -> None:
    assert [name for name in room.__all__ if not hasattr(room, name)] == []


def test_public_names_are_all_that_a_star_import_would_give(room: ModuleType) -> None:
    namespace: dict[str, object] = {}
    exec(f"from {room.__name__} import *", namespace)  # noqa: S102 - the statement is the subject
    assert set(namespace) - {"__builtins__"} == set(room.__all__)


def test_what_is_imported_for_the_user_is_public() -> None:
    """A name that `__init__` imports and does not list is either forgotten or a leak."""
    assert [name for name in everpoll.__all__ if not hasattr(everpoll, name)] == []  # imported when first used
    imported = {
        name for name, value in vars(everpoll).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert imported | {"__version__"} == set(everpoll.__all__)


def test_public_classes_and_functions_say_what_they_are(room: ModuleType) -> None:
    classes = [getattr(room, name) for name in room.__all__ if isinstance(getattr(room, name), type)]
    assert [kind.__name__ for kind in classes if not kind.__doc__] == []
