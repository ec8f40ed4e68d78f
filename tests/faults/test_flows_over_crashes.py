"""kill -9 at random while chains and groups run: every callback comes once, after all members, and nothing waits on."""

import asyncio
import os
import random
import time
from pathlib import Path

import pytest

from everpoll import Everpoll
from everpoll.stores.contract import RESCUE_LIMIT, TaskFilter
from faults import relay
from faults.ledger import Ledger
from worker_processes import WorkerProcess, story_of

GIVE_UP_S = 600.0
LOOK_S = 0.02
EACH = 4
"""Groups that are enqueued before each death."""


async def enqueue(url: str) -> list[int]:
    app = Everpoll(url)
    for job in (relay.step, relay.report):
        app.jobs.add(job._function, name=job.name)
    step, report = app.jobs["step"], app.jobs["report"]
    ids = []
    for _ in range(EACH):
        calls = [step.call(1) for _ in range(6)] + [step.call(1).then(step).then(step) for _ in range(2)]
        ids.append((await app.group(calls).then(report, len(calls)).enqueue()).id)
    await app.close()
    return ids


async def live(url: str) -> int:
    app = Everpoll(url)
    store = await app.store()
    count = sum([len((await store.tasks(TaskFilter(state=state), 1_000)).tasks) for state in ("queued", "running")])
    await app.close()
    return count


async def check(url: str, groups: list[int]) -> None:
    """A task that loses three workers has failed, which random deaths may do to one: its group ends all the same."""
    app = Everpoll(url)
    store = await app.store()
    callbacks = await store.info(groups)
    assert len(callbacks) == len(groups)
    for group, callback in callbacks.items():
        members = await store.members(group)
        assert len(members) == 8
        lost = [one for one in (callback, *members) if one.state != "done"]
        assert all(one.rescues >= RESCUE_LIMIT or one.trail[-1].get("cause") for one in lost), "nothing else fails here"
        ends = [one.ended_at for one in members if one.ended_at is not None]
        assert len(ends) == 8
        assert callback.started_at is not None
        assert max(ends) <= callback.started_at
        if callback.state == "done":
            assert callback.result == {"total": 8, "ended": 8, "live": 0}
        assert {one.result for one in members if one.state == "done"} <= {2, 4}
    everything = (await store.tasks(TaskFilter(name="report"), 1_000)).tasks
    assert sorted(one.id for one in everything) == sorted(groups)
    await app.close()


@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.prove)])
def test_every_callback_comes_once_after_all_members(ledger: Ledger, tmp_path: Path, kills: int) -> None:
    rng = random.Random(kills)
    env = {**os.environ, "EVERPOLL_URL": ledger.url}
    started: list[WorkerProcess] = []
    groups: list[int] = []

    def start() -> WorkerProcess:
        started.append(WorkerProcess(f"r{len(started)}", tmp_path, env, "faults.relay:app", "1s"))
        return started[-1]

    def until_at_most(count: int) -> None:
        give_up_at = time.monotonic() + GIVE_UP_S
        while asyncio.run(live(ledger.url)) > count:
            assert time.monotonic() < give_up_at, story_of(started)
            time.sleep(LOOK_S)

    crew = [start(), start()]
    try:
        for _ in range(kills):
            groups += asyncio.run(enqueue(ledger.url))
            until_at_most(rng.randrange(EACH * 12))
            crew.pop(rng.randrange(2)).kill()
            crew.append(start())
        until_at_most(0)
    finally:
        for worker in crew:
            worker.kill()
    asyncio.run(check(ledger.url, groups))
