"""Tasks that wait for others: they are enqueued together, and told of each end once, with that end."""

import msgspec
import pytest

from everpoll.errors import BadInput
from everpoll.stores.contract import Lease, Limit, NewTask, Settlement, TaskFilter, Unique
from everpoll.stores.flows import FlowTask
from everpoll.stores.operations import Revision
from stores.flow_tasks import chain, group, put, put_chain, task
from stores.stage import HOUR_S, NOTE, Stage, again, done, json, whats


def input_of(lease: Lease) -> object:
    return msgspec.json.decode(lease.args).get("input", "none")


async def test_a_chain_runs_in_order_and_each_task_takes_the_result_of_the_one_before(stage: Stage) -> None:
    worker = await stage.worker()
    first, second, third = await put_chain(stage, "fetch", "parse", "store")
    assert [(await stage.show(one)).then_id for one in (first, second, third)] == [second, third, None]
    assert [(await stage.show(one)).blockers for one in (first, second, third)] == [0, 1, 1]
    lease = await stage.take_one(worker)
    assert lease.id == first
    assert await stage.store.settle(worker, [done(lease, {"a": [1, "é"]})]) == set()
    lease = await stage.take_one(worker)
    assert (lease.id, input_of(lease)) == (second, {"a": [1, "é"]})
    assert await stage.store.settle(worker, [done(lease)]) == set()
    lease = await stage.take_one(worker)
    assert (lease.id, input_of(lease)) == (third, None)
    assert await stage.store.settle(worker, [done(lease, 7, note=NOTE)]) == set()
    shown = await stage.show(third)
    assert (shown.state, shown.result, shown.blockers) == ("done", 7, 0)
    assert await stage.take(worker) == []


@pytest.mark.parametrize("state", ["failed", "canceled"])
async def test_an_end_that_is_not_done_cancels_the_rest_and_is_named_there(stage: Stage, state: str) -> None:
    worker = await stage.worker()
    first, *rest = await put_chain(stage, "fetch", "parse", "store", "tell")
    await stage.store.settle(worker, [done(await stage.take_one(worker), None, state)])  # type: ignore[arg-type]
    how = "failed" if state == "failed" else "was canceled"
    for task_id in rest:
        shown = await stage.show(task_id)
        assert (shown.state, shown.attempt, whats(shown)) == ("canceled", 0, ["canceled"])
        assert shown.cancel_reason == f"task {first} (fetch), which comes before it, {how}"
        assert (shown.trail[-1]["cause"], shown.trail[-1]["cause_name"]) == (first, "fetch")
        (event,) = await stage.store.actions_of(task_id)
        assert event.body == {name: value for name, value in shown.trail[-1].items() if name not in {"at", "by"}}
    assert await stage.take(worker) == []


async def test_a_retry_on_the_way_unblocks_nothing(stage: Stage) -> None:
    worker = await stage.worker()
    first, second = await put_chain(stage, "fetch", "parse")
    await stage.store.settle(worker, [again(await stage.take_one(worker))])
    lease = await stage.take_one(worker)
    assert (lease.id, (await stage.show(second)).blockers) == (first, 1)


async def test_a_group_ends_once_all_members_have_ended_however(stage: Stage) -> None:
    worker = await stage.worker()
    callback, *members = await put(stage, group(task("report"), [task("m") for _ in range(4)]))
    leases = await stage.take(worker)
    assert [one.id for one in leases] == members
    await stage.store.settle(worker, [done(leases[0]), done(leases[1], None, "failed", NOTE)])
    assert (await stage.show(callback)).blockers == 2
    await stage.store.cancel(members[2], NOTE)
    await stage.store.settle(worker, [again(leases[2])])
    assert (await stage.show(callback)).blockers == 1
    assert await stage.take(worker) == []
    await stage.store.settle(worker, [done(leases[3], 5)])
    lease = await stage.take_one(worker)
    assert (lease.id, input_of(lease)) == (callback, "none")
    found = await stage.store.members(callback)
    assert [(one.id, one.state) for one in found] == list(
        zip(members, ["done", "failed", "canceled", "done"], strict=True)
    )
    assert found[3].result == 5
    assert await stage.store.member_counts(callback) == {"done": 2, "failed": 1, "canceled": 1}


async def test_members_that_end_in_one_batch_are_all_counted(stage: Stage) -> None:
    worker = await stage.worker()
    callback, *_ = await put(stage, group(task("report"), [task("m") for _ in range(6)]))
    a, b, c, d, e, f = await stage.take(worker)
    await stage.store.cancel(f.id, NOTE)
    batch: list[Settlement] = [done(a), done(b), done(c, 1), done(d, None, "failed", NOTE), done(e, 2), again(f)]
    assert await stage.store.settle(worker, batch) == set()
    assert (await stage.take_one(worker)).id == callback


