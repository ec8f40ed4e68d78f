"""Look: one fetch and its judgement, as the decisions take it.

    reached     status                         feeds breaker and backoff
    True        what HTTP and the body say     no: an answer closes the breaker, whatever it says
    False       down                           yes
    False, and no witness answered: unknown    no: the fault is ours
    None        unknown                        no: this process could not ask

Promises: what a look says about breaker and incident follows from `reached`, `status` and `is_witnessed` alone.
"""

from msgspec import Struct

from everpoll.monitors.report import Report, Status

MAX_ERROR_CHARS = 500
"""Characters that a row keeps of an error; the history has more."""
MAX_WARNINGS_KEPT = 20
MAX_WARNING_CHARS = 300
MAX_RETRY_AFTER_S = 86_400.0
"""A service that asks to be left alone for longer is looked at once a day."""


class Look(Struct, frozen=True, gc=False, kw_only=True):
    """What one look found. Instants are those of the store's clock, in seconds since the epoch."""

    started_at: float
    ended_at: float
    reached: bool | None
    """True: an answer came. False: none came. None: this process could not ask."""
    status: Status = Status.UNKNOWN
    """What the answer says, HTTP and body together; read only where an answer came."""
    error: str | None = None
    """In words."""
    http_status: int | None = None
    latency_ms: float | None = None
    retry_after_s: float | None = None
    report: Report | None = None
    """What the body says; None: there is none, or it is the same as at the look before."""
    body: str | None = None
    """Stands for everything that the body says but latencies; equal to that of the look before: it was not read."""
    is_unchanged: bool = False
    """The body says what it said at the look before, so every dependency is as it was; latencies may be others."""
    is_forced: bool = False
    """A caller asked for it: `check()`."""
    is_witnessed: bool | None = None
    """Whether a witness answered while this service did not; None: no witness was asked."""
    warnings: tuple[str, ...] = ()
    address: str = ""
    """The IP address that answered; empty where none is known."""
    certificate_expires_at: float | None = None

    @property
    def is_conclusive(self) -> bool:
        """Whether it says anything about the service at all."""
        return self.reached is True or (self.reached is False and self.is_witnessed is not False)


def verdict(look: Look) -> tuple[Status, str | None]:
    """Return the status that a look gives the service, and its error in words."""
    if look.reached:
        return look.status, _cut(look.error)
    error = look.error or "not reached"
    if look.is_conclusive:
        return Status.DOWN, _cut(error)
    if look.reached is None:
        return Status.UNKNOWN, _cut(f"not asked: {look.error or 'this process could not send the request'}")
    return Status.UNKNOWN, _cut(f"no witness answered either, so the fault is probably ours: {error}")


def kept_warnings(look: Look) -> tuple[str, ...]:
    """Return the warnings that a row keeps of a look."""
    if not look.warnings:
        return ()
    kept = [text[:MAX_WARNING_CHARS] for text in look.warnings[:MAX_WARNINGS_KEPT]]
    left = len(look.warnings) - len(kept)
    return (*kept, f"… and {left} more") if left else tuple(kept)


def retry_floor(look: Look) -> float | None:
    """Return the earliest next look that the answer allows."""
    if look.retry_after_s is None or not look.retry_after_s > 0:
        return None
    return look.ended_at + min(look.retry_after_s, MAX_RETRY_AFTER_S)


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= MAX_ERROR_CHARS else text[: MAX_ERROR_CHARS - 1] + "…"
