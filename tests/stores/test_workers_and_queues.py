"""Who works here, since when and on how much; what waits where."""

import pytest

from everpoll.stores.contract import COUNT_LIMIT, NewTask, TaskFilter, WorkerInfo
from stores.stage import HOUR_S, LEASE_S, Stage, card_of, done

DAY_S = 86_400.0


async def seen(stage: Stage) -> dict[int, WorkerInfo]:
    return {one.incarnation: one for one in await stage.store.workers()}


async def waiting(stage: Stage) -> list[tuple[str, int, int, int]]:
    return [(one.queue, one.ready, one.waiting, one.running) for one in await stage.store.queues()]


async def test_a_worker_is_shown_as_it_signed_on(stage: Stage) -> None:
    card = card_of("änna", host="h1", pid=4_194_303, queues=("a", "b c"), slots=7, version="1.2.3")
    await stage.store.sign_on(card, LEASE_S)
    [shown] = await stage.store.workers()
    assert (shown.incarnation, shown.label, shown.host, shown.pid) == (card.incarnation, "änna", "h1", 4_194_303)
    assert (shown.queues, shown.slots, shown.version) == (("a", "b c"), 7, "1.2.3")
    assert (shown.is_alive, shown.stopped_at, shown.running) == (True, None, 0)
    assert shown.beat_age_s == pytest.approx(0, abs=30)
    assert shown.started_at.tzinfo is not None


async def test_signing_on_may_be_repeated(stage: Stage) -> None:
    """The answer may have got lost: the second time is the same worker."""
    card = card_of()
    await stage.store.sign_on(card, LEASE_S)
    await stage.store.sign_on(card, LEASE_S)
    assert [one.incarnation for one in await stage.store.workers()] == [card.incarnation]
    lease = await stage.running(card.incarnation)
    assert await stage.store.settle(card.incarnation, [done(lease)]) == set()


async def test_incarnations_of_63_bits_are_kept(stage: Stage) -> None:
    for incarnation in (1, 2**31, 2**63 - 1):
        await stage.store.sign_on(card_of(incarnation=incarnation), LEASE_S)
        lease = await stage.running(incarnation)
        assert (await stage.show(lease.id)).incarnation == incarnation
        assert await stage.store.settle(incarnation, [done(lease)]) == set()
    assert set(await seen(stage)) == {1, 2**31, 2**63 - 1}


async def test_equal_labels_are_different_workers(stage: Stage) -> None:
    """Pods that are called the same share nothing."""
    first, second = await stage.worker("pod-1"), await stage.worker("pod-1")
    lease = await stage.running(first)
    assert await stage.store.settle(second, [done(lease)]) == {lease.id}
    assert {one.running for one in (await seen(stage)).values()} == {0, 1}


async def test_running_tasks_are_counted(stage: Stage) -> None:
    busy, idle = await stage.worker(), await stage.worker()
    await stage.put(3)
    leases = await stage.take(busy)
    assert {one: shown.running for one, shown in (await seen(stage)).items()} == {busy: 3, idle: 0}
    await stage.store.settle(busy, [done(leases[0])])
    assert (await seen(stage))[busy].running == 2


async def test_running_tasks_are_counted_over_hundreds_of_priorities(stage: Stage) -> None:
    """Leased a moment ago, and beside more ready tasks of each priority than run."""
    busy = await stage.worker()
    started = await stage.store.enqueue([NewTask(name="job", priority=-nth) for nth in range(300) for _ in range(4)])
    leases = await stage.take(busy, 500) + await stage.take(busy, 500) + await stage.take(busy, 500)
    assert len(leases) == len(started)
    await stage.store.enqueue([NewTask(name="job", priority=nth - 300) for nth in range(500) for _ in range(6)])
    [shown] = await stage.store.queues()
    assert (shown.running, shown.ready, shown.has_more_running) == (1200, 3000, False)
    assert (await seen(stage))[busy].running == 1200
    page = await stage.store.tasks(TaskFilter(state="running"), 1000)
    rest = await stage.store.tasks(TaskFilter(state="running"), 1000, page.after)
    assert len(page.tasks) + len(rest.tasks) == 1200