async def test_plain_tasks_in_the_same_batch_end_as_ever(stage: Stage) -> None:
    worker = await stage.worker()
    plain = await stage.put(3)
    first, second = await put_chain(stage, "fetch", "parse")
    leases = await stage.take(worker)
    lost = await stage.store.settle(worker, [*map(done, leases), done(Lease(10**9, 1, 1, "x", "default", "[]"))])
    assert lost == {10**9}
    assert [(await stage.show(one)).state for one in (*plain, first)] == ["done"] * 4
    assert (await stage.take_one(worker)).id == second


async def test_an_empty_group_is_due_at_once(stage: Stage) -> None:
    worker = await stage.worker()
    [callback] = await put(stage, group(task("report"), []))
    assert (await stage.take_one(worker)).id == callback
    assert await stage.store.members(callback) == []
    assert await stage.store.member_counts(callback) == {}


async def test_chains_lead_to_a_group_and_a_group_leads_to_a_task(stage: Stage) -> None:
    """report waits for a → b and c → d; mail takes what report returns. a fails: b is canceled, and counts."""
    worker = await stage.worker()
    flow = [FlowTask(task("mail"), None, "result"), FlowTask(task("report"), 0, "end")]
    flow += chain(task("a"), task("b"), then=1, start=2)
    flow += chain(task("c"), task("d"), then=1, start=4)
    mail, report, b, a, d, c = await put(stage, flow)
    first, second = await stage.take(worker)
    assert {first.id, second.id} == {a, c}
    of_a, of_c = sorted((first, second), key=lambda one: one.name)
    await stage.store.settle(worker, [done(of_a, None, "failed"), done(of_c, 3)])
    assert ((await stage.show(b)).state, (await stage.show(report)).blockers) == ("canceled", 1)
    lease = await stage.take_one(worker)
    assert (lease.id, input_of(lease)) == (d, 3)
    await stage.store.settle(worker, [done(lease)])
    lease = await stage.take_one(worker)
    assert lease.id == report
    await stage.store.settle(worker, [done(lease, "text")])
    lease = await stage.take_one(worker)
    assert (lease.id, input_of(lease)) == (mail, "text")


async def test_a_long_chain_is_canceled_to_its_end(stage: Stage) -> None:
    first, *rest = await put_chain(stage, *["step"] * 1_500)
    assert await stage.store.cancel(first, NOTE) == "canceled"
    states = {one.state for one in (await stage.store.info(rest)).values()}
    assert states == {"canceled"}


async def test_delays_begin_when_a_task_waits_for_no_other(stage: Stage) -> None:
    worker = await stage.worker()
    ids = await put(stage, chain(task("fetch"), task("parse", delay_s=HOUR_S)))
    await stage.pass_time(2 * HOUR_S)
    assert (await stage.take_one(worker)).id == ids[1]
    assert (await stage.show(ids[0])).blockers == 1
    await stage.store.cancel(ids[1], NOTE)
    ids = await put(stage, chain(task("fetch"), task("parse", delay_s=HOUR_S)))
    await stage.store.settle(worker, [done(await stage.take_one(worker))])
    assert await stage.due_in_s(ids[0]) == pytest.approx(HOUR_S, abs=60)
    assert await stage.take(worker) == []
    await stage.pass_time(HOUR_S + 1)
    assert (await stage.take_one(worker)).id == ids[0]


async def test_a_blocked_task_that_is_made_due_goes_on_waiting_but_not_for_its_delay(stage: Stage) -> None:
    worker = await stage.worker()
    ids = await put(stage, chain(task("fetch"), task("parse", delay_s=HOUR_S)))
    assert await stage.store.revise([Revision(task_id=ids[0], hurry=True, only_queued=True)]) == [ids[0]]
    lease = await stage.take_one(worker)
    assert lease.id == ids[1]
    await stage.store.settle(worker, [done(lease)])
    assert (await stage.take_one(worker)).id == ids[0]


async def test_limits_and_priorities_hold_for_tasks_that_waited_for_others(stage: Stage) -> None:
    worker = await stage.worker()
    flow = group(task("report", priority=5, limit=Limit("k", running=1)), [task("m")])
    callback, _ = await put(stage, flow)
    await stage.store.settle(worker, [done(await stage.take_one(worker))])
    await stage.put(2)
    await stage.put(1, limit=Limit("k", running=1))
    leases = await stage.take(worker)
    assert [one.id for one in leases if one.limit_key == "k"] == [callback]
    assert leases[0].id == callback


