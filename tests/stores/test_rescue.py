"""What a dead worker held is taken back, what a live one holds is left alone, and what kills workers ends as failed."""

from everpoll.stores.contract import RESCUE_LIMIT, Again, Beat, NewTask
from stores.stage import HOUR_S, Stage, again, done, whats

CANCEL = '{"what":"cancel"}'


async def test_a_dead_workers_tasks_are_due_again(stage: Stage) -> None:
    dead, witness = await stage.worker("dead"), await stage.worker("witness")
    ids = await stage.put(3)
    await stage.take(dead)
    assert await stage.declare_dead(witness, dead) == 3
    shown = await stage.store.info(ids)
    assert {(one.state, one.incarnation, one.rescues, one.attempt) for one in shown.values()} == {
        ("queued", None, 1, 0)
    }
    leases = await stage.take(witness)
    assert [(one.id, one.sequence, one.attempt, one.rescues) for one in leases] == [(one, 2, 1, 1) for one in ids]


async def test_only_once(stage: Stage) -> None:
    dead, witness = await stage.worker(), await stage.worker()
    await stage.running(dead)
    assert [await stage.rescue(witness, [(dead, 0)]) for _ in range(3)] == [1, 0, 0]


async def test_the_trail_tells_of_the_rescue(stage: Stage) -> None:
    dead = await stage.worker("anna")
    lease = await stage.running(dead)
    await stage.bury(dead)
    shown = await stage.show(lease.id)
    [entry] = shown.trail
    assert (entry["what"], entry["by"], entry["worker"], entry["rescues"]) == ("rescue", "rescue", "anna", 1)
    assert isinstance(entry["at"], int | float)
    assert entry["why"]
    assert shown.worker == "anna"


async def test_a_beat_takes_nothing_from_other_workers_however_long_they_are_silent(stage: Stage) -> None:
    """No clock decides about life and death: neither the store's, nor one that steps."""
    silent, witness = await stage.worker(), await stage.worker()
    lease = await stage.running(silent)
    await stage.pass_time(10 * HOUR_S)
    beat = await stage.beat(witness)
    assert (beat.is_alive, beat.rescued, beat.has_leftovers) == (True, 0, False)
    assert await stage.rescue(witness) == 0
    assert (await stage.show(lease.id)).incarnation == silent
    assert (await stage.beat(silent)).is_alive
    assert await stage.store.settle(silent, [done(lease)]) == set()


async def test_a_beat_shows_the_beat_numbers_and_leases_of_the_others(stage: Stage) -> None:
    first, second = await stage.worker(lease_s=500), await stage.worker(lease_s=50)
    gone = await stage.worker()
    await stage.store.sign_off(gone)
    [before] = (await stage.beat(second, lease_s=50)).others
    assert (before.incarnation, before.lease_s) == (first, 500)
    for _ in range(2):
        await stage.beat(first, lease_s=400)
    [after] = (await stage.beat(second, lease_s=50)).others
    assert (after.incarnation, after.beats, after.lease_s) == (first, before.beats + 2, 400)


async def test_a_worker_that_has_beaten_since_it_was_seen_standing_still_is_left_alone(stage: Stage) -> None:
    """However late the verdict arrives: it may have hung in the network."""
    worker, witness = await stage.worker(), await stage.worker()
    lease = await stage.running(worker)
    [seen] = (await stage.beat(witness)).others
    assert (await stage.beat(worker)).is_alive
    assert await stage.rescue(witness, [(worker, seen.beats)]) == 0
    assert (await stage.show(lease.id)).incarnation == worker
    assert (await stage.beat(worker)).is_alive


async def test_a_dead_worker_is_told(stage: Stage) -> None:
    """And its beat rescues nothing, nor brings it back to life."""
    dead, witness = await stage.worker(), await stage.worker()
    await stage.running(dead)
    await stage.declare_dead(witness, dead)
    assert [await stage.beat(dead) for _ in range(2)] == [Beat(is_alive=False)] * 2
    assert not (await stage.beat(424242)).is_alive


