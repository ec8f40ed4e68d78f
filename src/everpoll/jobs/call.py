"""A call as data: arguments to JSON when a job is enqueued, and back when it runs.

Promises: what cannot be called or stored is refused at `enqueue`, in the caller's face, not hours later in a worker.
Parameters that are annotated with more than plain JSON types (datetime, dataclass, Struct, …) are converted back.
Annotations that are text are looked up in the function's module, then where the function was registered.
"""

import inspect
import re
import sys
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import UNSET, Struct, UnsetType

from everpoll.engine.lost_numbers import lost_number
from everpoll.errors import BadInput

ARGS_LIMIT = 1_000_000
"""Bytes of JSON."""
SHAPES_LIMIT = 100
PLAIN = {str, int, float, bool, dict, list, object, type(None), inspect.Parameter.empty, Any}


class Call(Struct, gc=False):
    """The stored form of a call."""

    args: Sequence[Any] = ()
    kwargs: dict[str, Any] = {}
    trace: Any = UNSET
    """The span that enqueued it, for its run to be linked to; what stands here never keeps a job from running."""
    slot: float | UnsetType = UNSET
    """The instant for which a schedule enqueued it."""


class ArgumentFlaw(Struct, frozen=True, gc=False):
    """An argument that does not fit its annotation."""

    argument: str
    says: str


_encoder = msgspec.json.Encoder(decimal_format="string")
decode = msgspec.json.Decoder(Call).decode


class CallShape:
    """How one function is called."""

    def __init__(self, name: str, function: Callable[..., Any], task_type: type) -> None:
        self._name = name
        self._signature = inspect.signature(function)
        hints = _hints(function, task_type)
        # Most likely imported for type checkers only; said where an argument is missing.
        self._unresolved = {
            one.name: one.annotation
            for one in self._signature.parameters.values()
            if isinstance(one.annotation, str) and one.name not in hints
        }
        parameters = self._signature.parameters.values()
        self.task_parameter = next((one.name for one in parameters if _is(task_type, hints.get(one.name))), None)
        rest = [one for one in parameters if one.name != self.task_parameter]
        self._callable = self._signature.replace(parameters=rest)
        # Whether a call fits depends on how many arguments it has and their names, so one check serves all alike.
        self._accepted: set[object] = set()
        self._annotated = {one.name: _for_all(one, hints[one.name]) for one in rest if one.name in hints}
        self._converted = {
            one.name: _for_all(one, hints[one.name])
            for one in rest
            if one.name in hints and not _is_plain(hints[one.name])
        }
        self.is_plain = not self._converted and self.task_parameter is None
        """The function is called with what `decode` makes of the text."""

    @property
    def signature(self) -> inspect.Signature:
        """How callers call it: without the task."""
        return self._callable

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], trace: dict[str, str] | None = None) -> str:
        """Check the arguments against the function and turn them into JSON; `trace`: the span that enqueues them."""
        shape = (len(args), *kwargs) if kwargs else len(args)
        if shape not in self._accepted:
            self._check(args, kwargs)
            if len(self._accepted) < SHAPES_LIMIT:
                self._accepted.add(shape)
        call = Call(args, kwargs) if trace is None else Call(args, kwargs, trace)
        try:
            encoded = _encoder.encode(call)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadInput(
                f"job {self._name!r}: its arguments must be JSON: {error}; pass an id and look the rest up in the job"
            ) from None
        if len(encoded) > ARGS_LIMIT:
            raise BadInput(
                f"job {self._name!r}: its arguments take {len(encoded):,} bytes, more than {ARGS_LIMIT:,}; store them "
                "elsewhere and pass where they are"
            )
        # Asked here as well: a call for each task of a large batch is a part of its cost.
        if b"null" in encoded and (number := lost_number(call, encoded)) is not None:
            raise BadInput(
                f"job {self._name!r}: {number} in its arguments is not valid JSON and would arrive as null; pass None, "
                'or a text such as "nan"'
            )
        text = encoded.decode()
        if self._converted:
            try:
                self.decode(text, None)
            except Exception as error:  # noqa: BLE001 - whatever it is, it would happen in the worker too
                raise BadInput(
                    f"job {self._name!r}: its arguments do not fit {self._name}{self._callable}: {error}"
                ) from None
        return text

    def flaw(self, args: Sequence[Any], kwargs: dict[str, Any]) -> ArgumentFlaw | None:
        """Return the first of these JSON values that does not fit the annotation of its parameter; None: all fit.

        What cannot be called at all, and annotations that JSON knows nothing of, are left to `encode`.
        """
        try:
            given = self._callable.bind(*args, **kwargs).arguments
        except TypeError:
            return None
        for name, value in given.items():
            try:
                msgspec.convert(value, self._annotated.get(name, Any))
            except msgspec.ValidationError as error:
                return ArgumentFlaw(name, str(error).replace("`$", f"`{name}"))
            except TypeError:
                continue
        return None

    def _check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            self._callable.bind(*args, **kwargs)
        except TypeError as error:
            unresolved = "".join(
                f"; {name!r} is annotated with {hint!r}, which cannot be resolved here: import it at the top of the "
                "module, outside `if TYPE_CHECKING:`"
                for name, hint in self._unresolved.items()
            )
            called = f"it is called as {self._name}{self._callable}"
            raise BadInput(f"job {self._name!r}: {error}; {called}{unresolved}") from None

    def decode(self, text: str, task: Any) -> tuple[Sequence[Any], dict[str, Any]]:
        """The arguments to call the function with."""
        call = decode(text)
        if self.is_plain:
            return call.args, call.kwargs
        given = self._callable.bind(*call.args, **call.kwargs).arguments
        for name, hint in self._converted.items():
            if name in given:
                given[name] = msgspec.convert(given[name], hint, strict=False)
        if self.task_parameter is not None:
            given[self.task_parameter] = task
        # In the order of the signature: the task may be its first parameter, its last, or any in between.
        ordered = {name: given[name] for name in self._signature.parameters if name in given}
        bound = inspect.BoundArguments(self._signature, ordered)
        return list(bound.args), bound.kwargs


