"""Rows that another release wrote are understood: a fleet is upgraded one process at a time."""

from everpoll.stores.contract import TaskFilter
from stores.stage import Stage, again, done, json


async def test_the_version_of_a_row_reaches_its_handler(stage: Stage) -> None:
    """A worker that knows only older ones can tell, and hand the task back."""
    worker = await stage.worker()
    for version in (1, 2, 30_000):
        lease = await stage.running(worker, version=version)
        assert lease.version == version
        await stage.store.settle(worker, [again(lease, None, refund=True)])
        lease = await stage.take_one(worker)
        assert lease.version == version
        await stage.store.settle(worker, [done(lease, None, "failed")])
        await stage.store.retry(lease.id, json({"what": "retry"}))
        lease = await stage.take_one(worker)
        assert lease.version == version
        await stage.store.settle(worker, [done(lease)])


async def test_unknown_kinds_and_notes_are_kept(stage: Stage) -> None:
    """A newer release knows more decisions, and puts more into them."""
    worker = await stage.worker()
    lease = await stage.running(worker, kind="prophecy", memory=json({"format": 9, "extra": [1]}))
    note = {"what": "foretold", "omens": [{"bird": "raven", "seen": 3}], "weight": 0.5}
    await stage.store.settle(worker, [again(lease, note=json(note))])
    await stage.store.settle(worker, [done(await stage.take_one(worker), None, "done", json(note))])
    shown = await stage.show(lease.id)
    assert (shown.kind, shown.memory) == ("prophecy", {"format": 9, "extra": [1]})
    assert [{name: entry[name] for name in note} for entry in shown.trail] == [note, note]
    assert [one.id for one in (await stage.store.tasks(TaskFilter(kind="prophecy"))).tasks] == [lease.id]


async def test_a_row_of_the_first_release_runs(stage: Stage) -> None:
    """It has only the columns that the first schema had: later ones must do without, or have a default."""
    task_id = await stage.backend.insert_first_release_row("old")
    worker = await stage.worker()
    lease = await stage.take_one(worker)
    assert (lease.id, lease.name, lease.args, lease.version) == (task_id, "old", "[1]", 1)
    await stage.store.settle(worker, [again(lease, note=json({"what": "retry"}))])
    await stage.store.settle(worker, [done(await stage.take_one(worker), 5)])
    shown = await stage.show(task_id)
    assert (shown.state, shown.attempt, shown.result, len(shown.trail)) == ("done", 2, 5, 1)
