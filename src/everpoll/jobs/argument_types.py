"""Argument types: decoders from the annotations of a job's parameters, which check and convert in one step.

Promises: checking arguments by position needs no extra step, since typed decoding replaces untyped decoding. Arguments
of a function without annotations are not checked, nor are those whose annotation msgspec cannot read. Models of
pydantic validate themselves; this module does not import pydantic.
"""

import inspect
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.inspect import CustomType, Field, Type, type_info

COUNTS_LIMIT = 100
"""For how many different numbers of arguments decoders are kept."""


class Call(Struct, gc=False):
    """The stored form of a call."""

    args: Sequence[Any] = ()
    kwargs: dict[str, Any] = {}
    trace: Any = UNSET
    """The trace context of the enqueue, to which the span of the run is linked. An unreadable value is ignored."""
    scheduled_for: float | UnsetType = UNSET
    """The instant for which a schedule enqueued it."""


class ArgumentFlaw(Struct, frozen=True, gc=False):
    """An argument that does not fit its annotation."""

    argument: str
    says: str


Decode = Callable[[str | bytes], Call]

_WHERE = re.compile(r"^(?P<says>.*?)(?: - at `\$(?P<where>.*)`)?$", re.DOTALL)
_POSITION = re.compile(r"^\.args\[(\d+)\](.*)$", re.DOTALL)
_WITHIN = "\x1f"
"""Separates the message of a model from the path of the field that it is about."""


def to_builtin(value: object) -> Any:
    """Return the JSON form of a pydantic model."""
    if hasattr(type(value), "model_dump"):
        return value.model_dump(mode="json")  # type: ignore[attr-defined]
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


def from_builtin(wanted: Any, value: Any) -> Any:
    """Return a value of a type that msgspec does not know: a pydantic model."""
    if isinstance(wanted, type) and type(wanted) is not _Adapted and isinstance(value, wanted):
        return value
    if not hasattr(wanted, "model_validate"):
        raise NotImplementedError
    try:
        return wanted.model_validate(value)
    except ValueError as error:
        errors: Any = getattr(error, "errors", list)()
        if not errors:
            raise
        within = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in errors[0]["loc"])
        raise ValueError(f"{errors[0]['msg']}{_WITHIN}{within}") from None


