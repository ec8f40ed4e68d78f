"""The test runner itself: the table `execution_jobs` is the queue, a job is one recording with its CSV.

everpoll run examples.test_runner.app:app      as many of these as you like, on as many machines
"""

import os
from typing import Any

import msgspec

from everpoll import Everpoll
from everpoll.tables import Row, Table
from examples.test_runner.recording import read_config, read_csv, read_recording, steps_for
from examples.test_runner.replay import browser, picture_path, replay

app = Everpoll(os.environ.get("EVERPOLL_URL", "sqlite:///test_runner.db"))

executions = app.table(
    Table(
        "execution_jobs",
        queued="queued",
        running="running",
        done="completed",
        failed="failed",
        order_by="created_at",
        worker="worker_id",
        started_at="started_at",
        finished_at="finished_at",
        heartbeat="last_heartbeat",
        retries="retry_count",
        error="error",
        attempts=3,
        timeout="30m",
        columns=("recording", "csv_data", "config"),
        results=("results",),
    ),
    slots=2,  # browsers at a time, in this process
)


@executions.handler
async def execute(row: Row) -> dict[str, Any]:
    """Replay the recording for every row of the CSV. A row that fails is a result; an exception is another attempt."""
    recording, config = read_recording(row["recording"]), read_config(row["config"])
    runs = [steps_for(recording, values, config) for values in read_csv(row["csv_data"])]
    async with browser() as started:
        rows = [
            await replay(started, steps, config, row=number, picture=picture_path(row.id, number))
            for number, steps in enumerate(runs, 1)
        ]
    passed = sum(one.passed for one in rows)
    return {"results": {"passed": passed, "failed": len(rows) - passed, "rows": msgspec.to_builtins(rows)}}
