"""A row is settled in place, under its fence: what its handler did stands in its own columns, and nothing is lost."""

from datetime import timedelta

from everpoll.stores.contract import Again, Ended, Settlement, encode
from everpoll.tables import Guard
from tables.stages import BARE, TableStage, keys

NOW = timedelta(minutes=1)


async def test_a_row_that_is_done_says_so(stage: TableStage, guard: Guard) -> None:
    """And keeps who did it, since when."""
    await stage.create()
    await stage.queue(1, error="from an earlier run")
    async with stage.claimer(stage.mapping(guard=guard)) as worker:
        lease = await worker.take_one()
        claimed = await stage.one(1)
        assert await worker.end(lease, report={"score": 7, "notes": ["ä", None]}) == set()
        row = await stage.one(1)
        assert (row["status"], row["error"], row["retry_count"]) == ("completed", None, 0)
        assert row["report"] == {"score": 7, "notes": ["ä", None]}
        assert (row["worker_id"], row["started_at"]) == ("worker-1", claimed["started_at"])
        assert timedelta(0) <= row["finished_at"] - row["started_at"] < NOW


async def test_a_row_that_failed_says_why(stage: TableStage) -> None:
    await stage.create()
    await stage.queue(1, report=None)
    async with stage.claimer() as worker:
        await worker.end(await worker.take_one(), state="failed")
        row = await stage.one(1)
        assert (row["status"], row["error"], row["retry_count"]) == ("failed", "Boom: it broke", 1)
        assert row["finished_at"] is not None


async def test_a_canceled_row_has_the_users_word_for_it_or_has_failed(stage: TableStage) -> None:
    await stage.create()
    await stage.queue(1, 2)
    async with stage.claimer() as worker:
        await worker.end(await worker.take_one(), state="canceled")
    async with stage.claimer(stage.mapping(canceled=None)) as worker:
        await worker.end(await worker.take_one(), state="canceled")
    assert await stage.statuses() == {1: "canceled", 2: "failed"}


async def test_what_is_given_back_waits_as_if_it_had_never_been_claimed(stage: TableStage, guard: Guard) -> None:
    """No attempt is used, and it keeps its place."""
    await stage.create()
    await stage.queue(1, 2, error="from an earlier run")
    before = await stage.one(1)
    async with stage.claimer(stage.mapping(guard=guard)) as worker:
        assert await worker.hand_back(await worker.take_one()) == set()
        after = await stage.one(1)
        changed = {"version", "updated_at"}
        assert {k: v for k, v in after.items() if k not in changed} == {
            k: v for k, v in before.items() if k not in changed
        }
        assert keys(await worker.take(1)) == [1]


async def test_what_is_tried_again_counts_and_waits_for_its_time(stage: TableStage, guard: Guard) -> None:
    await stage.create()
    await stage.queue(1)
    async with stage.claimer(stage.mapping(guard=guard)) as worker:
        await worker.retry(await worker.take_one(), delay_s=3600)
        row = await stage.one(1)
        assert (row["status"], row["retry_count"], row["error"]) == ("queued", 1, "Boom: it broke")
        assert (row["worker_id"], row["started_at"], row["last_heartbeat"]) == (None, None, None)
        look = await worker.look()
        assert look.leases == []
        assert look.next_due_s is not None
        assert 3500 < look.next_due_s <= 3600
        await stage.age(3600, "due_at")
        lease = await worker.take_one()
        assert (lease.row_key, lease.attempt) == (1, 2)


async def test_a_mixed_batch_is_settled_at_once(stage: TableStage) -> None:
    """Each row as its own handler left it; from two claims, which have two starts."""
    await stage.create()
    await stage.queue(*range(8))
    async with stage.claimer() as worker:
        leases = [*await worker.take(5), *await worker.take(5)]
        zero, one, two, three, four, five, six, seven = leases
        boom = encode({"what": "failed", "type": "Boom", "error": "it broke"})
        lost = await worker.settle(
            Ended(zero.id, 1),
            Ended(one.id, 1, "done", encode({"report": [1]})),
            Ended(two.id, 1, "failed", None, boom),
            Again(three.id, 1, None, refund=True),
            Again(four.id, 1, 60.0, note=encode({"what": "retry", "type": "Boom", "error": "not yet"})),
            Ended(five.id, 1),
            Ended(six.id, 1, "done", encode({"report": None})),
            Ended(seven.id, 1),
        )
        assert lost == set()
    rows = await stage.rows()
    ended = ["completed", "completed", "failed", "queued", "queued", "completed", "completed", "completed"]
    assert [row["status"] for row in rows] == ended
    assert [row["report"] for row in rows] == [None, [1], *[None] * 6]
    assert [row["retry_count"] for row in rows] == [0, 0, 1, 0, 1, 0, 0, 0]
    assert (rows[4]["error"], rows[5]["error"]) == ("Boom: not yet", None)