async def test_a_cancel_of_a_blocked_task_cancels_the_rest_and_leaves_those_before(stage: Stage) -> None:
    worker = await stage.worker()
    first, second, third = await put_chain(stage, "fetch", "parse", "store")
    assert await stage.store.cancel(second, NOTE) == "canceled"
    assert (await stage.show(third)).cancel_reason == f"task {second} (parse), which comes before it, was canceled"
    lease = await stage.take_one(worker)
    assert lease.id == first
    assert await stage.store.settle(worker, [done(lease)]) == set()
    assert await stage.take(worker) == []


async def test_a_callback_that_was_canceled_stays_canceled(stage: Stage) -> None:
    worker = await stage.worker()
    callback, *members = await put(stage, group(task("report"), [task("m"), task("m")]))
    assert await stage.store.cancel(callback, NOTE) == "canceled"
    assert await stage.store.settle(worker, list(map(done, await stage.take(worker)))) == set()
    assert await stage.take(worker) == []
    assert {(await stage.show(one)).state for one in members} == {"done"}


async def test_a_member_that_is_retried_after_its_end_tells_nothing_when_it_ends_again(stage: Stage) -> None:
    worker = await stage.worker()
    callback, *members = await put(stage, group(task("report"), [task("m"), task("m")]))
    first, second = await stage.take(worker)
    await stage.store.settle(worker, [done(first, None, "failed")])
    assert await stage.store.retry(members[0], NOTE)
    await stage.store.settle(worker, [done(await stage.take_one(worker))])
    shown = await stage.show(callback)
    assert (shown.state, shown.blockers) == ("queued", 1)
    await stage.store.settle(worker, [done(second)])
    assert (await stage.take_one(worker)).id == callback
    assert await stage.store.member_counts(callback) == {"done": 2}


async def test_a_chain_goes_on_where_its_tasks_are_retried_one_after_the_other(stage: Stage) -> None:
    worker = await stage.worker()
    first, second = await put_chain(stage, "fetch", "parse")
    await stage.store.settle(worker, [done(await stage.take_one(worker), None, "failed")])
    assert await stage.store.retry(first, NOTE)
    await stage.store.settle(worker, [done(await stage.take_one(worker), [4])])
    assert (await stage.show(second)).state == "canceled"
    assert await stage.store.retry(second, NOTE)
    lease = await stage.take_one(worker)
    assert (lease.id, input_of(lease)) == (second, [4])
    await stage.store.settle(worker, [done(lease, None, "failed")])
    assert await stage.store.retry(second, NOTE)
    assert input_of(await stage.take_one(worker)) == [4]


async def test_a_task_that_is_retried_without_a_result_before_it_has_no_input(stage: Stage) -> None:
    worker = await stage.worker()
    _, second = await put_chain(stage, "fetch", "parse")
    await stage.store.settle(worker, [done(await stage.take_one(worker), None, "failed")])
    assert await stage.store.retry(second, NOTE)
    assert input_of(await stage.take_one(worker)) == "none"


async def test_a_settlement_that_is_lost_tells_nothing_and_one_that_is_repeated_tells_once(stage: Stage) -> None:
    zombie, worker = await stage.worker("zombie"), await stage.worker(lease_s=HOUR_S)
    callback, *_ = await put(stage, group(task("report"), [task("m"), task("m")]))
    stale = await stage.take(zombie)
    await stage.bury(zombie)
    assert await stage.store.settle(zombie, list(map(done, stale))) == {one.id for one in stale}
    assert (await stage.show(callback)).blockers == 2
    first, second = await stage.take(worker)
    assert await stage.store.settle(worker, [done(first)]) == set()
    assert await stage.store.settle(worker, [done(first)]) == {first.id}
    assert (await stage.show(callback)).blockers == 1
    assert await stage.store.settle(worker, [done(second), done(second)]) in (set(), {second.id})
    assert (await stage.take_one(worker)).id == callback


async def test_a_task_that_kills_its_workers_ends_its_chain_and_counts_for_its_group(stage: Stage) -> None:
    first, second = await put_chain(stage, "poison", "parse")
    callback, _ = await put(stage, group(task("report"), [task("poison")]))
    for _ in range(3):
        worker = await stage.worker()
        await stage.take(worker)
        await stage.bury(worker)
    assert (await stage.show(first)).state == "failed"
    assert (await stage.show(second)).cancel_reason == f"task {first} (poison), which comes before it, failed"
    assert (await stage.take_one(await stage.worker())).id == callback


