"""A job that waits behind a limit says so: which key, how many run or have started, since when, and what comes next."""

from datetime import timedelta

from everpoll import Everpoll, Rate
from everpoll.engine.why import behind_limit, why
from everpoll.stores.contract import Limit, LimitInfo, WorkerCard


async def test_a_waiting_job_names_its_key(app: Everpoll) -> None:
    @app.job(concurrency=2, per="tenant")
    async def send(tenant: str) -> None: ...

    @app.job(rate=Rate(1, per="1m"))
    async def call() -> None: ...

    tasks = await send.enqueue_many([("acme",)] * 4)
    calls = await call.enqueue_many([()] * 2)
    store = await app.store()
    card = WorkerCard(incarnation=7, label="w", host="h", pid=1, queues=("default",), slots=50, version="0")
    await store.sign_on(card, 60.0)
    leased = {one.id for one in (await store.lease(7, {"default": 50}, 50)).leases}
    answer = []
    for task in (tasks[3], calls[1]):
        info = await task.info()
        assert info.limit is not None
        assert task.id not in leased
        at_key = await store.limit(info.limit.key)
        now = info.due_at + timedelta(seconds=5)
        answer.append(why(info, await store.workers(), await store.queues(), (), now, (), at_key))
    assert answer[0].verdict == "It waits behind the limit of its key 'send/acme': 2 of 2 run."
    assert "2 tasks of this key are due and wait; keys take turns" in answer[0].evidence
    assert any("of those that run, the first one started" in line for line in answer[0].evidence)
    assert answer[1].verdict.startswith(
        "It waits behind the rate of its key 'call': 1 have started within 1m; the next"
    )
    assert "may start in 5" in answer[1].verdict
    await app.close()


async def test_a_limit_with_room_is_not_in_the_way(app: Everpoll) -> None:
    """Then something else is the reason."""
    limit = Limit("k", 3, 5, 60.0)
    info = LimitInfo(key="k", waiting=1, running=1)
    task = await app.job(name="x", concurrency=3)(lambda: None).enqueue()
    assert behind_limit(limit, info, (await task.info()).due_at) is None
    await app.close()
