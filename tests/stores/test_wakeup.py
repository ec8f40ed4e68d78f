"""An enqueue anywhere wakes every listener, in its own thread; so does a cancel, and says that it is one."""

import asyncio
import threading

from everpoll.drivers.wake import Wake
from everpoll.stores.contract import NewTask
from everpoll.stores.operations import Revision
from stores.flow_tasks import group, put, task
from stores.stage import HOUR_S, Stage, again, done, json

PATIENCE_S = 60.0
SLACK_S = 10.0
"""How much of a delay may have passed when its wake-up is heard."""
"""Only a test that fails waits as long."""


class Listener:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.wakes: list[Wake] = []
        self.threads: set[int] = set()
        self._changed = asyncio.Event()

    def __call__(self, wake: Wake) -> None:
        self.wakes.append(wake)
        self.threads.add(threading.get_ident())
        self._changed.set()

    async def heard(self, *, cancel: bool = False) -> None:
        """Wait until it is told (of a cancel), and forget everything heard so far."""
        async with asyncio.timeout(PATIENCE_S):
            while not (any(one.cancel for one in self.wakes) if cancel else self.wakes):
                await self._changed.wait()
                self._changed.clear()
        self.wakes.clear()

    async def heard_of_what_is_due_now(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not any(one.due_s == 0.0 for one in self.wakes):
                await self._changed.wait()
                self._changed.clear()


async def test_push_works_here(stage: Stage) -> None:
    await stage.store.listen(Listener())
    assert stage.store.has_push


async def test_an_enqueue_wakes_its_own_process(stage: Stage) -> None:
    listener = Listener()
    await stage.store.listen(listener)
    await stage.put()
    await listener.heard()
    assert listener.threads == {threading.get_ident()}


async def test_an_enqueue_elsewhere_wakes(stage: Stage) -> None:
    """Again and again, not only the first time."""
    listener, other = Listener(), await stage.another_store()
    await stage.store.listen(listener)
    for _ in range(5):
        listener.wakes.clear()
        await other.enqueue([NewTask(name="job")])
        await listener.heard()
    assert listener.threads == {threading.get_ident()}


async def test_what_woke_us_can_be_leased(stage: Stage) -> None:
    """The wake-up comes after the commit, never before."""
    worker, listener, other = await stage.worker(), Listener(), await stage.another_store()
    await stage.store.listen(listener)
    for _ in range(10):
        listener.wakes.clear()
        [answer] = await other.enqueue([NewTask(name="job")])
        await listener.heard()
        lease = await stage.take_one(worker)
        assert lease.id == answer.id
        await stage.store.settle(worker, [done(lease)])


async def test_a_resumed_queue_wakes_the_workers_of_other_processes(stage: Stage) -> None:
    worker, listener, other = await stage.worker(), Listener(), await stage.another_store()
    await other.pause("default", "", "")
    task_id = await stage.put_one()
    assert await stage.take(worker) == []
    await stage.store.listen(listener)
    listener.wakes.clear()
    await other.resume("default", "")
    await listener.heard()
    assert (await stage.take_one(worker)).id == task_id


async def test_a_revision_of_what_runs_makes_its_settlement_wake(stage: Stage) -> None:
    """It is due at once when it settles, whatever it settles: a worker that slept on would miss it.

    Either workers are told at once, as of a cancel, to sleep through nothing; or the settlement says "now".
    """
    worker, listener = await stage.worker(), Listener()
    lease = await stage.running(worker)
    await stage.store.listen(listener)
    assert await stage.store.revise([Revision(task_id=lease.id, hurry=True)]) == [lease.id]
    if stage.backend.name.startswith("postgres"):
        await listener.heard(cancel=True)
    else:
        await listener.heard()
        await stage.store.settle(worker, [again(lease, HOUR_S)])
        await listener.heard_of_what_is_due_now()


async def test_a_cancel_wakes_and_says_so(stage: Stage) -> None:
    worker, listener, other = await stage.worker(), Listener(), await stage.another_store()
    lease = await stage.running(worker)
    await stage.store.listen(listener)
    await other.cancel(lease.id, json({"what": "cancel"}))
    await listener.heard(cancel=True)
    assert (await stage.beat(worker, [lease.id])).canceled == (lease.id,)


async def test_a_retry_wakes(stage: Stage) -> None:
    """The task is due at once."""
    task_id = await stage.ended(await stage.worker())
    listener, other = Listener(), await stage.another_store()
    await stage.store.listen(listener)
    assert await other.retry(task_id, json({"what": "retry"}))
    await listener.heard()


async def test_a_task_that_falls_due_sooner_wakes(stage: Stage) -> None:
    """A worker that sleeps until the next due time must hear of an earlier one."""
    listener, other = Listener(), await stage.another_store()
    await stage.put(delay_s=2 * HOUR_S)
    await stage.store.listen(listener)
    listener.wakes.clear()
    await other.enqueue([NewTask(name="job", delay_s=HOUR_S)])
    await listener.heard()


async def test_a_wake_up_here_says_when_its_task_falls_due(stage: Stage) -> None:
    """So that a worker that looks before that anyhow may sleep on. Wake-ups that are merged say the earlier one."""
    worker, listener = await stage.worker(), Listener()
    await stage.store.listen(listener)

    async def put() -> None:
        await stage.put(delay_s=HOUR_S)

    async def settle() -> None:
        lease = await stage.running(worker)
        await asyncio.sleep(0.01)  # what woke for that one was heard
        listener.wakes.clear()
        await stage.store.settle(worker, [again(lease, delay_s=60.0)])

    async with asyncio.timeout(PATIENCE_S):
        for happen, due_s in ((put, HOUR_S), (settle, 60.0)):
            heard: list[Wake] = []
            while not any(abs(one.due_s - due_s) < SLACK_S for one in heard):
                await happen()
                await asyncio.sleep(0.02)
                heard = list(listener.wakes)


async def test_everyone_who_listens_is_woken(stage: Stage) -> None:
    other = await stage.another_store()
    here, here_too, there = Listener(), Listener(), Listener()
    await stage.store.listen(here)
    await stage.store.listen(here_too)
    await other.listen(there)
    await stage.put()
    await asyncio.gather(here.heard(), here_too.heard(), there.heard())


async def test_a_listener_that_stopped_is_left_alone(stage: Stage) -> None:
    """Stopping twice does no harm, and the others still hear."""
    gone, still = Listener(), Listener()
    await stage.store.listen(gone)
    await stage.store.listen(still)
    await stage.store.unlisten(gone)
    await stage.store.unlisten(gone)
    gone.wakes.clear()
    still.wakes.clear()
    await stage.put()
    await still.heard()
    assert gone.wakes == []


async def test_a_broken_connection_is_made_anew(stage: Stage) -> None:
    """What was enqueued while no listener could hear is heard of afterwards."""
    listener = Listener()
    await stage.store.listen(listener)
    await stage.backend.cut_connections()
    other = await stage.another_store()
    listener.wakes.clear()
    await other.enqueue([NewTask(name="job")])
    await listener.heard()


async def test_a_burst_of_enqueues_is_heard(stage: Stage) -> None:
    """However wake-ups are merged, the last task is not left waiting."""
    worker, listener, other = await stage.worker(), Listener(), await stage.another_store()
    await stage.store.listen(listener)
    left = 200

    async def drain() -> None:
        nonlocal left
        while left:
            left -= len(await stage.take(worker))
            if left:
                await listener.heard()

    async def flood() -> None:
        for _ in range(50):
            await asyncio.gather(*(other.enqueue([NewTask(name="job")]) for _ in range(4)))

    await asyncio.gather(drain(), flood())


async def test_an_end_wakes_for_the_task_that_waited_for_it(stage: Stage) -> None:
    """Here and elsewhere; also where the end is a cancel."""
    other = await stage.another_store()
    worker = await stage.worker()
    for ends_by_cancel in (False, True):
        await put(stage, group(task("report"), [task("m")]))
        member = await stage.take_one(worker)
        here, elsewhere = Listener(), Listener()
        await stage.store.listen(here)
        await other.listen(elsewhere)
        if ends_by_cancel:
            await stage.store.settle(worker, [again(member, HOUR_S)])
            await stage.store.cancel(member.id, json({"what": "test"}))
        else:
            await stage.store.settle(worker, [done(member)])
        await here.heard_of_what_is_due_now()
        await elsewhere.heard_of_what_is_due_now()
        await stage.store.unlisten(here)
        await other.unlisten(elsewhere)
        await stage.store.settle(worker, [done(await stage.take_one(worker))])
