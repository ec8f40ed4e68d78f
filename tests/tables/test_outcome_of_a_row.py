"""From what a handler did to what is written into its row: pure, and the same for every database."""

import asyncio
import random
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from everpoll import Cancel, Snooze
from everpoll.stores.contract import Again, Ended
from everpoll.tables import Table
from everpoll.tables.outcome import ERROR_LIMIT, RowWrite, raised, returned, written
from everpoll.tables.row import RowLease

FULL = Table(
    "jobs",
    retries="retries",
    due_at="due_at",
    error="error",
    canceled="canceled",
    results=("report", "score"),
)
LEAN = Table("jobs")
RNG = random.Random(7)


def lease(attempt: int = 1) -> RowLease:
    return RowLease(9, 1, attempt, "jobs", "jobs", "null", row_key="k", values={})


def after_return(table: Table, value: Any) -> RowWrite:
    return written(table, returned(table, lease(), value))


def after_raise(table: Table, error: BaseException, attempt: int = 1) -> RowWrite:
    return written(table, raised(table, lease(attempt), error, RNG))


def test_nothing_returned_is_done() -> None:
    assert after_return(FULL, None) == RowWrite(status="completed", is_end=True)


def test_a_dict_of_results_is_written() -> None:
    write = after_return(FULL, {"report": {"a": [1, None]}, "score": Decimal("1.50")})
    assert (write.status, write.results) == ("completed", {"report": {"a": [1, None]}, "score": "1.50"})


@pytest.mark.parametrize("value", [{"unknown": 1}, "text", 7, ["report"], {"report": 1, 2: 3}])
def test_anything_else_has_failed_and_says_what_is_allowed(value: object) -> None:
    write = after_return(FULL, value)
    assert (write.status, write.is_end, write.retries) == ("failed", True, 1)
    assert write.error is not None
    assert "a dict with some of report, score" in write.error
    lean = after_return(LEAN, value)
    assert lean.error is not None
    assert "None: name results=(…) first" in lean.error


def test_what_is_not_json_has_failed() -> None:
    endless: dict[str, Any] = {}
    endless["report"] = endless
    write = after_return(FULL, endless)
    assert write.status == "failed"
    assert "not JSON" in str(write.error)


def test_a_snooze_costs_no_attempt() -> None:
    write = after_return(FULL, Snooze("30s"))
    assert write == RowWrite(status="queued", is_end=False, keeps_error=True, retries=0, delay_s=30.0)
    assert "needs a column: due_at=" in str(after_return(LEAN, Snooze("30s")).error)


def test_a_cancel_has_the_users_word_or_has_failed() -> None:
    write = after_return(FULL, Cancel("not needed"))
    assert (write.status, write.is_end, write.error, write.retries) == ("canceled", True, "not needed", 0)
    assert after_return(LEAN, Cancel("not needed")).status == "failed"


def test_a_failure_is_tried_again_after_its_backoff() -> None:
    write = after_raise(FULL, ValueError("boom"), attempt=2)
    assert (write.status, write.is_end, write.error, write.retries) == ("queued", False, "ValueError: boom", 1)
    assert write.delay_s is not None
    assert 9 <= write.delay_s <= 11


def test_the_third_failure_is_the_last() -> None:
    write = after_raise(FULL, ValueError("boom"), attempt=3)
    assert (write.status, write.is_end, write.error, write.retries) == ("failed", True, "ValueError: boom", 1)


def test_without_a_column_to_count_in_the_first_failure_is_the_last() -> None:
    write = after_raise(LEAN, ValueError("boom"))
    assert (write.status, write.is_end) == ("failed", True)


def test_without_a_due_time_the_next_attempt_follows_at_once() -> None:
    table = Table("jobs", retries="retries")
    assert after_raise(table, ValueError("boom")).delay_s is None


def test_an_error_is_bounded_and_can_be_stored() -> None:
    write = after_raise(FULL, ValueError("\x00\ud800" + "x" * 5 * ERROR_LIMIT), attempt=3)
    assert write.error is not None
    assert len(write.error) < ERROR_LIMIT + 100
    assert "\x00" not in write.error
    write.error.encode()


def test_what_the_engine_stopped_waits_again_at_no_cost() -> None:
    note = msgspec.json.encode({"what": "hand-back", "why": "its worker shuts down"}).decode()
    write = written(FULL, Again(9, 1, None, refund=True, note=note))
    assert write == RowWrite(status="queued", is_end=False, keeps_error=True)


def test_what_the_engine_canceled_says_why() -> None:
    note = msgspec.json.encode({"what": "canceled", "why": "canceled while running"}).decode()
    write = written(FULL, Ended(9, 1, "canceled", None, note))
    assert (write.status, write.error, write.retries) == ("canceled", "canceled while running", 0)


def test_a_cancellation_of_its_own_is_a_failure() -> None:
    assert after_raise(FULL, asyncio.CancelledError()).error == "CancelledError: "