async def test_a_key_that_is_taken_enqueues_nothing(stage: Stage) -> None:
    [holder] = await stage.put(1, key="k")
    flow = chain(task("fetch"), task("parse", key="k"))
    answers = await stage.store.enqueue_flow(flow)
    assert [(one.id, one.is_new) for one in answers] == [(holder, False), (0, False)]
    assert [one.id for one in (await stage.store.tasks(TaskFilter())).tasks] == [holder]
    await stage.store.cancel(holder, NOTE)
    assert all(one.is_new for one in await stage.store.enqueue_flow(flow))


@pytest.mark.parametrize(
    "flow",
    [
        [FlowTask(task("a")), FlowTask(task("b"), 0)],
        [FlowTask(task("b"), 1), FlowTask(task("a"), None, "end")],
        [FlowTask(task("a"), None, "result")],
        [FlowTask(NewTask(name="a", args="[]"), None, "result"), FlowTask(task("b"), 0)],
        [FlowTask(task("a", key="k"), None, "end"), FlowTask(task("b", key="k"), 0)],
        [FlowTask(task("a", cancels_itself=True))],
    ],
)
async def test_what_is_not_a_flow_is_refused(stage: Stage, flow: list[FlowTask]) -> None:
    with pytest.raises(BadInput):
        await stage.store.enqueue_flow(flow)
    assert (await stage.store.tasks(TaskFilter())).tasks == ()


async def test_blocked_tasks_are_queued_and_wait_in_no_queue(stage: Stage) -> None:
    await put_chain(stage, "fetch", "parse")
    await put_chain(stage, "fetch", "parse", queue="other")
    assert [(one.queue, one.ready, one.waiting) for one in await stage.store.queues()] == [
        ("default", 1, 0),
        ("other", 1, 0),
    ]
    assert len((await stage.store.tasks(TaskFilter(state="queued"))).tasks) == 4


async def test_members_come_in_pages(stage: Stage) -> None:
    callback, *members = await put(stage, group(task("report"), [task("m") for _ in range(5)]))
    await stage.store.cancel(members[1], NOTE)
    first = await stage.store.members(callback, limit=3)
    assert [one.id for one in first] == members[:3]
    assert [one.id for one in await stage.store.members(callback, after=members[2], limit=3)] == members[3:]


async def test_a_group_with_more_members_than_one_statement_carries(stage: Stage) -> None:
    callback, *members = await put(stage, group(task("report"), [task("m") for _ in range(5_500)]))
    assert (await stage.show(callback)).blockers == 5_500
    assert members == sorted(members)
    assert {one.then_id for one in (await stage.store.info(members[::500])).values()} == {callback}
    assert await stage.store.member_counts(callback) == {"queued": 5_500}


async def test_large_results_are_taken(stage: Stage) -> None:
    worker = await stage.worker()
    _, second = await put_chain(stage, "fetch", "parse")
    text = "é" * 500_000
    await stage.store.settle(worker, [done(await stage.take_one(worker), text)])
    lease = await stage.take_one(worker)
    assert (lease.id, input_of(lease)) == (second, text)
    assert msgspec.json.decode(lease.args)["args"] == []
    assert json(input_of(lease)) == json(text)


async def test_a_task_that_takes_what_others_bring_is_not_replaced_and_lets_go_of_its_key(stage: Stage) -> None:
    worker = await stage.worker()
    second, first = await put(stage, chain(task("fetch"), task("parse", key="k")))
    [answer] = await stage.store.enqueue([NewTask(name="other", key="k", unique=Unique("replace"))])
    assert (answer.is_new, (await stage.show(second)).key) == (True, None)
    lease, other = sorted(await stage.take(worker), key=lambda one: one.id)
    assert (lease.id, other.id) == (first, answer.id)
    await stage.store.settle(worker, [done(lease, 1)])
    lease = await stage.take_one(worker)
    assert (lease.id, lease.name, input_of(lease)) == (second, "parse", 1)


async def test_queues_count_what_waits_for_others(stage: Stage) -> None:
    """Tasks of chains and groups, each in its own queue; also in a queue that has no other tasks."""
    first, *_ = await put_chain(stage, "a", "b", "c")
    await put(stage, group(task("end", queue="mail"), [task("member", delay_s=60.0)]))
    counts = {one.queue: (one.ready, one.waiting, one.blocked) for one in await stage.store.queues()}
    assert counts == {"default": (1, 1, 2), "mail": (0, 0, 1)}
    worker = await stage.worker()
    lease = await stage.take_one(worker)
    assert lease.id == first
    await stage.store.settle(worker, [done(lease, 1)])
    counts = {one.queue: (one.ready, one.waiting, one.blocked) for one in await stage.store.queues()}
    assert counts == {"default": (1, 1, 1), "mail": (0, 0, 1)}
