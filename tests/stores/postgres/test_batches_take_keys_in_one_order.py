"""Two batches that want the same keys take them in one order, whatever order their callers came in: no deadlock."""

import asyncio
from typing import Any

import asyncpg
import pytest

from everpoll.stores.contract import NewTask, Unique
from everpoll.stores.postgres import PostgresStore, repeats
from stores.stage import WATCH, Stage

KEYS = ("a", "m", "z")
WAITING = "select count(*) from pg_locks where not granted and locktype = 'transactionid'"
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "unique for a while": {"unique": Unique("existing", 60.0), "indexed": True},
    "begun once": {**WATCH, "once": True},
}


@pytest.mark.parametrize("way", WAYS)
async def test_batches_in_opposite_orders(
    stage: Stage, store: PostgresStore, url: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third one keeps the key in the middle until both batches wait: out of order, each has what the other wants."""
    monkeypatch.setattr(repeats, "TRIES", 1)  # a deadlock would be repeated, and not be seen
    tasks = [NewTask(name="w", key=key, **WAYS[way]) for key in KEYS]
    other, rival, watching = PostgresStore(url), await asyncpg.connect(url), await asyncpg.connect(url)
    await other.open()
    keeping = rival.transaction()
    await keeping.start()
    kind = WAYS[way].get("kind", "job")
    await rival.execute("insert into everpoll.tasks (name, kind, key) values ('w', $1, 'm')", kind)
    batches = [asyncio.create_task(one.enqueue(order)) for one, order in ((store, tasks), (other, tasks[::-1]))]
    async with asyncio.timeout(20):
        while await watching.fetchval(WAITING) < len(batches):
            pass
    await keeping.rollback()
    answers = dict(zip(KEYS, await batches[0], strict=True)), dict(zip(KEYS[::-1], await batches[1], strict=True))
    for key in KEYS:
        assert answers[0][key].id == answers[1][key].id
        assert answers[0][key].is_new != answers[1][key].is_new
    await other.close()
    await rival.close()
    await watching.close()
