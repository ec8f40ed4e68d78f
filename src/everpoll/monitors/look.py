"""Look: one request to a service and its result, as input of the decisions.

    reached     status                          counts for breaker and backoff
    True        by the HTTP status and the body no: any answer closes the breaker
    False       down                            yes
    False, and no witness answered: unknown     no: the fault is ours
    None        unknown                         no: this process could not send the request

Promises: `reached`, `status` and `is_witnessed` alone decide what a look means for breaker and incidents.
"""

from msgspec import Struct

from everpoll.monitors.report import Report, Status

MAX_ERROR_CHARS = 500
"""How many characters of an error a row keeps; the history keeps more."""
MAX_WARNINGS_KEPT = 20
MAX_WARNING_CHARS = 300
MAX_RETRY_AFTER_S = 86_400.0
"""The longest Retry-After that is respected: a service is looked at at least once a day."""


class Look(Struct, frozen=True, gc=False, kw_only=True):
    """The result of one look. Instants are by the store's clock, in seconds since the epoch."""

    started_at: float
    ended_at: float
    reached: bool | None
    """True: an answer came. False: none came. None: this process could not ask."""
    status: Status = Status.UNKNOWN
    """The status by HTTP status and body together; it counts only if an answer came."""
    error: str | None = None
    """The error as text."""
    http_status: int | None = None
    latency_ms: float | None = None
    retry_after_s: float | None = None
    report: Report | None = None
    """The report in the body; None: there is no body, or the report is not needed."""
    body: str | None = None
    """A checksum of the body without latencies; if it has not changed, the body was not read again."""
    is_unchanged: bool = False
    """True: the body is the same as at the look before, except for latencies, so no dependency has changed."""
    is_forced: bool = False
    """True: a caller asked for the look by `check()`."""
    is_witnessed: bool | None = None
    """Whether a witness answered while this service did not; None: no witness was asked."""
    warnings: tuple[str, ...] = ()
    address: str = ""
    """The IP address that answered; empty if it is not known."""
    certificate_expires_at: float | None = None

    @property
    def is_conclusive(self) -> bool:
        """Whether it proves anything about the service: an answer came, or none came and the fault is not ours."""
        return self.reached is True or (self.reached is False and self.is_witnessed is not False)


def verdict(look: Look) -> tuple[Status, str | None]:
    """Return the status of the service after a look, and the error text."""
    if look.reached:
        return look.status, _cut(look.error)
    error = look.error or "not reached"
    if look.is_conclusive:
        return Status.DOWN, _cut(error)
    if look.reached is None:
        return Status.UNKNOWN, _cut(f"not asked: {look.error or 'this process could not send the request'}")
    return Status.UNKNOWN, _cut(f"no witness answered either, so the fault is probably ours: {error}")


def kept_warnings(look: Look) -> tuple[str, ...]:
    """Return the warnings of a look that are stored in the row."""
    if not look.warnings:
        return ()
    kept = [text[:MAX_WARNING_CHARS] for text in look.warnings[:MAX_WARNINGS_KEPT]]
    left = len(look.warnings) - len(kept)
    return (*kept, f"… and {left} more") if left else tuple(kept)


def retry_floor(look: Look) -> float | None:
    """Return the earliest next look that the answer's Retry-After allows; None: it names none."""
    if look.retry_after_s is None or not look.retry_after_s > 0:
        return None
    return look.ended_at + min(look.retry_after_s, MAX_RETRY_AFTER_S)


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= MAX_ERROR_CHARS else text[: MAX_ERROR_CHARS - 1] + "…"
