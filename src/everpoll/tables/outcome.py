"""Pure decisions about a row: from what its handler did to what everpoll writes into it.

    handler ──▶ Settlement (the engine's words) ──▶ RowWrite (the table's words)

returns None or a dict of `results`   done            returns Snooze("30s")   queued again, later, no attempt used
raises, or takes too long             queued again    returns Cancel("why")   canceled, or failed where there is no word
  … `attempts` times                  failed          stopped by the engine   queued again, no attempt used
"""

from collections.abc import Hashable
from typing import Any

import msgspec
from msgspec import Struct

from everpoll.engine.calls import described
from everpoll.policy import Cancel, Rng, Snooze, human, shown
from everpoll.policy.storable_texts import storable
from everpoll.stores.contract import Again, Ended, Lease, Settlement, encode
from everpoll.tables.mapping import Table

ERROR_LIMIT = 2_000


class RowWrite(Struct, frozen=True, gc=False, kw_only=True):
    """What a settlement writes into its row."""

    status: str
    is_end: bool
    error: str | None = None
    """For the error column; None empties it."""
    keeps_error: bool = False
    """True leaves the error column as it is: a hand-back says nothing new about the row."""
    retries: int = 0
    """Added to the column for retries."""
    delay_s: float | None = None
    """For the column of the due time; None: at once."""
    results: dict[str, Any] = {}

    @property
    def pattern(self) -> tuple[Hashable, ...]:
        """What this write must have in common with others to be written by the same statement."""
        has_error, has_delay = self.error is not None, self.delay_s is not None
        return (self.status, self.is_end, self.retries, self.keeps_error, has_error, has_delay, *sorted(self.results))

    @property
    def is_plain(self) -> bool:
        """True if all writes of its pattern have the same values."""
        return self.error is None and self.delay_s is None and not self.results


def returned(table: Table, lease: Lease, value: Any) -> Settlement:
    """Return the settlement of a handler that has returned `value`."""
    if value is None:
        return Ended(lease.id, lease.sequence)
    if isinstance(value, Snooze):
        if table.due_at is None:
            return _refused(table, lease, "its handler returned Snooze, which needs a column: due_at=…")
        note = encode({"what": "snooze", "why": f"the handler asked to be run again in {human(value.delay_s)}"})
        return Again(lease.id, lease.sequence, value.delay_s, refund=True, note=note)
    if isinstance(value, Cancel):
        note = encode({"what": "canceled", "error": storable(str(value.reason), ERROR_LIMIT)})
        return Ended(lease.id, lease.sequence, "canceled", None, note)
    if not isinstance(value, dict) or not set(value) <= set(table.results):
        wanted = f"a dict with some of {', '.join(table.results)}" if table.results else "None: name results=(…) first"
        return _refused(table, lease, f"its handler returned {shown(value)}; it may return {wanted}")
    try:
        return Ended(lease.id, lease.sequence, "done", encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        return _refused(table, lease, f"what its handler returned is not JSON: {error}")


def raised(table: Table, lease: Lease, error: BaseException, rng: Rng) -> Settlement:
    """Return the settlement of a handler that has raised: try again after the backoff, or fail."""
    what = described(error)
    note = {"attempt": lease.attempt, "type": what["type"], "error": what["error"]}
    if table.retries is None or lease.attempt >= table.attempts:
        return Ended(lease.id, lease.sequence, "failed", None, encode({"what": "failed", "why": "has failed", **note}))
    delay_s = None if table.due_at is None else table.backoff.delay(lease.attempt, rng)
    why = f"attempt {lease.attempt} of {table.attempts} failed"
    return Again(lease.id, lease.sequence, delay_s, note=encode({"what": "retry", "why": why, **note}))


def written(table: Table, settlement: Settlement) -> RowWrite:
    """Translate a settlement into what is written into the row, in the words of the mapping."""
    note = {} if settlement.note is None else msgspec.json.decode(settlement.note)
    error = _error(note)
    if isinstance(settlement, Again):
        return RowWrite(
            status=table.queued,
            is_end=False,
            error=error,
            keeps_error=error is None,
            retries=0 if settlement.refund else 1,
            delay_s=settlement.delay_s,
        )
    if settlement.state == "done":
        results = {} if settlement.result is None else msgspec.json.decode(settlement.result)
        return RowWrite(status=table.done, is_end=True, results=results)
    is_canceled = settlement.state == "canceled" and table.canceled is not None
    return RowWrite(
        status=table.canceled if is_canceled and table.canceled else table.failed,
        is_end=True,
        error=error or str(note.get("why", settlement.state)),
        retries=1 if note.get("what") == "failed" else 0,
    )


def lost_text(table: Table) -> str:
    """Return the error text of a row whose worker was lost; the worker's name goes before it, the attempt after it."""
    return f" had no heartbeat for {table.stale_after_s:g} s and was declared dead"


def lost_error(table: Table, worker: str | None, retries: int) -> str:
    """Return the complete error text of a lost row, for a database that cannot compose it. `retries`: before this
    loss.
    """
    attempt = "" if table.retries is None else f" (attempt {retries + 1} of {table.attempts})"
    return f"worker {worker or '?'}{lost_text(table)}{attempt}"


def is_as_left(table: Table, write: RowWrite, status: object, is_ours: bool) -> bool:
    """Return True if a lost row is in the state that this settlement would leave: an earlier try has written it.

    `is_ours`: worker and start are still those of the claim. A row that was to wait again may have been claimed since,
    after a hand-back by this worker or by a rescue that looks the same.
    """
    if write.is_end:
        return is_ours and status == write.status
    return status == write.status or (status == table.running and not is_ours)


def _error(note: dict[str, Any]) -> str | None:
    if "error" not in note:
        return None
    return f"{note['type']}: {note['error']}" if "type" in note else str(note["error"])


def _refused(table: Table, lease: Lease, problem: str) -> Settlement:
    error = storable(f"table {table.name}: {problem}", ERROR_LIMIT)
    return Ended(lease.id, lease.sequence, "failed", None, encode({"what": "failed", "error": error}))
