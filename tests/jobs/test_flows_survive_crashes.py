"""Chains and groups with a crash and a zombie at every point: they run in order, once, and nothing waits for ever."""

from typing import Any

from everpoll import Everpoll, Group, Retry
from everpoll.stores.contract import TaskFilter
from everpoll.testing import World, crash_point, explore


def make(world: World) -> Everpoll:
    app = Everpoll(world.store, clock=world.clock, lease="30s")
    ran: dict[str, list[Any]] = world.notes.setdefault("ran", {})

    @app.job(retry=Retry(2))
    async def step(before: int) -> int:
        ran.setdefault("step", []).append(before)
        await crash_point("in_step")
        return before + 1

    @app.job(retry=Retry(1))
    async def broken() -> None:
        await crash_point("in_broken")
        raise ValueError("no")

    @app.job()
    async def report(group: Group, total: int) -> list[str]:
        info = await group.info()
        assert (info.queued, info.running, info.total) == (0, 0, total)
        await crash_point("in_report")
        answers = await group.results(return_exceptions=True)
        said = [type(one).__name__ if isinstance(one, Exception) else str(one) for one in answers]
        ran.setdefault("report", []).append(said)
        return said

    return app


async def enqueue_both(world: World, app: Everpoll) -> None:
    jobs = app.jobs
    chain = await jobs["step"].call(0).then(jobs["step"]).then(jobs["step"]).enqueue()
    members: list[Any] = [jobs["step"].call(10), jobs["broken"].call(), jobs["broken"].call().then(jobs["step"])]
    members.append(jobs["step"].call(20).then(jobs["step"]))
    group = await app.group(members).then(jobs["report"], 4).enqueue()
    silent = await app.group([jobs["step"].call(30)]).enqueue()
    world.notes |= {"chain": chain.id, "group": group.id, "silent": silent.id}


async def all_reported_once(world: World) -> None:
    notes, database = world.notes, world.database
    found = await database.info([notes["chain"], notes["group"], notes["silent"]])
    assert [one.state for one in found.values()] == ["done"] * 3
    assert found[notes["chain"]].result == 3
    said = ["11", "JobFailed", "JobCanceled", "22"]
    assert found[notes["group"]].result == said
    # A process that dies in the middle of a run leaves it to another: then that run happens once more, and no other.
    runs = notes["ran"]["report"]
    assert runs in ([said], [said] * 2 if world.fault.injected_at is not None else [said])
    again = len(notes["ran"]["step"]) - 7
    assert 0 <= again <= (0 if world.fault.injected_at is None else 7)
    assert set(notes["ran"]["step"]) == {0, 1, 2, 10, 20, 21, 30}
    everything = (await database.tasks(TaskFilter(), limit=100)).tasks
    assert len(everything) == 3 + 6 + 1 + 2
    assert all(one.ended_at is not None and one.blockers == 0 for one in everything)


def test_every_callback_is_told_once_wherever_a_process_dies_or_freezes() -> None:
    exploration = explore(make, enqueue_both, all_reported_once)
    assert {"after_lease", "before_settle", "after_settle", "in_step", "in_report"} <= set(exploration.points)
