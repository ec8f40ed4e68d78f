"""A look at ended tasks brings the reasons of failed ones only as far as they fit into one answer."""

import pytest

from everpoll.stores import limits
from everpoll.stores.postgres import PostgresStore, reading
from stores.stage import Stage, done, json


async def test_a_task_that_does_not_fit_comes_without_its_trail(
    stage: Stage, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "READ_BYTES", 1_000)
    worker = await stage.worker()
    leases = [await stage.running(worker) for _ in range(3)]
    note = json({"what": "failed", "error": "no", "id": "".join(map(chr, range(200, 1_200)))})
    await store.settle(worker, [done(lease, state="failed", note=note) for lease in leases])
    ids = [lease.id for lease in leases]
    rows = await store._queries.rows(reading.ENDS, ids, limits.READ_BYTES)
    assert [(row["fits"], row["trail"] is None) for row in sorted(rows)] == [(True, False), *[(False, True)] * 2]
    left = ids
    while left:
        found = await store.ended(left)
        answered = {task_id: task for task_id, task in found.items() if task is not None}
        assert [len(task.errors) for task in answered.values()] == [1]
        left = [task_id for task_id in left if task_id not in answered]
