"""The audit service itself: the table `audits` is the queue, a worker fetches each address and stores its report.

everpoll run examples.website_audit.app:app      as many of these as you like, on as many machines
"""

import os
from typing import Any

import msgspec

from everpoll import Backoff, Cancel, Everpoll
from everpoll.tables import Row, Table
from examples.website_audit.fetch import BadAddress, fetch
from examples.website_audit.page import read_page
from examples.website_audit.score import scored

app = Everpoll(os.environ.get("EVERPOLL_URL", "sqlite:///website_audit.db"))

audits = app.table(
    Table(
        "audits",
        queued="pending",
        running="processing",
        done="completed",
        failed="failed",
        order_by="created_at",
        priority="priority",
        worker="processing_worker_id",
        started_at="processing_started_at",
        heartbeat="last_heartbeat",
        heartbeat_every="30s",
        stale_after="5m",  # without a heartbeat: back to pending, with one more retry
        retries="retry_count",
        attempts=3,
        due_at="next_attempt_at",
        backoff=Backoff("1s", factor=2, cap="5m"),
        timeout="1m",
        finished_at="finished_at",
        error="error",
        columns=("url",),
        results=("score", "report"),
    ),
    slots=8,
)


@audits.handler
def audit(row: Row) -> dict[str, Any] | Cancel:
    """A plain function: it runs in a thread. A site that is down raises, and is tried again after the backoff."""
    try:
        answer, html = fetch(row["url"])
    except BadAddress as error:
        return Cancel(str(error))  # it will not be a better address in a minute: no further attempts
    report = scored(answer, read_page(html, answer.url))
    return {"score": report.score, "report": msgspec.to_builtins(report)}
