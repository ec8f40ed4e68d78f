"""The limits of a job: how many tasks run at a time, how many start in a period, and which of them count together.

Promises: options that are not a valid limit are refused when the job is registered. A call whose key is None has no
limit. Keys of different jobs are never equal.
"""

import hashlib
import inspect
from collections.abc import Callable
from typing import Any

from everpoll.errors import BadInput
from everpoll.policy import Rate, shown, unstorable, whole_number
from everpoll.stores.contract import Limit
from everpoll.stores.limits import COUNTED_LIMIT

KEY_CHARS = 200
"""The longest key; a longer one is cut, and a digest of the whole key is added."""

Per = str | Callable[..., Any]


class JobLimits:
    """The options `concurrency=`, `rate=` and `per=` of one job."""

    def __init__(self, where: str, name: str, signature: inspect.Signature, options: dict[str, Any]) -> None:
        self._where = where
        self._name = _escaped(name)
        self._signature = signature
        self.concurrency = _concurrency(where, options.get("concurrency"))
        self.rate = _rate(where, options.get("rate"))
        self.per = self._checked_per(options.get("per"))

    @classmethod
    def of(cls, where: str, name: str, signature: inspect.Signature, options: dict[str, Any]) -> "JobLimits | None":
        """Return the limits of a job, or None if it has none."""
        if options.get("concurrency") is None and options.get("rate") is None:
            if options.get("per") is not None:
                raise BadInput(f"{where}: per= says which tasks count together, and needs concurrency= or rate=")
            return None
        return cls(where, name, signature, options)

    def rule(self) -> Limit:
        """Return the numbers of the limit, without a key."""
        rate = self.rate
        return Limit("", self.concurrency, None if rate is None else rate.count, 0.0 if rate is None else rate.per_s)

    def limit_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Limit | None:
        """Return the limit for a task with these arguments, or None."""
        if self.per is None:
            key = self._name
        else:
            value = self._value(args, kwargs)
            if value is None:
                return None
            key = f"{self._name}/{self._text(value)}"
        rule = self.rule()
        return Limit(key, rule.running, rule.starts, rule.per_s)

    def _value(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(self.per, str):
            given = self._signature.bind(*args, **kwargs)
            given.apply_defaults()
            return given.arguments[self.per]
        assert self.per is not None, "asked only where there is one"
        return self._asked(lambda: self.per(*args, **kwargs))  # type: ignore[misc, operator] # it is a function

    def _asked(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except Exception as error:
            raise BadInput(f"{self._where}: per= raised {type(error).__name__}: {error}") from error

    def _text(self, value: Any) -> str:
        text: str = value if isinstance(value, str) else self._asked(lambda: str(value))
        if (unfit := unstorable(text)) is not None:
            raise BadInput(f"{self._where}: per= gave a key that has {unfit}")
        if len(text) <= KEY_CHARS:
            return text
        return f"{text[:100]}…{hashlib.sha256(text.encode()).hexdigest()}"

    def _checked_per(self, per: object) -> Per | None:
        if inspect.iscoroutinefunction(per):
            raise BadInput(f"{self._where}: per={shown(per)} is async: write a plain function of the arguments")
        if per is None or callable(per):
            return per
        if not isinstance(per, str):
            raise BadInput(f"{self._where}: per={shown(per)}: write a parameter's name, or a function of the arguments")
        parameter = self._signature.parameters.get(per)
        if parameter is None or parameter.kind in {parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL}:
            known = ", ".join(self._signature.parameters) or "none"
            raise BadInput(f"{self._where}: per={per!r} is not a parameter of it; there are {known}")
        return per


def _concurrency(where: str, value: Any) -> int | None:
    if value is None:
        return None
    accepted = "how many run at a time, 1 or more"
    count = whole_number(value, name=f"{where}: concurrency", at_least=1, accepted=accepted)
    if count > COUNTED_LIMIT:
        raise BadInput(f"{where}: concurrency={count}: write at most {COUNTED_LIMIT:,}")
    return count


def _rate(where: str, value: object) -> Rate | None:
    if value is None:
        return None
    if not isinstance(value, Rate):
        raise BadInput(f'{where}: rate={shown(value)}: write Rate(5, per="1s"), which means five starts a second')
    if value.count > COUNTED_LIMIT:
        raise BadInput(f"{where}: rate={value!r}: write at most {COUNTED_LIMIT:,} starts")
    return value


def _escaped(name: str) -> str:
    """Escape the name of a job as the first part of a key: the first slash ends that part."""
    return name.replace("%", "%25").replace("/", "%2F")
