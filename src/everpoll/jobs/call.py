"""A call as data: arguments to JSON when a job is enqueued, and back when it runs.

Promises: what cannot be called or stored is refused at `enqueue`, where the caller sees it, and not later in a worker.
Parameters that are annotated with more than plain JSON types (datetime, dataclass, Struct, …) are converted back.
Annotations that are text are looked up in the function's module, then where the function was registered.
"""

import inspect
import re
import sys
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from everpoll.engine.non_finite_numbers import non_finite_number
from everpoll.errors import BadInput
from everpoll.jobs.argument_types import (
    ArgumentFlaw,
    ArgumentTypes,
    Call,
    Decode,
    from_builtin,
    result_type,
    to_builtin,
)
from everpoll.policy import Cancel, Snooze

__all__ = ["ARGS_LIMIT", "ArgumentFlaw", "Call", "CallShape", "decode"]

ARGS_LIMIT = 1_000_000
"""Bytes of JSON."""
SHAPES_LIMIT = 100

_encoder = msgspec.json.Encoder(decimal_format="string", enc_hook=to_builtin)
decode = msgspec.json.Decoder(Call).decode


class CallShape:
    """How one function is called. `given` is a part of error messages: the arguments that callers do not pass."""

    def __init__(self, name: str, function: Callable[..., Any], task_type: type, given: str = "") -> None:
        self._name = name
        self._given = given
        self._signature = inspect.signature(function)
        hints = _hints(function, task_type)
        # Names that are most likely imported for type checkers only; errors about missing arguments mention them.
        self._unresolved = {
            one.name: one.annotation
            for one in self._signature.parameters.values()
            if isinstance(one.annotation, str) and one.name not in hints
        }
        parameters = self._signature.parameters.values()
        self.task_parameter = next((one.name for one in parameters if _is(task_type, hints.get(one.name))), None)
        rest = [one for one in parameters if one.name != self.task_parameter]
        self._callable = self._signature.replace(parameters=rest)
        # A call is accepted by the number and the names of its arguments, so each combination is checked once.
        self._accepted: set[object] = set()
        self._checks: dict[int, Decode] = {}
        self._annotated = {one.name: _for_all(one, hints[one.name]) for one in rest if one.name in hints}
        self.types = ArgumentTypes(self._callable, hints)
        self.result = result_type(hints.get("return", Any), (Snooze, Cancel))
        """The type of its results; Any: they stay as JSON has them."""
        self.has_no_task = self.task_parameter is None
        self.usual: Decode = decode if self.types.is_any else self.types.decoder(self._expected(), strict=False)
        """Decodes calls with as many arguments by position as the last ones had."""

    @property
    def signature(self) -> inspect.Signature:
        """The signature for callers: without the task."""
        return self._callable

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], trace: dict[str, str] | None = None) -> str:
        """Check the arguments against the function and encode them; `trace` is the trace context of the enqueue."""
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
        # `b"null"` is checked here, too, because a function call for each task of a large batch takes time.
        if b"null" in encoded and (number := non_finite_number(call, encoded)) is not None:
            raise BadInput(
                f"job {self._name!r}: {number} in its arguments is not valid JSON and would arrive as null; pass None, "
                'or a text such as "nan"'
            )
        if not self.types.is_any:
            check = self._checks.get(len(args)) or self._check_of(len(args))
            try:
                call = check(encoded)
                if kwargs:
                    self.types.keywords(call.kwargs, strict=True)
            except msgspec.ValidationError as error:
                flaw = self.types.flaw(error)
                raise BadInput(f"job {self._name!r}: {flaw.argument}: {flaw.says}") from None
        return encoded.decode()

    def _check_of(self, count: int) -> Decode:
        check = self.types.decoder(count, strict=True)
        if len(self._checks) < SHAPES_LIMIT:
            self._checks[count] = check
        return check

    def _expected(self) -> int:
        """Return how many arguments a call by position most likely has: those without a default."""
        needed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return sum(one.kind in needed and one.default is one.empty for one in self._callable.parameters.values())

    def flaw(self, args: Sequence[Any], kwargs: dict[str, Any]) -> ArgumentFlaw | None:
        """Return the first of these JSON values that does not fit the annotation of its parameter; None: all fit.

        `encode` reports calls that do not fit the signature, and annotations that JSON does not have.
        """
        try:
            given = self._callable.bind(*args, **kwargs).arguments
        except TypeError:
            return None
        for name, value in given.items():
            try:
                msgspec.convert(value, self._annotated.get(name, Any), str_keys=True, dec_hook=from_builtin)
            except msgspec.ValidationError as error:
                return ArgumentFlaw(name, str(error).replace("`$", f"`{name}"))
            except (TypeError, NotImplementedError):
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
            called = f"it is called as {self._name}{self._callable}{self._given}"
            raise BadInput(f"job {self._name!r}: {error}; {called}{unresolved}") from None

    def decode(self, text: str, task: Any) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return the arguments to call the function with."""
        try:
            call = self.usual(text)
        except msgspec.ValidationError:
            call = self.unusual(text)
        kwargs = self.keywords(call.kwargs) if call.kwargs else call.kwargs
        return (call.args, kwargs) if self.has_no_task else self._with_task(call.args, kwargs, task)

    def unusual(self, text: str) -> Call:
        """Decode a call with another number of arguments by position than the last calls; raise if it does not fit."""
        if self.types.is_any:
            raise BadInput("it is not a call")
        call = decode(text)
        if len(call.args) not in self._accepted:
            self._callable.bind(*call.args, **call.kwargs)
        try:
            decoder = self.types.decoder(len(call.args), strict=False)
            call = decoder(text)
        except msgspec.ValidationError as error:
            flaw = self.types.flaw(error)
            raise BadInput(f"{flaw.argument}: {flaw.says}") from None
        self.usual = decoder
        return call

    def recoded(self, call: Call) -> str:
        """Return the stored form of a call whose arguments were changed after they were stored."""
        return _encoder.encode(call).decode()

    def keywords(self, given: dict[str, Any]) -> dict[str, Any]:
        """Convert these arguments by keyword; raise `BadInput` if one does not fit."""
        if self.types.is_any:
            return given
        self._callable.bind_partial(**given)
        try:
            return self.types.keywords(given, strict=False)
        except msgspec.ValidationError as error:
            flaw = self.types.flaw(error)
            raise BadInput(f"{flaw.argument}: {flaw.says}") from None

    def _with_task(
        self, args: Sequence[Any], kwargs: dict[str, Any], task: Any
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        assert self.task_parameter is not None, "asked only where there is one"
        given = self._callable.bind(*args, **kwargs).arguments
        given[self.task_parameter] = task
        # In the order of the signature: the task may be its first parameter, its last, or any in between.
        ordered = {name: given[name] for name in self._signature.parameters if name in given}
        bound = inspect.BoundArguments(self._signature, ordered)
        return list(bound.args), bound.kwargs


def _hints(function: Callable[..., Any], task_type: type) -> dict[str, Any]:
    """Return the annotations that can be resolved. Other arguments are passed as they come."""
    try:
        return get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - a name that is local, or was imported for type checkers only
        names = getattr(function, "__globals__", {})
        local = _names_where_registered()
        hints: dict[str, Any] = {}
        for name, hint in getattr(function, "__annotations__", {}).items():
            alone = types.SimpleNamespace(__annotations__={name: hint})
            for known in ({}, local):
                with suppress(Exception):
                    hints |= get_type_hints(alone, names, known, include_extras=True)
                    break
            else:
                # No other type of this name is known, so it is everpoll's `Task`.
                if isinstance(hint, str) and _MEANS_TASK.fullmatch(hint):
                    hints[name] = task_type
        return hints


# `Task`, `everpoll.Task`, `Task[int]`, `Task | None` and `Optional[Task]`, as text.
_MEANS_TASK = re.compile(r"(?:\w+\.)*Task(?:\[.*\])?(?:\s*\|\s*None)?|(?:\w+\.)*Optional\[(?:\w+\.)*Task(?:\[.*\])?\]")


def _names_where_registered() -> dict[str, Any]:
    """Return the local names of the function that registers the job: the nearest caller outside everpoll."""
    here: types.FrameType | None = sys._getframe()  # noqa: SLF001 - there is no other way to a caller's names
    while here is not None and str(here.f_globals.get("__name__", "")).partition(".")[0] == "everpoll":
        here = here.f_back
    return {} if here is None else dict(here.f_locals)


def _for_all(parameter: inspect.Parameter, hint: Any) -> Any:
    """Return the hint for all values of a parameter: for `*names` and `**names`, of a tuple or a dictionary of them."""
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return types.GenericAlias(tuple, (hint, ...))
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return types.GenericAlias(dict, (str, hint))
    return hint


def _is(wanted: type, hint: Any) -> bool:
    """Return True if a hint is this type: bare, with the type of its result, optional, or with metadata."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if hint is wanted or get_origin(hint) is wanted:
        return True
    return type(None) in get_args(hint) and any(_is(wanted, one) for one in get_args(hint) if one is not type(None))