async def test_running_tasks_are_counted_behind_tasks_of_higher_priorities(stage: Stage) -> None:
    """The lowest priority of all runs: it began when nothing else was there."""
    busy = await stage.worker()
    lowest = [(await stage.running(busy, priority=-1000)).id for _ in range(5)]
    await stage.store.enqueue([NewTask(name="job", priority=nth) for nth in range(300) for _ in range(5)])
    [shown] = await stage.store.queues()
    assert (shown.running, (await seen(stage))[busy].running) == (5, 5)
    page = await stage.store.tasks(TaskFilter(state="running"))
    assert sorted(one.id for one in page.tasks) == sorted(lowest)


async def test_thousands_of_one_priority_are_counted(stage: Stage) -> None:
    busy = await stage.worker()
    await stage.put(2600)
    for _ in range(5):
        assert len(await stage.take(busy, 500)) == 500
    assert [(one.ready, one.running) for one in await stage.store.queues()] == [(100, 2500)]
    assert (await seen(stage))[busy].running == 2500


async def test_the_age_of_the_last_beat(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.pass_time(50)
    before = (await seen(stage))[worker]
    assert before.beat_age_s == pytest.approx(50, abs=30)
    await stage.beat(worker)
    after = (await seen(stage))[worker]
    assert after.beat_age_s == pytest.approx(0, abs=30)
    assert (after.beat_at - after.started_at).total_seconds() == pytest.approx(50, abs=30)


async def test_a_silent_worker_is_not_alive_and_a_buried_one_has_stopped(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.pass_time(LEASE_S + 1)
    shown = (await seen(stage))[worker]
    assert (shown.is_alive, shown.stopped_at) == (False, None)
    await stage.declare_dead(await stage.worker("finder"), worker)
    shown = (await seen(stage))[worker]
    assert not shown.is_alive
    assert shown.stopped_at is not None


async def test_a_worker_that_signed_off_is_shown_for_a_day(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.store.sign_off(worker)
    shown = (await seen(stage))[worker]
    assert not shown.is_alive
    assert shown.stopped_at is not None
    await stage.pass_time(DAY_S - 60)
    assert worker in await seen(stage)
    await stage.pass_time(120)
    assert worker not in await seen(stage)


async def test_sign_off_may_be_repeated(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.store.sign_off(worker)
    before = (await seen(stage))[worker].stopped_at
    await stage.store.sign_off(worker)
    await stage.store.sign_off(424242)
    assert (await seen(stage))[worker].stopped_at == before


async def test_what_waits_where(stage: Stage) -> None:
    worker = await stage.worker()
    assert await waiting(stage) == []
    await stage.put(3, queue="b")
    await stage.take(worker, 1, "b")
    await stage.put(2, delay_s=HOUR_S, queue="b")
    await stage.put(1, queue="a ä")
    await stage.put(1, delay_s=60, queue="c")
    await stage.ended(worker, queue="d")
    assert await waiting(stage) == [("a ä", 1, 0, 0), ("b", 2, 2, 1), ("c", 0, 1, 0)]


async def test_what_has_fallen_due_is_ready_before_anybody_looked(stage: Stage) -> None:
    await stage.put(2, delay_s=30)
    await stage.pass_time(31)
    assert await waiting(stage) == [("default", 2, 0, 0)]


async def test_counts_end_at_their_limit(stage: Stage) -> None:
    """Beyond it nobody counts: exactness would cost a scan of everything."""
    await stage.put(COUNT_LIMIT + 50)
    await stage.put(COUNT_LIMIT - 1, delay_s=HOUR_S)
    [shown] = await stage.store.queues()
    assert (shown.ready, shown.waiting, shown.running) == (COUNT_LIMIT, COUNT_LIMIT - 1, 0)
