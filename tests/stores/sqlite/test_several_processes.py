"""Several processes on one file: nothing is leased twice, nothing acknowledged is lost, and each wakes the others."""

import asyncio
import signal

from everpoll.drivers.wake import NOW, Wake
from everpoll.stores.contract import NewTask, TaskFilter, WorkerCard
from everpoll.stores.sqlite import SqliteStore
from stores.sqlite.processes import finish, start

DRAIN = """
me = int(sys.stdin.readline())
card = WorkerCard(incarnation=me, label="w", host="h", pid=1, queues=("default",), slots=1, version="0")
await store.sign_on(card, 600)
say("ready")
sys.stdin.readline()
while leases := (await store.lease(me, {"default": 50}, 50)).leases:
    say(*(one.id for one in leases))
    assert not await store.settle(me, [Ended(one.id, one.sequence) for one in leases])
"""


async def test_two_processes_never_lease_the_same_task(store: SqliteStore, url: str) -> None:
    tasks = await store.enqueue([NewTask(name="job")] * 10_000)
    drains = [start(url, DRAIN) for _ in range(2)]
    for number, drain in enumerate(drains, 1):
        assert drain.stdin is not None
        drain.stdin.write(f"{number}\n")
        drain.stdin.flush()
    for drain in drains:
        assert drain.stdout is not None
        assert drain.stdout.readline() == "ready\n"
    for drain in drains:
        assert drain.stdin is not None
        drain.stdin.write("go\n")
        drain.stdin.flush()
    shares = [[int(task_id) for line in said for task_id in line.split()] for said in finish(*drains)]
    assert sorted(shares[0] + shares[1]) == [task.id for task in tasks]
    assert (await store.tasks(TaskFilter(state="queued"))).tasks == ()
    assert len((await store.ended([task.id for task in tasks])).keys()) == 10_000


async def test_kill_loses_nothing_that_was_acknowledged(store: SqliteStore, url: str) -> None:
    enqueuer = start(
        url,
        """
        while True:
            for one in await asyncio.gather(*[store.enqueue([NewTask(name="job")]) for _ in range(20)]):
                say(one[0].id)
        """,
    )
    assert enqueuer.stdout is not None
    said = [enqueuer.stdout.readline() for _ in range(500)]
    enqueuer.kill()
    said += enqueuer.stdout.read().splitlines(keepends=True)
    assert enqueuer.wait() == -signal.SIGKILL
    enqueuer.communicate()
    acknowledged = [int(line) for line in said if line.endswith("\n")]
    found = await store.info(acknowledged)
    assert set(acknowledged) == found.keys()
    assert {one.state for one in found.values()} == {"queued"}


async def test_a_commit_of_another_process_wakes(store: SqliteStore, url: str) -> None:
    woken: asyncio.Queue[Wake] = asyncio.Queue()
    await store.listen(woken.put_nowait)
    async with asyncio.timeout(30):
        await woken.get()  # the first look of all: it cannot know what happened before
        enqueuer = start(url, 'await store.enqueue([NewTask(name="job", delay_s=9)])')
        assert await woken.get() == NOW
    finish(enqueuer)
    await store.unlisten(woken.put_nowait)


async def test_a_cancel_by_another_process_is_told_once(store: SqliteStore, url: str) -> None:
    """And not again with every commit that follows while the handler still stops: a beat is such a commit."""
    card = WorkerCard(incarnation=5, label="w", host="h", pid=1, queues=("default",), slots=1, version="0")
    await store.sign_on(card, 600)
    [task] = await store.enqueue([NewTask(name="job")])
    await store.lease(5, {"default": 1}, 1)
    woken: asyncio.Queue[Wake] = asyncio.Queue()
    await store.listen(woken.put_nowait)
    heartbeat = store.heartbeat_connection()
    async with asyncio.timeout(30):
        await woken.get()
        canceler = start(url, f"say(await store.cancel({task.id}, '{{}}'))")
        while not (await woken.get()).cancel:
            pass
        assert finish(canceler) == [["running"]]
        for _ in range(3):
            beat = await asyncio.to_thread(heartbeat.beat, 5, 600, [task.id])
            assert beat.canceled == (task.id,)
            assert await woken.get() == NOW
    heartbeat.close()
