"""Deferred argument: calls whose first argument comes later: the result of the task before, or the ended group.

    {"takes":"result","args":[7],"kwargs":{}}              as it is enqueued
    {"input":…,"takes":"result","args":[7],"kwargs":{}}    as the store completes it when the task before is done
    {"group":10,"args":[42],"kwargs":{}}                   the callback of a group of ten

Promises: the other arguments are checked when the call is enqueued, like those of any call. A job outside of chains and
groups costs one more comparison.
"""

import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from everpoll.errors import BadInput
from everpoll.jobs.call import CallShape
from everpoll.jobs.limits import JobLimits
from everpoll.jobs.task import Task
from everpoll.stores.contract import Limit

PLAIN = '{"args":'
"""The beginning of the stored arguments of every other call."""
BY_POSITION = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}


class LaterCall(Struct, gc=False, omit_defaults=True):
    """The stored form of a call that may take its first argument later."""

    args: list[Raw] = []
    kwargs: dict[str, Raw] = {}
    trace: Raw | UnsetType = UNSET
    scheduled_for: Raw | UnsetType = UNSET
    input: Raw | UnsetType = UNSET
    takes: str | UnsetType = UNSET
    group: int | UnsetType = UNSET
    """The number of members of the group."""


decode = msgspec.json.Decoder(LaterCall).decode
_encoder = msgspec.json.Encoder()


class DeferredArgument:
    """The form of a call whose first argument another task provides later."""

    def __init__(self, name: str, function: Callable[..., Any], shape: CallShape) -> None:
        self._where = f"job {name!r}"
        self._whole = shape.signature
        self._first = next(iter(shape.signature.parameters.values()), None)
        if self._first is None or self._first.kind not in {*BY_POSITION, inspect.Parameter.VAR_POSITIONAL}:
            raise BadInput(f"{self._where} takes no argument by position, so that no other task can give it one")
        given = f", and {self._first.name!r} comes from the task before it, or is the group"
        self.shape = CallShape(name, _without(function, self._first), Task, given)
        # If the task is the function's first parameter, the group is the second.
        self._place = list(inspect.signature(function).parameters).index(self._first.name)

    def encode(self, mark: str, args: tuple[Any, ...], kwargs: dict[str, Any], trace: dict[str, str] | None) -> str:
        """Check the known arguments and write them as JSON; `mark`: the JSON member that names the missing argument."""
        return f"{{{mark},{self.shape.encode(args, kwargs, trace)[1:]}"

    def limit_of(self, limits: JobLimits | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Limit | None:
        """Return the limit for a task with these arguments; refuse a key that needs the first argument."""
        assert self._first is not None, "checked when this was made"
        if limits is None:
            return None
        if callable(limits.per) or limits.per == self._first.name:
            raise BadInput(
                f"{self._where}: per= needs its first argument, which another task gives it later; make "
                "per= the name of another parameter"
            )
        return limits.limit_of((None, *args), kwargs)

    def with_group(self, text: str, task: Any, group: Any) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return the arguments for the function, with the group among them."""
        args, kwargs = self.shape.decode(text, task)
        return [*args[: self._place], group, *args[self._place :]], kwargs


def arrived(call: LaterCall, name: str) -> str:
    """Return the stored form of the complete call; raise `BadInput` if its first argument is still missing."""
    if call.input is UNSET:
        raise BadInput(
            f"{name} takes the result of the task before it, which was not done; retry that task first, and this "
            "one after it"
        )
    return _encoder.encode(LaterCall([call.input, *call.args], call.kwargs, call.trace, call.scheduled_for)).decode()


def _without(function: Callable[..., Any], first: inspect.Parameter) -> Callable[..., Any]:
    """Return a stand-in with the same signature, names and annotations, but without its first parameter."""
    signature = inspect.signature(function)
    if first.kind in BY_POSITION:
        left = [one for one in signature.parameters.values() if one.name != first.name]
        signature = signature.replace(parameters=left)
    annotations = getattr(function, "__annotations__", {})
    stand_in: Any = types.FunctionType(_never_called.__code__, getattr(function, "__globals__", {}))
    stand_in.__signature__ = signature
    stand_in.__annotations__ = {name: hint for name, hint in annotations.items() if name in signature.parameters}
    made: Callable[..., Any] = stand_in
    return made


def _never_called() -> None:
    """Do nothing: stand-ins have this code, and are inspected but never called."""
