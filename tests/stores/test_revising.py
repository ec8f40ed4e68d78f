"""A live task takes new arguments and is due at once; one that runs is due again as soon as it has settled."""

from everpoll.stores.contract import Again, Ended, Lease
from everpoll.stores.operations import Revision
from stores.stage import HOUR_S, Stage

CHECK = {"kind": "check", "key": "billing", "indexed": True}
HURRY = Revision("check", "billing", hurry=True)


async def one_lease(stage: Stage, worker: int) -> Lease:
    [lease] = await stage.take(worker)
    return lease


async def test_a_waiting_task_is_due_at_once_with_its_new_arguments(stage: Stage) -> None:
    worker = await stage.worker()
    task_id = await stage.put_one(**CHECK, args='"old"', memory='"kept"', delay_s=HOUR_S)
    assert await stage.take(worker) == []
    assert await stage.store.revise([Revision("check", "billing", '"new"')]) == [task_id]
    lease = await one_lease(stage, worker)
    assert (lease.id, lease.args, lease.memory) == (task_id, '"new"', '"kept"')


async def test_equal_arguments_change_nothing(stage: Stage) -> None:
    worker = await stage.worker()
    task_id = await stage.put_one(**CHECK, args='"old"', delay_s=HOUR_S)
    assert await stage.store.revise([Revision("check", "billing", '"old"')]) == [task_id]
    assert await stage.take(worker) == []


async def test_hurry_makes_it_due_with_the_arguments_that_it_has(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.put_one(**CHECK, args='"old"', delay_s=HOUR_S)
    await stage.store.revise([HURRY])
    assert (await one_lease(stage, worker)).args == '"old"'


async def test_a_running_task_goes_on_and_is_due_again_at_once(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.put_one(**CHECK, args='"old"')
    lease = await one_lease(stage, worker)
    await stage.store.revise([Revision("check", "billing", '"new"')])
    assert await stage.take(worker) == [], "one run at a time"
    assert await stage.store.settle(worker, [Again(lease.id, lease.sequence, HOUR_S, refund=True)]) == set()
    again = await one_lease(stage, worker)
    assert (again.args, again.attempt) == ('"new"', 1)
    # The revision is known now: the next due time is the task's own again.
    assert await stage.store.settle(worker, [Again(again.id, again.sequence, HOUR_S)]) == set()
    assert await stage.take(worker) == []


async def test_a_revision_does_not_keep_a_task_from_ending(stage: Stage) -> None:
    worker = await stage.worker()
    task_id = await stage.put_one(**CHECK)
    lease = await one_lease(stage, worker)
    await stage.store.revise([HURRY])
    assert await stage.store.settle(worker, [Ended(lease.id, lease.sequence)]) == set()
    assert (await stage.show(task_id)).state == "done"
    assert await stage.store.revise([HURRY]) == [None], "only live tasks are revised"


async def test_many_are_revised_in_one_call_and_answered_in_order(stage: Stage) -> None:
    worker = await stage.worker()
    ids = [await stage.put_one(kind="check", key=f"s{one}", args='"old"', delay_s=HOUR_S) for one in range(4)]
    await stage.put_one(kind="job", key="s0", args='"a job"', delay_s=HOUR_S)
    revisions = [Revision("check", key, '"new"') for key in ("s2", "nowhere", "s0", "s3")]
    assert await stage.store.revise(revisions) == [ids[2], None, ids[0], ids[3]]
    assert {lease.id for lease in await stage.take(worker)} == {ids[0], ids[2], ids[3]}
    assert await stage.store.revise([]) == []


async def test_a_canceled_task_stays_canceled(stage: Stage) -> None:
    worker = await stage.worker()
    task_id = await stage.put_one(**CHECK)
    lease = await one_lease(stage, worker)
    await stage.store.cancel(task_id, '{"what":"cancel"}')
    await stage.store.revise([HURRY])
    await stage.store.settle(worker, [Again(lease.id, lease.sequence, 1.0)])
    assert (await stage.show(task_id)).state == "canceled"


async def test_what_was_read_and_is_written_back_overwrites_no_change_in_between(stage: Stage) -> None:
    task_id = await stage.put_one(**CHECK, args='"read"', delay_s=HOUR_S)
    mine = Revision("check", "billing", '"mine"', expects='"read"')
    theirs = Revision("check", "billing", '"theirs"', expects='"read"')
    assert await stage.store.revise([theirs]) == [task_id]
    assert await stage.store.revise([mine]) == [None]
    assert await stage.store.revise([mine, theirs]) == [None, None]
    assert (await stage.show(task_id)).args == "theirs"
