"""Outcome of a job's run: decides how its task is settled, from the value or the error of the function. Pure.

returns a value   done                        returns Snooze("30s")   the same task later, no attempt used
raises            retry, then failed          returns Cancel("why")   canceled
takes too long    as if it had raised
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from everpoll.engine.calls import described
from everpoll.engine.failure_events import failure_event
from everpoll.engine.non_finite_numbers import non_finite_number
from everpoll.jobs.argument_types import to_builtin
from everpoll.jobs.process_calls import UnstorableResult
from everpoll.jobs.verdicts import ORDINARY, Verdict
from everpoll.policy import Backoff, Cancel, Rng, Snooze, human, whole_number
from everpoll.policy.storable_texts import ERROR_LIMIT, storable
from everpoll.stores.contract import Again, Ended, EndState, Lease, Settlement, encode

RESULT_LIMIT = 1_000_000
"""Bytes of JSON, as many as arguments may have. Every read of a task returns its result."""
DEFAULT_BACKOFF = Backoff("1s", factor=2, cap="5m", jitter=0.1)

_strict = msgspec.json.Encoder(decimal_format="string", enc_hook=to_builtin)


@dataclass(frozen=True, slots=True, init=False)
class Retry:
    """`Retry(3)`: three attempts in all, with a backoff between them."""

    attempts: int
    backoff: Backoff

    def __init__(self, attempts: int = 3, backoff: Backoff = DEFAULT_BACKOFF) -> None:
        accepted = "how many attempts there are in all, 1 or more"
        number = whole_number(attempts, name="attempts", at_least=1, accepted=accepted)
        object.__setattr__(self, "attempts", number)
        object.__setattr__(self, "backoff", backoff)


def returned(lease: Lease, value: Any) -> Settlement:
    """Return the settlement of a function that has returned `value`."""
    if value is None:
        return Ended(lease.id, lease.sequence)
    if isinstance(value, Snooze):
        note = encode({"what": "snooze", "why": f"the job asked to be run again in {human(value.delay_s)}"})
        return Again(lease.id, lease.sequence, value.delay_s, refund=True, note=note)
    if isinstance(value, Cancel):
        said = storable(str(value.reason), ERROR_LIMIT)
        return _ended(lease, "canceled", {"what": "canceled", "attempt": lease.attempt, "why": said})
    if isinstance(value, UnstorableResult):
        return _done(lease, None, value.why)
    # The work is done, and failing the task now would repeat it. The trail says what could not be stored.
    try:
        encoded = _strict.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        return _done(lease, None, f"its result is not JSON and was not kept: {error}")
    if len(encoded) > RESULT_LIMIT:
        why = f"its result takes {len(encoded):,} bytes, more than {RESULT_LIMIT:,}, and was not kept"
        return _done(lease, None, f"{why}: store it elsewhere and return where it is")
    result = encoded.decode()
    if (number := non_finite_number(value, encoded)) is not None:
        return _done(lease, result, f"{number} in its result is not valid JSON and became null")
    return Ended(lease.id, lease.sequence, "done", result)


def _done(lease: Lease, result: str | None, why: str) -> Settlement:
    return Ended(lease.id, lease.sequence, "done", result, encode({"what": "done", "why": storable(why, ERROR_LIMIT)}))


def raised(lease: Lease, error: BaseException, retry: Retry, rng: Rng, verdict: Verdict = ORDINARY) -> Settlement:
    """Return the settlement of a function that has raised: try again after the backoff, or fail."""
    entry: dict[str, Any] = {
        "attempt": lease.attempt,
        **described(error),
    }
    because = f" ({verdict.why})" if verdict.why else ""
    if verdict.is_fatal or lease.attempt >= retry.attempts:
        why = f"attempt {lease.attempt} of {retry.attempts} failed{because}"
        return _ended(lease, "failed", {"what": "failed", "why": why, **entry})
    delay_s = retry.backoff.delay(lease.attempt, rng) if verdict.delay_s is None else verdict.delay_s
    delay_s = max(delay_s, verdict.at_least_s)
    why = f"attempt {lease.attempt} of {retry.attempts} failed: next in {human(delay_s)}{because}"
    note = {"what": "retry", "why": why, "delay_s": delay_s, **entry}
    return Again(lease.id, lease.sequence, delay_s, note=encode(note), events=failure_event(note, lease.sequence))


def refused(lease: Lease, problem: str) -> Settlement:
    """Settle a task that cannot be run, now or later."""
    error = storable(problem, ERROR_LIMIT)
    note = {"what": "failed", "why": "it cannot be run", "attempt": lease.attempt, "error": error}
    return _ended(lease, "failed", note)


def _ended(lease: Lease, state: EndState, note: dict[str, Any]) -> Settlement:
    """Return an end with its event. The event has the sequence of the lease, which no other settlement has."""
    events = failure_event(note, lease.sequence)
    return Ended(lease.id, lease.sequence, state, None, encode(note), events)