async def test_a_status_that_the_user_has_changed_is_never_overwritten(stage: TableStage, guard: Guard) -> None:
    """Whatever the handler did: ended, failed, given back or to be tried again."""
    await stage.create()
    await stage.queue(*range(5))
    async with stage.claimer(stage.mapping(guard=guard)) as worker:
        leases = await worker.take()
        for key in (0, 1, 2, 3):
            await stage.change(key, status="canceled")
        before = await stage.rows()
        done, failed, back, again, _ = leases
        assert await worker.end(done, report={"never": "seen"}) == {done.id}
        assert await worker.end(failed, state="failed") == {failed.id}
        assert await worker.hand_back(back) == {back.id}
        assert await worker.retry(again, delay_s=1) == {again.id}
        assert await stage.rows() == before


async def test_of_a_batch_only_what_is_lost_is_lost(stage: TableStage, guard: Guard) -> None:
    await stage.create()
    await stage.queue(*range(6))
    async with stage.claimer(stage.mapping(guard=guard)) as worker:
        leases = await worker.take()
        await stage.change(1, status="canceled")
        await stage.change(4, status="draft")
        assert await worker.end(*leases) == {leases[1].id, leases[4].id}
    assert list((await stage.statuses()).values()) == [
        "completed",
        "canceled",
        "completed",
        "completed",
        "draft",
        "completed",
    ]


async def test_a_zombie_changes_nothing_about_a_row_that_was_given_to_another(stage: TableStage, guard: Guard) -> None:
    """Even where both call themselves the same: the start tells them apart."""
    await stage.create()
    mapping = stage.mapping(guard=guard)
    for number, other_label in enumerate(("worker-2", "worker-1")):
        await stage.queue(number)
        async with stage.claimer(mapping, "worker-1") as zombie, stage.claimer(mapping, other_label) as heir:
            lost = await zombie.take_one()
            await stage.change(number, status="queued")
            won = await heir.take_one()
            row = await stage.one(number)
            assert await zombie.end(lost, report={"of": "a zombie"}) == {lost.id}
            assert await stage.one(number) == row
            assert await heir.end(won) == set()
            assert (await stage.one(number))["status"] == "completed"


async def test_what_was_settled_by_a_try_whose_answer_got_lost_is_recognised(stage: TableStage) -> None:
    """The row shows it: by its status and its fence. What the user has changed is not taken for ours."""
    await stage.create()
    await stage.queue(1, 2, 3, 4)
    async with stage.claimer() as worker:
        one, two, three, four = await worker.take()
        back = Again(three.id, 1, None, refund=True)
        ended: list[Settlement] = [Ended(one.id, 1), Ended(two.id, 1), back, Ended(four.id, 1)]
        for key, status in ((1, "completed"), (2, "canceled"), (3, "queued"), (4, "completed")):
            await stage.change(key, status=status)
        await stage.change(3, worker_id=None, started_at=None, last_heartbeat=None)
        await stage.change(4, worker_id="another")
        assert await worker.settle(*ended) == {one.id, two.id, three.id, four.id}
        assert await worker.source.settled_before(worker.incarnation, ended) == {one.id, three.id}


async def test_a_table_with_nothing_but_the_fence_serves(stage: TableStage) -> None:
    """As the document has it: id, status, created_at, worker_id, started_at."""
    await stage.create(BARE)
    await stage.queue(1, 2, 3)
    async with stage.claimer(stage.bare()) as worker:
        one, two, three = await worker.take()
        await worker.end(one)
        await worker.end(two, state="failed")
        await worker.hand_back(three)
        assert await stage.statuses() == {1: "completed", 2: "failed", 3: "queued"}
        assert keys(await worker.take()) == [3]
