"""Outcomes: what a loop's function may return, and the outcome of the run.

    None, True        success                  False, an exception   failure
    Ok(value)         success with a value     Failed(reason, retry_after="30s")
    Snooze(delay)     run again after it       Stop(reason)          no more runs

True, False and None are compared by identity: 0, "" and [] are not failures. Any other value is a success, with one
warning.
"""

from asyncio import CancelledError
from dataclasses import dataclass
from typing import Any

from everpoll.loops.state import Outcome
from everpoll.policy import Duration, Snooze, seconds

ERROR_TEXT_LIMIT = 500
SUCCESS = Outcome("ok")
FAILURE = Outcome("failed", "returned False")
TIMED_OUT = Outcome("failed", "timeout")


@dataclass(frozen=True, slots=True)
class Ok:
    """Success. The value is compared with the last one, for `adaptive` intervals."""

    value: Any = None


@dataclass(frozen=True, slots=True, init=False)
class Failed:
    """Failure with its reason. `retry_after` is a floor for the next delay, whatever the cap says."""

    reason: str
    retry_after_s: float

    def __init__(self, reason: str = "failed", retry_after: Duration | None = None) -> None:
        object.__setattr__(self, "reason", str(reason) or "failed")
        object.__setattr__(self, "retry_after_s", _retry_after_s(retry_after))


def _retry_after_s(value: Duration | None) -> float:
    """Return seconds; a header's value is accepted, too: `headers.get("Retry-After")` is None, or seconds as text."""
    if value is None:
        return 0.0
    digits = isinstance(value, str) and value.isascii() and value.strip().isdigit()
    return seconds(int(value) if digits else value, name="retry_after")  # type: ignore[arg-type]  # digits: it is a str


@dataclass(frozen=True, slots=True)
class Stop:
    """Make no more runs until `reset()` or a restart of the app."""

    reason: str = "done"

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", str(self.reason))


LoopResult = bool | Ok | Failed | Snooze | Stop | None


def judge(result: object) -> Outcome | None:
    """Return the outcome for a returned value, or None for a value without a meaning."""
    if result is None or result is True:
        return SUCCESS
    if result is False:
        return FAILURE
    match result:
        case Ok():
            return SUCCESS
        case Failed():
            return Outcome("failed", short(result.reason), result.retry_after_s)
        case Snooze():
            return Outcome("snoozed", None, result.delay_s)
        case Stop():
            return Outcome("stopped", short(result.reason))
    return None


def failure(error: BaseException) -> Outcome:
    """Return the outcome for an exception: only its text, so that no traceback keeps objects alive."""
    kind = type(error).__name__
    try:
        text = str(error)
    except (Exception, CancelledError):  # noqa: BLE001 - an error that cannot even be printed is a failure, too
        text = "(its text cannot be read)"
    return Outcome("failed", short(f"{kind}: {text}" if text else kind))


def short(text: str) -> str:
    """Cut the text of an error to ERROR_TEXT_LIMIT."""
    return text if len(text) <= ERROR_TEXT_LIMIT else text[: ERROR_TEXT_LIMIT - 1] + "…"
