"""The user's functions of a watch: look, start, adopt, cancel, cleanup and checks, called with the arguments they name.

    async def start(op, key): …       async def cleanup(op, handle, outcome): …

The first parameter is the operation, whatever it is called; the others are found by their names.
"""

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import msgspec

from everpoll.engine.calls import Callee
from everpoll.engine.threads import DaemonThreads
from everpoll.errors import BadInput
from everpoll.policy import shown
from everpoll.watches.limits import encoded

ARGUMENTS = {
    "look": ("key", "handle", "w"),
    "start": ("key",),
    "adopt": ("key",),
    "cancel": ("key", "handle"),
    "cleanup": ("key", "handle", "outcome"),
    "verify": ("key", "handle", "w"),
}
"""The parameters that each function may have after the operation."""
_RESERVED = {name for names in ARGUMENTS.values() for name in names}


class UserFunction:
    """A function of the user, checked and ready to be called."""

    def __init__(
        self,
        watch: str,
        what: str,
        function: Callable[..., Any],
        threads: Callable[[], DaemonThreads],
    ) -> None:
        where = f"{watch}: {what}"
        if not callable(function):
            raise BadInput(f"{where}: {function!r} is not a function")
        parameters = list(inspect.signature(function).parameters.values())
        names = [one.name for one in parameters[1:]]
        if not parameters or parameters[0].name in _RESERVED:
            raise BadInput(f"{where}: the first parameter must be the operation: write def {_name(function)}(op, …)")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise BadInput(f"{where} is a generator, which a call does not run: write it without `yield`")
        # A leading underscore marks a parameter that the function does not use.
        given = ARGUMENTS[what.partition("(")[0]]
        wrong = [one for one in names if one.lstrip("_") not in given]
        if wrong:
            raise BadInput(f"{where}: there is no parameter {wrong[0]!r}; its parameters may be op, {', '.join(given)}")
        self.function = function
        self._names = names
        self._callee = Callee(function, None, threads)

    async def __call__(self, limit_s: float, op: Any, **given: Any) -> Any:
        """Call the function with the arguments that it names; it times out after `limit_s`."""
        return await self._callee.within(limit_s, op, **{name: given[name.lstrip("_")] for name in self._names})


class OperationType:
    """Stores and restores operations by the annotation of the look's first parameter."""

    def __init__(self, where: str, look: Callable[..., Any]) -> None:
        self._where = where
        first = next(iter(inspect.signature(look).parameters), None)
        try:
            hints = get_type_hints(look)
        except Exception:  # noqa: BLE001 - a name that does not resolve: then the operation stays plain JSON
            hints = {}
        self._type: Any = hints.get(first, Any) if first is not None else Any

    def encode(self, op: Any) -> str:
        """Return the operation as JSON; raise `BadInput` if it could not be restored from that."""
        try:
            text = encoded(op, "it").decode()
            self.decode(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadInput(f"{self._where}: the operation {shown(op)} cannot be stored: {error}") from None
        return text

    def decode(self, text: str) -> Any:
        """Restore the operation from JSON text."""
        if self._type is Any:
            return msgspec.json.decode(text)
        return msgspec.json.decode(text, type=self._type, strict=False)

    def convert(self, value: Any) -> Any:
        """Restore the operation from decoded JSON."""
        return value if self._type is Any else msgspec.convert(value, self._type, strict=False)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", "function")