def _hints(function: Callable[..., Any], task_type: type) -> dict[str, Any]:
    """The annotations that can be resolved; what cannot is passed as it comes."""
    try:
        return get_type_hints(function)
    except Exception:  # noqa: BLE001 - a name that is local, or was imported for type checkers only
        names = getattr(function, "__globals__", {})
        local = _names_where_registered()
        hints: dict[str, Any] = {}
        for name, hint in getattr(function, "__annotations__", {}).items():
            alone = types.SimpleNamespace(__annotations__={name: hint})
            for known in ({}, local):
                with suppress(Exception):
                    hints |= get_type_hints(alone, names, known)
                    break
            else:
                # No other type of this name is in sight, so it is ours.
                if isinstance(hint, str) and _MEANS_TASK.fullmatch(hint):
                    hints[name] = task_type
        return hints


# `Task`, `everpoll.Task`, `Task | None` and `Optional[Task]`, as text.
_MEANS_TASK = re.compile(r"(?:\w+\.)*Task(?:\s*\|\s*None)?|(?:\w+\.)*Optional\[(?:\w+\.)*Task\]")


def _names_where_registered() -> dict[str, Any]:
    """The local names of the function that registers the job: the nearest caller outside everpoll."""
    here: types.FrameType | None = sys._getframe()  # noqa: SLF001 - there is no other way to a caller's names
    while here is not None and str(here.f_globals.get("__name__", "")).partition(".")[0] == "everpoll":
        here = here.f_back
    return {} if here is None else dict(here.f_locals)


def _for_all(parameter: inspect.Parameter, hint: Any) -> Any:
    """The hint of `*names` and `**names` is that of each single value."""
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return types.GenericAlias(tuple, (hint, ...))
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return types.GenericAlias(dict, (str, hint))
    return hint


def _is(wanted: type, hint: Any) -> bool:
    """The type itself, or optional."""
    return hint is wanted or (type(None) in get_args(hint) and wanted in get_args(hint))


def _is_plain(hint: Any) -> bool:
    if isinstance(hint, types.GenericAlias):
        return hint.__origin__ in PLAIN and all(map(_is_plain, hint.__args__))
    if isinstance(hint, types.UnionType):
        return all(map(_is_plain, hint.__args__))
    try:
        return hint in PLAIN
    except TypeError:
        return False
