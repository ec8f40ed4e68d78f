"""Events: what can happen to a run during a step. Each is a plain value, with errors as text."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from everpoll.watches.memory import Sighting

Fault: TypeAlias = Literal["transient", "unexpected", "fatal"]
"""What an error means; see `everpoll.watches.faults`."""
Calls: TypeAlias = Literal["reason", "start", "adopt", "look", "verify", "cancel", "cleanup"]


class Pace(Struct, frozen=True):
    """The wait that the cadence chose."""

    wait_s: float
    error: str | None = None
    """Why the cadence of the user failed; `wait_s` is then that of the fallback."""
    why: str | None = None
    """The reason for `wait_s`, if the cadence names one."""
    kind: str | None = None
    """The kind of the operation, if the watch learns by kind."""


class Report(Struct):
    """What a look reported through its `w`. None: unchanged."""

    counters: dict[str, int] | None = None
    confirms: dict[str, Sighting] | None = None
    dues: dict[str, float] | None = None
    user: dict[str, Any] | None = None
    status: str | None = None
    progress: str | None = None
    has_reported: bool = False
    """Whether the look set the status or the progress."""
    hints: dict[str, float] = {}
    """Instants at which a fact can change, by the reason to look then."""
    changed: dict[str, Any] = {}
    """The facts that the look changed, for the log."""
    floor_s: float | None = None
    """The longest Retry-After of a call by `w.attempt`."""


class Leased(Struct, frozen=True, tag="leased"):
    """A worker has leased the run: the step begins."""

    sequence: int = 1
    """How often the run has been leased, this time included."""
    cancel_requested: bool = False


class Admitted(Struct, frozen=True, tag="admitted"):
    """The remote may be called now."""


class Postponed(Struct, frozen=True, tag="postponed"):
    """The remote may not be called now. `rule` says why: "rate" or "breaker"."""

    wait_s: float
    rule: str
    why: str


class CancelReason(Struct, frozen=True, tag="cancel_reason"):
    """The reason that the caller gave for the cancel."""

    why: str | None = None


class StartReturned(Struct, frozen=True, tag="start_returned"):
    """The start function has returned. `handle` is None if it returned none."""

    handle: Any
    verdict: Any
    pace: Pace


class Adopted(Struct, frozen=True, tag="adopted"):
    """The adopt function has returned. `handle` is None if it found nothing."""

    handle: Any
    verdict: Any = None
    """The verdict of the start that returned no handle; None if no start came before."""
    pace: Pace | None = None


class Looked(Struct, frozen=True, tag="looked"):
    """A look has returned a verdict; None if it returned None."""

    verdict: Any
    report: Report
    pace: Pace | None = None
    took_s: float | None = None
    remote: str | None = None


class Verified(Struct, frozen=True, tag="verified"):
    """A check has returned or raised."""

    name: str
    report: Report
    verdict: Any = None
    """`Done` or `Fail`, if the check returned one."""
    is_proven: bool = False
    value: Any = None
    error: str | None = None
    retry_after_s: float | None = None
    took_s: float | None = None
    remote: str | None = None


class CancelSent(Struct, frozen=True, tag="cancel_sent"):
    """The remote was asked to cancel."""


class Cleaned(Struct, frozen=True, tag="cleaned"):
    """The cleanup has succeeded."""


class Failed(Struct, frozen=True, tag="failed"):
    """A function of the user has raised, or has not ended in time."""

    what: str
    error: str
    """The type and the text of the error."""
    fault: Fault = "transient"
    evidence: Any = None
    retry_after_s: float | None = None
    breaker_wait: Postponed | None = None
    """If this failure opened the breaker of the remote: how long the run waits for it."""
    before_call: bool = False
    """True if it failed before the remote was called."""
    is_unsent: bool = False
    """True if the cancel function raised `NothingSent`: it sent no request."""
    report: Report | None = None
    """Counters, status and progress of the look that failed; its facts do not count."""
    pace: Pace | None = None
    took_s: float | None = None
    remote: str | None = None


class Broken(Struct, frozen=True, tag="broken"):
    """everpoll itself failed to make the step."""

    error: str
    fault: Fault = "unexpected"
    evidence: Any = None
    retry_after_s: float | None = None
    sequence: int = 1
    cancel_requested: bool = False


class NeedsCode(Struct, frozen=True, tag="needs_code"):
    """This worker has no code for the run: the version differs, or the operation does not fit the look's parameter."""

    why: str
    wait_s: float


class Paused(Struct, frozen=True, tag="paused"):
    """An operator has paused the run: it is not looked at until it is resumed."""

    why: str
    wait_s: float


Event: TypeAlias = (
    Leased
    | Admitted
    | Postponed
    | CancelReason
    | StartReturned
    | Adopted
    | Looked
    | Verified
    | CancelSent
    | Cleaned
    | Failed
    | Broken
    | NeedsCode
    | Paused
)
