"""Registration: the function, the policy, the condition and the hook of a loop, checked."""

import inspect
from collections.abc import Callable
from typing import Any, cast

from everpoll.errors import BadInput
from everpoll.loops.options import Condition, Hook, LoopOptions, LoopPolicy
from everpoll.policy import shown


class Registration:
    """The function and the options of a loop. Replacing a loop makes a new one; a run under way keeps its own."""

    __slots__ = ("asks_at_once", "condition", "function", "hook", "in_loop", "policy")

    def __init__(
        self, function: Callable[[], Any], policy: LoopPolicy, condition: Condition | None, hook: Hook | None
    ) -> None:
        self.function = function
        self.in_loop = is_async(function)
        self.policy = policy
        self.condition = condition
        self.asks_at_once = condition is not None and not is_async(condition)
        self.hook = hook


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether the function is async. Any other function runs in a thread."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def name_of(function: object, options: LoopOptions) -> str:
    """Return the name of a loop: `name=`, else the name of its function."""
    if "name" in options:
        name: object = options["name"]
        if isinstance(name, str) and name:
            return name
        raise BadInput(f"name={shown(name)}: the name of a loop is a text of at least one character")
    return str(getattr(function, "__name__", ""))


def check_function(name: str, function: object) -> None:
    """Raise `BadInput` for a function that cannot be a loop."""
    if not callable(function):
        raise BadInput(f"loop {name!r}: function={shown(function)}: give it a function")
    if not name:
        raise BadInput(f"{shown(function)} has no name: pass name=… to register it as a loop")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise BadInput(f"loop {name!r}: a generator cannot be a loop; return instead of yield")
    try:
        inspect.signature(cast("Callable[..., Any]", function)).bind()
    except TypeError as error:
        raise BadInput(f"loop {name!r}: it is called without arguments, but: {error}; use functools.partial") from None
    except ValueError:
        return  # Some builtins have no signature: a wrong one fails when it is called.
