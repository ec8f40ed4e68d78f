"""What a claim, an end, a hand-back and a rescue write into a row: decided once, for every database."""

import pytest

from everpoll.tables import Guard, Table
from everpoll.tables.changes import Changes, Plus, RuntimeValue, queue_order
from everpoll.tables.outcome import RowWrite

LEAN = Table("jobs")
FULL = Table(
    "jobs",
    finished_at="finished_at",
    error="error",
    heartbeat="heard_at",
    retries="retries",
    priority="rank",
    due_at="due_at",
    results=("report",),
)


def changes(table: Table, *required: str) -> Changes:
    return Changes(table, required.__contains__)


def test_a_claim_names_the_worker_and_its_start() -> None:
    claimed = {"status": "running", "worker": RuntimeValue.WORKER, "started_at": RuntimeValue.START}
    assert changes(LEAN).claimed == claimed
    assert changes(FULL).claimed == claimed | {"heartbeat": RuntimeValue.START}


@pytest.mark.parametrize(
    ("guard", "touched"),
    [
        ("skip_locked", {}),
        ("status", {}),
        ("version", {"version": Plus(1)}),
        ("timestamp", {"updated_at": RuntimeValue.NOW}),
    ],
)
def test_every_change_raises_what_the_guard_compares(guard: Guard, touched: dict[str, object]) -> None:
    made = changes(Table("jobs", guard=guard))
    done = RowWrite(status="completed", is_end=True)
    for change in (made.claimed, made.waiting, made.settled(done), made.lost(is_last=False)):
        assert {role: value for role, value in change.items() if role in {"version", "updated_at"}} == touched


def test_a_row_that_waits_again_has_no_worker_unless_its_columns_must_have_one() -> None:
    assert changes(FULL).waiting == {"status": "queued", "worker": None, "started_at": None, "heartbeat": None}
    assert changes(FULL, "worker_id", "started_at").waiting == {"status": "queued", "heartbeat": None}


def test_an_end_empties_the_error_and_keeps_the_worker() -> None:
    done = RowWrite(status="completed", is_end=True, results={"report": 1})
    written = {"status": "completed", "finished_at": RuntimeValue.NOW, "column report": RuntimeValue.RESULT}
    assert changes(FULL).settled(done) == written | {"error": None}
    assert changes(FULL, "error").settled(done) == written | {"error": ""}


def test_a_retry_counts_and_a_hand_back_leaves_error_and_count_alone() -> None:
    again = RowWrite(status="queued", is_end=False, error="Boom", retries=1, delay_s=5.0)
    waiting = changes(FULL).waiting
    counted = {"retries": Plus(1), "error": RuntimeValue.ERROR, "due_at": RuntimeValue.DUE}
    assert changes(FULL).settled(again) == waiting | counted
    back = RowWrite(status="queued", is_end=False, keeps_error=True)
    assert changes(FULL).settled(back) == waiting


def test_a_lost_row_waits_again_or_has_failed_with_its_last_attempt() -> None:
    counted = {"retries": Plus(1), "error": RuntimeValue.LOST}
    assert changes(FULL).lost(is_last=False) == changes(FULL).waiting | counted
    assert changes(FULL).lost(is_last=True) == {"status": "failed", "finished_at": RuntimeValue.NOW} | counted
    assert changes(LEAN).lost(is_last=False) == changes(LEAN).waiting


def test_the_queue_is_ordered_by_priority_then_age_then_key() -> None:
    assert list(queue_order(FULL).items()) == [("rank", True), ("created_at", False), ("id", False)]
    assert list(queue_order(Table("jobs", order_by="id")).items()) == [("id", False)]
