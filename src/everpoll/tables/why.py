"""Why a row of an adopted table is where it is: the verdict, what in the row proves it, and what can be done.

Pure: a row, the table's counts and its workers go in, sentences come out.
"""

from collections.abc import Sequence
from datetime import datetime

from everpoll.engine.why import Why
from everpoll.policy import human
from everpoll.tables.contract import StatusCount
from everpoll.tables.mapping import Table
from everpoll.tables.overview import RowState, TableWorker


def why_row(
    table: Table, label: str, row: RowState, counts: Sequence[StatusCount], workers: Sequence[TableWorker]
) -> Why:
    """Name what keeps the row from ending, or how it ended. `label`: the row as people call it, TABLE:KEY."""
    if row.status == table.queued:
        answer = _queued(table, label, row, counts, workers)
    elif row.status == table.running:
        answer = _running(table, label, row)
    elif row.status in table.words:
        answer = _ended(label, row)
    else:
        answer = Why(
            f"{label} has the status {row.status!r}, which the mapping does not name: workers leave it alone.",
            (f"the mapping names {', '.join(map(repr, table.words))}",),
            f"to have it run, set its {table.status} to {table.queued!r}",
        )
    return Why(answer.verdict, answer.evidence + _attempts(table, row), answer.advice)


def _queued(
    table: Table, label: str, row: RowState, counts: Sequence[StatusCount], workers: Sequence[TableWorker]
) -> Why:
    if row.due_at is not None and row.due_at > row.now:
        wait = human(round((row.due_at - row.now).total_seconds()))
        return Why(f"{label} waits for its due time, in {wait}.", (f"{table.due_at} is {row.due_at.isoformat()}",))
    evidence = tuple(counted_text(one) for one in counts if one.status in {table.queued, table.running})
    if not workers:
        return Why(
            f"{label} is due, and no worker has claimed it: no worker holds a row of this table.",
            evidence,
            "start a worker with `everpoll run MODULE:APP`; an idle worker claims a due row within seconds",
        )
    holding = tuple(f"worker {one.label} runs {one.running} of its rows" for one in workers[:10])
    return Why(f"{label} is due, and waits for a free slot of a worker.", evidence + holding)


def _running(table: Table, label: str, row: RowState) -> Why:
    since = "" if row.started_at is None else f", for {_since(row.started_at, row.now)}"
    verdict = f"{label} runs on worker {row.worker or '?'}{since}."
    if table.heartbeat is None:
        return Why(
            verdict,
            ("the mapping names no heartbeat column: a killed worker looks like a busy one",),
            f"if that worker is gone, set its {table.status} to {table.queued!r}; name a column with heartbeat=…",
        )
    heard_at = row.heartbeat or row.started_at
    if heard_at is None:
        return Why(verdict, ("it has neither a heartbeat nor a start",))
    silence_s = (row.now - heard_at).total_seconds()
    evidence = (f"its last heartbeat was {_since(heard_at, row.now)} ago",)
    if silence_s < table.stale_after_s:
        return Why(verdict, evidence)
    return Why(
        f"{label} is held by worker {row.worker or '?'}, which has not been heard of for {human(round(silence_s))}.",
        (*evidence, f"a live worker hands it back after {human(table.stale_after_s)} without a heartbeat"),
        "start a worker with `everpoll run MODULE:APP`: its heartbeat hands the row back",
    )


def _ended(label: str, row: RowState) -> Why:
    when = "" if row.finished_at is None else f", {_since(row.finished_at, row.now)} ago"
    by = () if row.worker is None else (f"it ran on worker {row.worker}",)
    return Why(f"{label} has ended as {row.status!r}{when}.", by)


def _attempts(table: Table, row: RowState) -> tuple[str, ...]:
    failed = f"{row.retries} of {table.attempts} attempts have failed"
    last = f"the last error: {row.error}"
    return (*((failed,) if row.retries else ()), *((last,) if row.error else ()))


def counted_text(one: StatusCount) -> str:
    """Write a count for people: `3 queued`, `10000+ completed`."""
    if one.rows is None:
        return f"{one.status}: not counted"
    return f"{one.rows}{'+' if one.is_capped else ''} {one.status}"


def _since(instant: datetime, now: datetime) -> str:
    return human(max(0, round((now - instant).total_seconds())))