class ArgumentTypes:
    """The annotations of one function, without its task."""

    def __init__(self, signature: inspect.Signature, hints: Mapping[str, Any]) -> None:
        self._signature = signature
        kinds = inspect.Parameter
        parameters = list(signature.parameters.values())
        by_position = (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
        known = {one.name: _readable(hints.get(one.name, Any)) for one in parameters}
        self._names = [one.name for one in parameters if one.kind in by_position]
        self._positional = [known[name] for name in self._names]
        self._rest = next((one.name for one in parameters if one.kind is kinds.VAR_POSITIONAL), None)
        self._rest_type = Any if self._rest is None else known[self._rest]
        self._keywords = {one.name: known[one.name] for one in parameters if one.kind not in by_position[:1]}
        self._any_keyword = next((known[one.name] for one in parameters if one.kind is kinds.VAR_KEYWORD), Any)
        self.is_any = all(hint is Any for hint in known.values())
        """True if no argument is checked."""
        self._decoders: dict[tuple[int, bool], Decode] = {}

    def decoder(self, count: int, *, strict: bool) -> Decode:
        """Return the decoder for calls with `count` arguments by position."""
        found = self._decoders.get((count, strict))
        if found is None:
            found = self._made(count, strict=strict)
            if len(self._decoders) < COUNTS_LIMIT:
                self._decoders[count, strict] = found
        return found

    def _made(self, count: int, *, strict: bool) -> Decode:
        wanted = [*self._positional[:count], *[self._rest_type] * (count - len(self._positional))]
        fields: list[Any] = [
            ("args", types.GenericAlias(tuple, tuple(wanted)) if wanted else tuple[()], ()),
            ("kwargs", dict[str, Any], {}),
            ("trace", Any, UNSET),
            ("scheduled_for", float | UnsetType, UNSET),
        ]
        call = msgspec.defstruct("TypedCall", fields, gc=False)
        return msgspec.json.Decoder(call, strict=strict, dec_hook=from_builtin).decode  # type: ignore[return-value]

    def keywords(self, given: Mapping[str, Any], *, strict: bool) -> dict[str, Any]:
        """Convert these arguments to the types of the function."""
        return {name: self._keyword(name, value, strict=strict) for name, value in given.items()}

    def _keyword(self, name: str, value: Any, *, strict: bool) -> Any:
        hint = self._keywords.get(name, self._any_keyword)
        if hint is Any:
            return value
        try:
            return msgspec.convert(value, hint, strict=strict, str_keys=True, dec_hook=from_builtin)
        except msgspec.ValidationError as error:
            says, where = _split(str(error))
            raise msgspec.ValidationError(f"{says} - at `$.{name}{where}`") from None

    def flaw(self, error: msgspec.ValidationError) -> ArgumentFlaw:
        """Return the argument that a decoder's error is about, with the path in it."""
        says, where = _split(str(error))
        if (position := _POSITION.match(where)) is None:
            return ArgumentFlaw(where.lstrip(".") or "arguments", says)
        place = int(position[1])
        if place < len(self._names):
            return ArgumentFlaw(self._names[place] + position[2], says)
        return ArgumentFlaw(f"{self._rest}[{place - len(self._names)}]{position[2]}", says)


def _split(error: str) -> tuple[str, str]:
    found = _WHERE.match(error)
    assert found is not None, "it matches any text"
    says, where = found["says"], found["where"] or ""
    says, _, within = says.partition(_WITHIN)
    return says, where + within


def _readable(hint: Any) -> Any:
    """Return the annotation, or Any if msgspec cannot read it or would refuse its values."""
    if hint is object:
        return Any
    try:
        with suppress(msgspec.ValidationError):
            msgspec.convert(None, hint, dec_hook=from_builtin)
        if not _has_foreign_part(type_info(hint), set()):
            return hint
    except Exception:  # noqa: BLE001, S110 - a type that msgspec does not know
        pass
    return _adapted(hint) if _has_model(hint) else Any


class _Adapted(type):
    """Makes stand-ins for annotations that pydantic reads and msgspec does not; any value is an instance of them."""

    def __instancecheck__(cls, _: object) -> bool:
        return True


def _has_model(hint: Any) -> bool:
    """Return True if the annotation contains a pydantic model, as in `Created | Deleted`."""
    return hasattr(hint, "model_validate") or any(map(_has_model, get_args(hint)))


def _adapted(hint: Any) -> Any:
    """Return a type that validates with pydantic; Any if pydantic cannot read the annotation either."""
    try:
        adapter = sys.modules["pydantic"].TypeAdapter(hint)
    except Exception:  # noqa: BLE001 - a type that pydantic does not know
        return Any
    return _Adapted("Adapted", (), {"model_validate": staticmethod(adapter.validate_python)})


def _has_foreign_part(part: object, seen: set[int]) -> bool:
    """Return True if the annotation contains a type that neither msgspec nor pydantic knows, as in `list[Path]`."""
    if isinstance(part, CustomType):
        return not hasattr(part.cls, "model_validate")
    if id(part) in seen or not isinstance(part, Type | Field | tuple):
        return False
    seen.add(id(part))
    parts = part if isinstance(part, tuple) else [getattr(part, name) for name in part.__struct_fields__]
    return any(_has_foreign_part(one, seen) for one in parts)


def result_type(hint: Any, ignored: tuple[type, ...]) -> Any:
    """Return the type to which a job's results are converted, or Any. `ignored` are types that are not results."""
    if isinstance(hint, types.UnionType) or get_origin(hint) is Union:
        left = tuple(one for one in get_args(hint) if one not in ignored)
        hint = Union[left] if left else Any  # noqa: UP007 - of types that are known only now
    # Compared one by one: metadata of an annotation may have no hash.
    return Any if hint in (None, type(None), *ignored) else _readable(hint)
