"""A front that everpoll does not know runs on every store: `toy_front.py` uses nothing but the contracts.

It is leased, is due again with its memory, ends, is asked before a cancel, survives the loss of its worker, is found by
its key, and `why` speaks about it truthfully. No store names it, and no SQL was written for it.
"""

import ast
import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

import everpoll
from engine import toy_front
from engine.toy_front import KIND, Nudge, Nudges
from everpoll.engine.options import WorkerOptions
from everpoll.engine.why import Why, why
from everpoll.engine.work import WorkRegistry
from everpoll.engine.worker import Worker
from everpoll.stores.contract import NewTask, Store, TaskInfo, WorkerCard
from everpoll.stores.memory import MemoryStore
from everpoll.stores.operations import Revision
from stores.backends import backend_names
from stores.conftest import made

HOUR_S = 3_600.0


def stores() -> list[str]:
    """Memory, SQLite, and the newest Postgres."""
    names = backend_names()
    return [*(one for one in names if "postgres" not in one), next(one for one in names if "postgres" in one)]


@pytest.fixture(params=stores())
def store(request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path: Path) -> Iterator[Store]:
    with made(request, runner, tmp_path, migrated=True) as place:
        # The clock of that memory store stands still; here time passes.
        store: Store = MemoryStore() if place.name == "memory" else place.store()
        runner.run(store.open())
        yield store
        runner.run(store.close())


class App:
    """What an app is to a front: its works, and a worker that reports each settlement."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.works = WorkRegistry()
        self.sent: list[str] = []
        self.nudges = Nudges(self.works, self.sent.append)
        self._reported = asyncio.Event()

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        options = WorkerOptions(slots=2, keep_s=None, label="toy")
        worker = Worker(self.store, self.works, options, lambda _ids: self._reported.set())
        await worker.start()
        try:
            yield
        finally:
            await worker.stop(0)

    async def shown(self, task_id: int) -> TaskInfo:
        return (await self.store.info([task_id]))[task_id]

    async def until_sent(self, task_id: int, times: int) -> TaskInfo:
        """The task, once its memory or its end says that it was sent so often."""
        while True:
            self._reported.clear()
            task = await self.shown(task_id)
            if task.ended_at is not None or (task.state == "queued" and task.memory >= times):
                return task
            await self._reported.wait()

    async def why(self, task: TaskInfo) -> Why:
        workers, queues = await self.store.workers(), await self.store.queues()
        return why(task, workers, queues, await self.store.losses(task.id), datetime.now(UTC))


def hurried(task_id: int) -> Revision:
    return Revision(task_id=task_id, hurry=True)


async def signed_on(store: Store, incarnation: int) -> int:
    """A worker that leases by hand, and sends no heartbeat."""
    card = WorkerCard(
        incarnation=incarnation,
        label=f"by hand {incarnation}",
        host="here",
        pid=1,
        queues=("nudges",),
        slots=1,
        version="0",
    )
    await store.sign_on(card, 30.0)
    return incarnation


async def test_it_is_due_again_with_its_memory_until_it_ends(store: Store) -> None:
    app = App(store)
    task_id = await app.nudges.begin(store, "anna", Nudge("drink", 3, 0.001))
    async with app.working():
        task = await app.until_sent(task_id, 3)
    assert app.sent == ["drink"] * 3
    assert (task.state, task.result, task.kind) == ("done", {"sent": 3}, KIND)
    events = await store.task_events(task_id)
    assert [(one.kind, one.key, one.seq, one.body["times"]) for one in events] == [
        (KIND, "anna", times, times) for times in (1, 2, 3)
    ]
    assert await app.nudges.begin(store, "anna", Nudge("again", 1, 0)) == task_id, "begun once, also after its end"


async def test_its_keys_are_its_own(store: Store) -> None:
    app = App(store)
    [job] = await store.enqueue([NewTask(name="job", key="anna")])
    task_id = await app.nudges.begin(store, "anna", Nudge("drink", 1, 0))
    assert task_id != job.id
    found = await store.find(KIND, "anna")
    assert found is not None
    assert found.id == task_id
    assert [one.id for one in await store.live(KIND)] == [task_id]


async def test_it_is_asked_before_a_cancel_ends_it(store: Store) -> None:
    app = App(store)
    task_id = await app.nudges.begin(store, "anna", Nudge("drink", 9, HOUR_S))
    async with app.working():
        await app.until_sent(task_id, 1)
        assert await store.cancel(task_id, '{"what":"cancel","why":"she left"}') == "queued"
        task = await app.until_sent(task_id, 9)
    assert app.sent == ["drink", "never mind: drink"]
    assert (task.state, task.cancel_reason) == ("canceled", "she left")


async def test_another_worker_goes_on_where_a_lost_one_was(store: Store) -> None:
    app = App(store)
    task_id = await app.nudges.begin(store, "anna", Nudge("drink", 2, HOUR_S))
    async with app.working():
        await app.until_sent(task_id, 1)
    assert await store.revise([hurried(task_id)]) == [task_id]
    lost, witness = await signed_on(store, 1), await signed_on(store, 2)
    [lease] = (await store.lease(lost, {"nudges": 1}, 1)).leases
    assert lease.memory == "1"
    heartbeat = store.heartbeat_connection()
    rescued = await asyncio.to_thread(heartbeat.rescue, witness, [(lost, 0)], [])
    await asyncio.to_thread(heartbeat.close)
    assert rescued.tasks == 1
    async with app.working():
        task = await app.until_sent(task_id, 2)
    assert (app.sent, task.state, task.rescues) == (["drink"] * 2, "done", 1)


async def test_why_says_nothing_false_about_it(store: Store) -> None:
    app = App(store)
    task_id = await app.nudges.begin(store, "anna", Nudge("drink", 2, HOUR_S))
    assert (await app.why(await app.shown(task_id))).verdict == "No worker is alive."
    async with app.working():
        waiting = await app.why(await app.until_sent(task_id, 1))
        assert waiting.verdict.startswith("It has run before, and is due again in ")
        assert await store.revise([hurried(task_id)]) == [task_id]
        ended = await app.why(await app.until_sent(task_id, 2))
    assert ended.verdict.startswith("It is done: ")


def test_it_is_small_and_knows_the_contracts_only() -> None:
    assert toy_front.__file__ is not None
    text = Path(toy_front.__file__).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    imported = {node.module for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)}
    assert {one for one in imported if one and one.startswith("everpoll")} == {
        "everpoll.engine.work",
        "everpoll.stores.contract",
    }
    assert everpoll.__file__ is not None
    source = Path(everpoll.__file__).parent
    naming = [one.name for one in source.rglob("*") if one.suffix in {".py", ".sql"} and f'"{KIND}"' in one.read_text()]
    assert naming == []


def test_no_store_names_a_kind() -> None:
    """Columns say what is meant. What has a kind in its name tells about tasks, and treats none of them differently."""
    assert everpoll.__file__ is not None
    stores_folder = Path(everpoll.__file__).parent / "stores"
    kinds = "job|watch|group|schedule|check|incident|mailbox|upkeep"
    literal = re.compile(rf"""["']({kinds})["']""")
    allowed = {
        "figures.py": "which kinds a published series is about",
        "flows.py": "the kind of tasks that only end a group, for jobs and the doctor",
        "new_tasks.py": "the kind of a task that says nothing else",
    }
    naming = {
        f"{one.name}: {found[0]}"
        for one in stores_folder.rglob("*")
        if one.suffix in {".py", ".sql"} and one.name not in allowed
        for found in literal.finditer(one.read_text(encoding="utf-8"))
    }
    assert naming == set()
