"""What a dead worker held is taken back, what a live one holds is left alone, and what kills workers ends as failed."""

from everpoll.stores.contract import DEADLINE_GRACE_S, RESCUE_LIMIT, Again, Beat, NewTask
from stores.stage import HOUR_S, LEASE_S, Stage, again, done, whats

CANCEL = '{"what":"cancel"}'


async def test_a_dead_workers_tasks_are_due_again(stage: Stage) -> None:
    dead, witness = await stage.worker("dead"), await stage.worker("witness", HOUR_S)
    ids = await stage.put(3)
    await stage.take(dead)
    await stage.pass_time(LEASE_S + 1)
    beat = await stage.beat(witness)
    assert (beat.is_alive, beat.rescued) == (True, 3)
    shown = await stage.store.info(ids)
    assert {(one.state, one.incarnation, one.rescues, one.attempt) for one in shown.values()} == {
        ("queued", None, 1, 0)
    }
    leases = await stage.take(witness)
    assert [(one.id, one.sequence, one.attempt, one.rescues) for one in leases] == [(one, 2, 1, 1) for one in ids]


async def test_only_once(stage: Stage) -> None:
    dead, witness = await stage.worker(), await stage.worker(lease_s=HOUR_S)
    await stage.running(dead)
    await stage.pass_time(LEASE_S + 1)
    assert [(await stage.beat(witness)).rescued for _ in range(3)] == [1, 0, 0]


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


async def test_a_live_workers_tasks_are_left_alone(stage: Stage) -> None:
    """For as long as it beats, however long its tasks run."""
    worker, witness = await stage.worker(), await stage.worker()
    lease = await stage.running(worker)
    for _ in range(5):
        await stage.pass_time(LEASE_S - 10)
        beats = [await stage.beat(one) for one in (worker, witness)]
        assert [(beat.is_alive, beat.rescued) for beat in beats] == [(True, 0), (True, 0)]
    assert (await stage.show(lease.id)).incarnation == worker
    assert await stage.store.settle(worker, [done(lease)]) == set()


async def test_a_worker_lives_as_long_as_its_own_lease(stage: Stage) -> None:
    long, short = await stage.worker(lease_s=500), await stage.worker(lease_s=50)
    witness = await stage.worker(lease_s=HOUR_S)
    kept = await stage.running(long)
    lost = await stage.running(short)
    await stage.pass_time(60)
    assert (await stage.beat(witness)).rescued == 1
    assert (await stage.show(kept.id)).state == "running"
    assert (await stage.show(lost.id)).state == "queued"
    await stage.beat(long, lease_s=50)
    await stage.pass_time(60)
    assert (await stage.beat(witness)).rescued == 1
    assert (await stage.show(kept.id)).state == "queued"


async def test_a_late_beat_that_comes_before_the_rescue_saves_the_worker(stage: Stage) -> None:
    worker, witness = await stage.worker(), await stage.worker()
    lease = await stage.running(worker)
    await stage.pass_time(HOUR_S)
    assert (await stage.beat(worker)).is_alive
    assert (await stage.beat(witness)).rescued == 0
    assert (await stage.show(lease.id)).state == "running"


async def test_a_dead_worker_is_told(stage: Stage) -> None:
    """And its beat rescues nothing, nor brings it back to life."""
    dead, witness = await stage.worker(), await stage.worker()
    await stage.running(dead)
    await stage.pass_time(LEASE_S + 1)
    await stage.beat(witness)
    assert [await stage.beat(dead) for _ in range(2)] == [Beat(is_alive=False)] * 2
    assert not (await stage.beat(424242)).is_alive