async def test_a_worker_that_signed_off_is_not_alive(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.store.sign_off(worker)
    assert not (await stage.beat(worker)).is_alive


async def test_what_a_worker_left_behind_at_sign_off_is_rescued(stage: Stage) -> None:
    """It should have handed everything back; where it could not, no task may stay leased by a worker that is gone."""
    worker, witness = await stage.worker(), await stage.worker()
    lease = await stage.running(worker)
    await stage.store.sign_off(worker)
    assert (await stage.beat(witness)).has_leftovers
    assert await stage.rescue(witness) == 1
    assert (await stage.show(lease.id)).state == "queued"
    assert not (await stage.beat(witness)).has_leftovers


async def test_a_rescue_costs_no_attempt_and_a_failure_does(stage: Stage) -> None:
    worker = await stage.worker(lease_s=HOUR_S)
    lease = await stage.running(worker)
    await stage.store.settle(worker, [again(lease)])
    dead = await stage.worker()
    assert (await stage.take_one(dead)).attempt == 2
    await stage.bury(dead)
    lease = await stage.take_one(worker)
    assert (lease.attempt, lease.rescues, lease.sequence) == (2, 1, 3)


async def test_a_task_that_kills_its_workers_is_poison(stage: Stage) -> None:
    task_id = await stage.put_one(key="k")
    for rescues in range(1, RESCUE_LIMIT + 1):
        assert (await stage.show(task_id)).state == "queued"
        victim = await stage.worker(f"victim {rescues}")
        await stage.take_one(victim)
        await stage.bury(victim)
        assert (await stage.show(task_id)).rescues == rescues
    shown = await stage.show(task_id)
    assert (shown.state, shown.attempt) == ("failed", 0)
    assert whats(shown) == ["rescue"] * (RESCUE_LIMIT - 1) + ["failed"]
    assert shown.trail[-1]["worker"] == f"victim {RESCUE_LIMIT}"
    assert shown.trail[-1]["why"]
    assert shown.ended_at is not None
    [anew] = await stage.store.enqueue([NewTask(name="job", key="k")])
    assert anew.is_new


async def test_a_rescue_names_the_tasks_that_it_ends(stage: Stage) -> None:
    """Those that have lost too many workers, and those that are to be canceled; not those that come back."""
    poison = await stage.put_one()
    witness = await stage.worker(lease_s=HOUR_S)
    for _ in range(RESCUE_LIMIT - 1):
        await stage.take_one(victim := await stage.worker())
        await stage.declare_dead(witness, victim)
    victim = await stage.worker()
    canceled, _ = await stage.put(2)
    assert len(await stage.take(victim, 3)) == 3
    await stage.store.cancel(canceled, "{}")
    await stage.store.sign_off(victim)
    rescued = await stage.rescued(witness)
    assert (rescued.tasks, sorted(rescued.ended)) == (3, [poison, canceled])


async def test_the_poison_counts_as_rescued(stage: Stage) -> None:
    """`rescued` says that something happened, ended ones included."""
    task_id = await stage.put_one()
    witness = await stage.worker(lease_s=HOUR_S)
    counts = []
    for _ in range(RESCUE_LIMIT):
        await stage.take_one(victim := await stage.worker())
        counts.append(await stage.declare_dead(witness, victim))
    assert counts == [1] * RESCUE_LIMIT
    assert (await stage.show(task_id)).state == "failed"


async def test_a_canceled_task_of_a_dead_worker_ends_as_canceled(stage: Stage) -> None:
    dead = await stage.worker()
    lease = await stage.running(dead)
    other = await stage.running(dead)
    await stage.store.cancel(lease.id, CANCEL)
    await stage.bury(dead)
    shown = await stage.store.info([lease.id, other.id])
    assert [one.state for one in shown.values()] == ["canceled", "queued"]
    assert [one.rescues for one in shown.values()] == [1, 1]


async def test_a_canceled_task_past_its_deadline_ends_as_canceled(stage: Stage) -> None:
    worker = await stage.worker()
    lease = await stage.running(worker, timeout_s=30)
    await stage.store.cancel(lease.id, CANCEL)
    assert await stage.rescue(worker, overdue=[(lease.id, lease.sequence)]) == 1
    assert (await stage.show(lease.id)).state == "canceled"


async def test_a_worker_has_the_task_of_a_hung_handler_taken_back(stage: Stage) -> None:
    """It ends a handler at its deadline; where that does not help, it names the task, and only that one comes back."""
    worker = await stage.worker()
    hung = await stage.running(worker, timeout_s=30)
    fine = await stage.running(worker, timeout_s=300)
    assert await stage.rescue(worker, overdue=[(hung.id, hung.sequence)]) == 1
    shown = await stage.store.info([hung.id, fine.id])
    assert [one.state for one in shown.values()] == ["queued", "running"]
    assert (shown[hung.id].rescues, shown[hung.id].attempt, whats(shown[hung.id])) == (1, 0, ["rescue"])
    assert "deadline" in shown[hung.id].trail[0]["why"]
    lease = await stage.take_one(worker)
    assert (lease.id, lease.sequence) == (hung.id, hung.sequence + 1)
    assert await stage.store.settle(worker, [done(hung), done(fine)]) == {hung.id}


async def test_a_worker_can_name_only_its_own_tasks_as_overdue_under_their_current_lease(stage: Stage) -> None:
    worker, other = await stage.worker(), await stage.worker()
    lease = await stage.running(worker, timeout_s=30)
    assert await stage.rescue(other, overdue=[(lease.id, lease.sequence)]) == 0
    assert await stage.rescue(worker, overdue=[(lease.id, lease.sequence - 1)]) == 0
    assert (await stage.show(lease.id)).state == "running"


async def test_no_clock_ends_a_handler_that_its_worker_does_not_name(stage: Stage) -> None:
    worker, witness = await stage.worker(), await stage.worker()
    lease = await stage.running(worker, timeout_s=30)
    await stage.pass_time(HOUR_S)
    assert await stage.rescue(witness) == 0
    assert (await stage.show(lease.id)).state == "running"


async def test_the_beat_tells_which_running_tasks_are_to_be_canceled(stage: Stage) -> None:
    """Of those it asked about."""
    worker = await stage.worker()
    await stage.put(4)
    ids = [one.id for one in await stage.take(worker)]
    assert (await stage.beat(worker, ids)).canceled == ()
    await stage.store.cancel(ids[1], CANCEL)
    await stage.store.cancel(ids[3], CANCEL)
    assert set((await stage.beat(worker, ids)).canceled) == {ids[1], ids[3]}
    assert (await stage.beat(worker, ids[:3])).canceled == (ids[1],)
    assert (await stage.beat(worker)).canceled == ()


async def test_a_rescue_of_many(stage: Stage) -> None:
    dead = await stage.worker()
    ids = await stage.put(1200)
    for _ in range(3):
        await stage.take(dead, 500)
    witness = await stage.worker()
    assert await stage.declare_dead(witness, dead) == 1200
    found = [one.id for _ in range(3) for one in await stage.take(witness, 500)]
    assert sorted(found) == ids
    assert {len(one.trail) for one in (await stage.store.info(ids)).values()} == {1}


async def test_tasks_that_run_for_long_are_rescued_settled_and_canceled_as_others(stage: Stage) -> None:
    """A beat may move them to where looks do not meet them: nothing else may notice."""
    worker, witness = await stage.worker(), await stage.worker()
    await stage.put(5)
    leases = await stage.take(worker)
    await stage.pass_time(HOUR_S)
    await stage.beat(worker, [one.id for one in leases])
    await stage.put(1)
    [fresh] = await stage.take(worker)
    assert [(one.queue, one.ready, one.running) for one in await stage.store.queues()] == [("default", 0, 6)]
    assert {one.incarnation: one.running for one in await stage.store.workers()} == {worker: 6, witness: 0}
    ended, later, canceled, *lost = leases
    assert await stage.store.settle(worker, [done(ended), again(later, None, refund=True)]) == set()
    await stage.store.cancel(canceled.id, CANCEL)
    assert (await stage.beat(worker, [canceled.id])).canceled == (canceled.id,)
    assert await stage.declare_dead(witness, worker) == 4
    assert [one.id for one in await stage.take(witness)] == sorted([later.id, *(one.id for one in lost), fresh.id])
    assert (await stage.show(canceled.id)).state == "canceled"


async def test_a_task_that_has_come_through_and_remembers_something_is_no_poison(stage: Stage) -> None:
    """A watch that runs for days outlives many workers: only deaths in a row count."""
    victim = await stage.worker()
    lease = await stage.running(victim)
    for _ in range(RESCUE_LIMIT + 1):
        worker = await stage.worker()
        await stage.declare_dead(worker, victim)
        [lease] = await stage.take(worker)
        assert lease.rescues == 1
        assert await stage.store.settle(worker, [Again(lease.id, lease.sequence, refund=True, memory="{}")]) == set()
        [lease] = await stage.take(worker)
        assert lease.rescues == 0
        victim = worker
    assert (await stage.show(lease.id)).state == "running"
