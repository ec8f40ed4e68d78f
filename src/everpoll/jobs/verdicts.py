"""Verdicts: decide about the next attempt after an error, by `fatal=`, `classify=`, Retry-After and `Hopeless`.

    classify(error) says "fatal", "transient" or a duration ──▶ that
    it says None, or there is no classify ──▶ Hopeless or one of fatal= ──▶ failed at once
                                              anything else ──▶ after the backoff, not before Retry-After

Promises: no verdict allows more attempts than the job has. A `classify` that raises, or returns another value, is
ignored; the trail says so.
"""

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

from msgspec import Struct

from everpoll.engine.calls import described
from everpoll.errors import BadDuration, BadInput, Hopeless
from everpoll.policy import Duration, human, seconds, shown

Classify = Callable[[BaseException], Literal["fatal", "transient"] | Duration | None]


class Verdict(Struct, frozen=True):
    """The meaning of an error for the next attempt."""

    is_fatal: bool = False
    delay_s: float | None = None
    """The delay in place of the backoff; None: the backoff decides."""
    at_least_s: float = 0.0
    """The shortest delay that the remote allows."""
    why: str = ""
    """The reason, for the trail."""


ORDINARY = Verdict()


class ErrorRules:
    """The rules of one job about its errors."""

    def __init__(self, where: str, fatal: object, classify: object) -> None:
        self._fatal: tuple[type[BaseException], ...] = (Hopeless, *_classes(where, fatal))
        if classify is not None and (not callable(classify) or inspect.iscoroutinefunction(classify)):
            raise BadInput(f"{where}: classify={shown(classify)}: write a plain function of the error")
        self._classify: Any = classify

    def judge(self, error: BaseException) -> Verdict:
        """Return the verdict on the error."""
        flaw = ""
        if self._classify is not None:
            try:
                said = self._classify(error)
                if said is not None:
                    return _said(said, error)
            except Exception as broken:  # noqa: BLE001 - the job's own error must not be lost
                flaw = f"classify= decided nothing: {described(broken)['type']}: {described(broken)['error']}"
        if isinstance(error, self._fatal):
            return Verdict(is_fatal=True, why=f"{type(error).__name__} is fatal")
        return _with_retry_after(error, flaw)


def _said(said: object, error: BaseException) -> Verdict:
    if said == "fatal":
        return Verdict(is_fatal=True, why=f"classify= calls {type(error).__name__} fatal")
    if said == "transient":
        return _with_retry_after(error, "")
    if isinstance(said, bool) or not isinstance(said, str | int | float | timedelta):
        raise BadInput(f'{shown(said)} is neither "fatal" nor "transient", a duration or None')
    try:
        delay_s = seconds(said, name="classify")
    except BadDuration:
        raise BadInput(f'{shown(said)} is neither "fatal" nor "transient", a duration or None') from None
    return Verdict(delay_s=delay_s, why=f"classify= asks for {human(delay_s)}")


def _with_retry_after(error: BaseException, flaw: str) -> Verdict:
    # Loaded when the first job fails: it imports most of the package for HTTP.
    from everpoll.http.retry_after import retry_after_s  # noqa: PLC0415

    wait_s = retry_after_s(error)
    if wait_s:
        return Verdict(at_least_s=wait_s, why=f"the remote asks for {human(wait_s)}")
    return Verdict(why=flaw) if flaw else ORDINARY


def _classes(where: str, fatal: object) -> tuple[type[BaseException], ...]:
    given = fatal if isinstance(fatal, tuple | list) else (fatal,)
    for one in given:
        if not (isinstance(one, type) and issubclass(one, Exception)):
            raise BadInput(f"{where}: fatal={shown(fatal)}: write classes of errors, as fatal=(KeyError, ValueError)")
    return tuple(given)