async def test_a_worker_that_signed_off_is_not_alive(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.store.sign_off(worker)
    assert not (await stage.beat(worker)).is_alive


async def test_what_a_worker_left_behind_at_sign_off_is_rescued(stage: Stage) -> None:
    """It should have handed everything back; where it could not, nothing may stay leased by nobody."""
    worker, witness = await stage.worker(), await stage.worker()
    lease = await stage.running(worker)
    await stage.store.sign_off(worker)
    assert (await stage.beat(witness)).rescued == 1
    assert (await stage.show(lease.id)).state == "queued"


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


async def test_the_poison_counts_as_rescued(stage: Stage) -> None:
    """`rescued` says that something happened, ended ones included."""
    task_id = await stage.put_one()
    witness = await stage.worker(lease_s=HOUR_S)
    counts = []
    for _ in range(RESCUE_LIMIT):
        await stage.take_one(await stage.worker())
        await stage.pass_time(LEASE_S + 1)
        counts.append((await stage.beat(witness, lease_s=HOUR_S)).rescued)
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
    worker = await stage.worker(lease_s=HOUR_S)
    lease = await stage.running(worker, timeout_s=30)
    await stage.store.cancel(lease.id, CANCEL)
    await stage.beat(worker, [lease.id], HOUR_S, overdue_s=30)
    await stage.pass_time(30 + DEADLINE_GRACE_S + 1)
    await stage.beat(await stage.worker("witness"))
    assert (await stage.show(lease.id)).state == "canceled"


async def test_a_hung_handler_is_taken_from_a_live_worker(stage: Stage) -> None:
    """Its worker ends it at the deadline; only where that does not help, the rescue does."""
    worker, witness = await stage.worker(lease_s=HOUR_S), await stage.worker(lease_s=HOUR_S)
    hung = await stage.running(worker, timeout_s=30)
    fine = await stage.running(worker, timeout_s=300)
    endless = await stage.running(worker)
    await stage.beat(worker, [hung.id, fine.id, endless.id], HOUR_S, overdue_s=30)
    await stage.pass_time(31)
    assert (await stage.beat(witness)).rescued == 0
    await stage.pass_time(DEADLINE_GRACE_S)
    assert (await stage.beat(witness)).rescued == 1
    shown = await stage.store.info([hung.id, fine.id, endless.id])
    assert [one.state for one in shown.values()] == ["queued", "running", "running"]
    assert (shown[hung.id].rescues, shown[hung.id].attempt, whats(shown[hung.id])) == (1, 0, ["rescue"])
    assert "deadline" in shown[hung.id].trail[0]["why"]
    assert await stage.store.settle(worker, [done(hung), done(fine), done(endless)]) == {hung.id}


async def test_a_hung_handler_of_a_worker_that_has_not_beaten_since(stage: Stage) -> None:
    """The lease itself makes the deadline known."""
    worker, witness = await stage.worker(lease_s=HOUR_S), await stage.worker(lease_s=HOUR_S)
    endless = await stage.running(worker)
    await stage.beat(worker, [endless.id], HOUR_S)
    late = await stage.running(worker, timeout_s=300)
    hung = await stage.running(worker, timeout_s=30)
    await stage.pass_time(30 + DEADLINE_GRACE_S + 1)
    assert (await stage.beat(witness)).rescued == 1
    shown = await stage.store.info([endless.id, late.id, hung.id])
    assert [one.state for one in shown.values()] == ["running", "running", "queued"]


async def test_the_same_worker_takes_its_hung_handlers_task_back(stage: Stage) -> None:
    """A lone worker has nobody else to do it."""
    worker = await stage.worker(lease_s=HOUR_S)
    hung = await stage.running(worker, timeout_s=30)
    await stage.beat(worker, [hung.id], HOUR_S, overdue_s=30)
    await stage.pass_time(30 + DEADLINE_GRACE_S + 1)
    beats = [await stage.beat(worker, [hung.id], HOUR_S, overdue_s=-DEADLINE_GRACE_S - 1) for _ in range(2)]
    assert sum(beat.rescued for beat in beats) == 1
    lease = await stage.take_one(worker)
    assert (lease.id, lease.sequence) == (hung.id, hung.sequence + 1)


async def test_the_deadline_counts_from_the_lease(stage: Stage) -> None:
    """Time in the queue is no run time."""
    worker = await stage.worker(lease_s=HOUR_S)
    task_id = await stage.put_one(timeout_s=30)
    await stage.pass_time(100)
    lease = await stage.take_one(worker)
    assert lease.id == task_id
    await stage.beat(worker, [task_id], HOUR_S, overdue_s=30)
    await stage.pass_time(20)
    assert (await stage.beat(worker, [task_id], HOUR_S, overdue_s=10)).rescued == 0
    assert (await stage.show(task_id)).state == "running"


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
    await stage.pass_time(LEASE_S + 1)
    witness = await stage.worker(lease_s=HOUR_S)
    while (await stage.beat(witness, lease_s=HOUR_S)).rescued:
        pass
    found = [one.id for _ in range(3) for one in await stage.take(witness, 500)]
    assert sorted(found) == ids
    assert {len(one.trail) for one in (await stage.store.info(ids)).values()} == {1}


async def test_who_was_cut_off_itself_gives_nobody_up_by_its_first_beat(stage: Stage) -> None:
    """A lock on the file, a database that is away, a machine that was paused: the others were cut off by the same."""
    now_s = 0.0
    stage.store._silence._clock = lambda: now_s  # type: ignore[attr-defined]
    first, second, dead = [await stage.worker(label) for label in ("first", "second", "dead")]
    kept, lost = await stage.running(second), await stage.running(dead)
    overdue = await stage.running(second, timeout_s=1)
    now_s = LEASE_S + 1
    await stage.pass_time(now_s)
    assert await stage.beat(first) == Beat(is_alive=True)
    assert await stage.beat(second) == Beat(is_alive=True)
    assert (await stage.show(lost.id)).state == "running"
    now_s += LEASE_S / 3
    assert (await stage.beat(first)).rescued == 2
    shown = await stage.store.info([kept.id, lost.id, overdue.id])
    assert [one.state for one in shown.values()] == ["running", "queued", "queued"]
    assert await stage.store.settle(second, [done(kept)]) == set()


async def test_who_beats_as_usual_is_not_cut_off(stage: Stage) -> None:
    now_s = 0.0
    stage.store._silence._clock = lambda: now_s  # type: ignore[attr-defined]
    dead, witness = await stage.worker(), await stage.worker(lease_s=HOUR_S)
    await stage.running(dead)
    rescued = []
    for _ in range(4):
        now_s += LEASE_S / 3 + 1
        await stage.pass_time(LEASE_S / 3 + 1)
        rescued.append((await stage.beat(witness)).rescued)
    assert rescued == [0, 0, 1, 0]


async def test_who_has_come_through_and_remembers_something_is_no_poison(stage: Stage) -> None:
    """A watch that runs for days outlives many workers: only deaths in a row count."""
    lease = await stage.running(await stage.worker())
    for _ in range(RESCUE_LIMIT + 1):
        worker = await stage.worker()
        await stage.pass_time(LEASE_S + 1)
        await stage.beat(worker)
        [lease] = await stage.take(worker)
        assert lease.rescues == 1
        assert await stage.store.settle(worker, [Again(lease.id, lease.sequence, refund=True, memory="{}")]) == set()
        [lease] = await stage.take(worker)
        assert lease.rescues == 0
    assert (await stage.show(lease.id)).state == "running"
