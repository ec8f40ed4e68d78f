"""Four processes want the same keys, in every way there is, while they run the tasks: none of them waits for ever."""

from pathlib import Path

import asyncpg
import pytest

from everpoll.stores.contract import TaskFilter
from stores.backends import Backend
from stores.stage import Stage
from warm_processes import PIPE, WarmProcess

PROCESSES = 4
DEADLOCKS = "select deadlocks from pg_stat_database where datname = current_database()"


async def deadlocks(backend: Backend) -> int:
    if not backend.name.startswith("postgres"):
        return 0
    connection = await asyncpg.connect(backend.url)
    count = await connection.fetchval(DEADLOCKS)
    await connection.close()
    return int(count)


async def test_no_two_of_them_wait_for_each_other(stage: Stage) -> None:
    """Every enqueue is answered and every new task ends, without a single deadlock."""
    if stage.backend.url is None:
        pytest.skip("memory is of one process")
    before = await deadlocks(stage.backend)
    script = Path(__file__).with_name("contender.py")
    contenders = [
        WarmProcess([str(script), stage.backend.url, str(2**61 + number), "8"], stdin=PIPE, stdout=PIPE)
        for number in range(PROCESSES)
    ]
    try:
        for one in contenders:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        for one in contenders:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        new = [int(one.communicate(timeout=120)[0]) for one in contenders]
    finally:
        for one in contenders:
            one.kill()
            one.wait()
    tasks: list[str] = []
    after: int | None = None
    while True:
        page = await stage.store.tasks(TaskFilter(), 500, after)
        tasks += [one.state for one in page.tasks]
        if (after := page.after) is None:
            break
    assert (len(tasks), set(tasks)) == (sum(new), {"done"})
    assert await deadlocks(stage.backend) == before
