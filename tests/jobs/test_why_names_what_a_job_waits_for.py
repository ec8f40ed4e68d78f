"""A job that waits for others says for which: the one before it in its chain, or the members of its group."""

from everpoll import Everpoll, Group
from everpoll.engine.why import why
from everpoll.engine.why_blocked import Predecessors, predecessors_of, why_blocked
from everpoll.stores.contract import TaskInfo, WorkerCard


async def said(app: Everpoll, task_id: int) -> tuple[str, tuple[str, ...]]:
    store = await app.store()
    info: TaskInfo = (await store.info([task_id]))[task_id]
    leading = await predecessors_of(store, info)
    assert leading is not None
    answer = why_blocked(info, leading)
    return answer.verdict, answer.evidence


async def test_the_task_before_or_the_members_are_named(app: Everpoll) -> None:
    @app.job()
    async def fetch(url: str) -> None: ...

    @app.job(queue="reports")
    async def report(group: Group) -> None: ...

    chain = await fetch.call("a").then(fetch).then(fetch).enqueue()
    store = await app.store()
    (second,) = await store.members(chain.id)
    (first,) = await store.members(second.id)
    assert await said(app, second.id) == (f"It waits for task {first.id} (fetch), which is queued.", ())
    assert (await said(app, chain.id))[0] == f"It waits for task {second.id} (fetch), which waits for other tasks."
    card = WorkerCard(incarnation=7, label="w", host="h", pid=1, queues=("default",), slots=50, version="0")
    await store.sign_on(card, 60.0)
    await store.lease(7, {"default": 1}, 1)
    assert (await said(app, second.id))[0] == f"It waits for task {first.id} (fetch), which runs."

    group = await app.group([fetch.call("a"), fetch.call("b"), fetch.call("c")]).then(report).enqueue()
    members = await store.members(group.id)
    await store.cancel(members[0].id, '{"what":"cancel"}')
    verdict, evidence = await said(app, group.id)
    assert verdict == "It waits for 2 of 3 tasks of its group."
    named = [f"task {one.id} (fetch), which is queued" for one in members[1:]]
    assert evidence == ("1 canceled, 2 queued", *named)
    info = (await store.info([group.id]))[group.id]
    answer = why(info, await store.workers(), await store.queues(), (), info.due_at)
    assert answer.verdict == "It waits for 2 other tasks to end."
    await app.close()


async def test_a_task_that_waits_in_vain_says_so(app: Everpoll) -> None:
    """A worker of an earlier release has ended what it waits for, and told nothing."""

    @app.job()
    async def fetch(url: str) -> None: ...

    task = await fetch.call("a").then(fetch).enqueue()
    answer = why_blocked(await task.info(), Predecessors({"done": 1}, ()))
    assert answer.verdict.startswith("It waits for a task that has ended without telling it")
    assert answer.advice is not None
    assert f"everpoll jobs cancel {task.id}" in answer.advice
    await app.close()
