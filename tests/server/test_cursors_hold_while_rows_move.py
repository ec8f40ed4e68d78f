"""Every list that has a cursor: walked page by page while rows come, end and come back, it has each row once.

A row that the whole list has before and after each change must be on a page; no row may be on two. The lists are taken
from the route table, so that a new one must be added here.
"""

import asyncio
import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from everpoll.jobs.schedule_rows import task_of_schedule
from everpoll.jobs.timetable import Timetable
from everpoll.monitors.alerts.incident_row import KIND as INCIDENT_KIND
from everpoll.monitors.alerts.incident_row import write
from everpoll.monitors.checks.assignment import KIND as CHECK_KIND
from everpoll.monitors.incident import close
from everpoll.server.route_table import ROUTES
from everpoll.stores.contract import Again, Ended, NewTask, Store, TaskFilter, WorkerCard
from everpoll.stores.health import NewLook
from everpoll.stores.operations import Revision
from server.incident_writer import incident, write_open
from server.site import TOKEN, Site, example_app, site

LEASE_S = 300.0
NOTHING_DUE_S = 7_200.0
WALKER = WorkerCard(incarnation=7, label="w-walker", host="here", pid=1, queues=("default",), slots=500, version="test")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """As in the other modules, and in memory."""
    if request.param == "memory":
        yield "memory://"
    elif request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'tasks.db'}"
    else:
        yield request.getfixturevalue("lasting_postgres_url")


@dataclass(frozen=True)
class Listing:
    """One list, and the fields of a row that identify it."""

    path: str
    identity: tuple[str, ...]
    query: dict[str, Any] = field(default_factory=dict)


LISTINGS = (
    Listing("/api/jobs", ("id",)),
    Listing("/api/jobs", ("id",), {"state": "queued"}),
    Listing("/api/jobs", ("id",), {"state": "done"}),
    Listing("/api/jobs", ("id",), {"state": "canceled", "name": "audit"}),
    Listing("/api/jobs", ("id",), {"q": "even"}),
    Listing("/api/jobs", ("id",), {"queue": "slow"}),
    Listing("/api/jobs", ("id",), {"from": "2020-01-01T00:00:00Z", "ended_from": "2020-01-01T00:00:00Z"}),
    Listing("/api/runs", ("task_id",)),
    Listing("/api/runs", ("task_id",), {"state": "queued"}),
    Listing("/api/runs", ("task_id",), {"state": "done", "watch": "export"}),
    Listing("/api/services", ("name",)),
    Listing("/api/services", ("name",), {"status": "unknown"}),
    Listing("/api/services/billing/history", ("at",)),
    Listing("/api/incidents", ("id",)),
    Listing("/api/incidents", ("id",), {"state": "past"}),
    Listing("/api/incidents", ("id",), {"state": "all", "service": "billing"}),
    Listing("/api/incidents", ("id",), {"state": "past", "service": "billing"}),
    Listing("/api/loops", ("name", "worker")),
    Listing("/api/workers", ("incarnation",)),
    Listing("/api/schedules", ("task_id",)),
    Listing("/api/queues", ("name",)),
    Listing("/api/log", ("position", "task_id", "seq")),
    Listing("/api/log", ("position", "task_id", "seq"), {"kind": "job"}),
    Listing("/api/log", ("position", "task_id", "seq"), {"kind": "watch", "name": "export"}),
)


def test_every_list_with_a_cursor_is_walked_here() -> None:
    with_cursor = {one.path for one in ROUTES if "after" in getattr(one.query, "__struct_fields__", ())}
    assert with_cursor == {one.path.replace("/billing/", "/{name}/") for one in LISTINGS}


class Changes:
    """What happens to the rows between two pages. Names are spread, so that lists by name get rows everywhere."""

    def __init__(self, here: Site, store: Store) -> None:
        self._app, self._store = here.app, store
        self._numbers = itertools.count()
        self._looked_at = itertools.count(int(time.time()) - 80_000)
        self._incidents: dict[str, Any] = {}

    async def apply(self, what: str, count: int, seed: int) -> None:
        """Make one change."""
        await getattr(self, what)(count, random.Random(seed))

    def _name(self, rng: random.Random) -> str:
        return f"{rng.choice('abcxyz')}{next(self._numbers)}"

    async def insert_jobs(self, count: int, rng: random.Random) -> None:
        await self._app.jobs["audit"].enqueue_many([(rng.choice(["even", "odd"]),)] * count)
        await self._app.jobs["wait"].enqueue_many([()] * count, delay=rng.choice([0, NOTHING_DUE_S]))

    async def insert_runs(self, count: int, rng: random.Random) -> None:
        for _ in range(count):
            await self._app.watches["export"].begin({"query": "select 1"}, self._name(rng))

    async def insert_services(self, count: int, rng: random.Random) -> None:
        define = self._app.services.define
        await self._app.services.publish([define(self._name(rng), "http://127.0.0.1:9/", {}) for _ in range(count)])

    async def insert_incidents(self, count: int, rng: random.Random) -> None:
        some = [incident(next(self._numbers), rng.choice(["billing", "shop"])) for _ in range(count)]
        self._incidents |= {one.id: one for one in some}
        await write_open(self._store, some)

    async def insert_schedules(self, count: int, rng: random.Random) -> None:
        timetable = Timetable(every_s=60.0)
        job = NewTask(name="audit")
        names = [self._name(rng) for _ in range(count)]
        await self._store.enqueue([task_of_schedule(name, timetable, "once", job, "{}") for name in names])

    async def insert_queues(self, count: int, rng: random.Random) -> None:
        """A queue is there while it has a task."""
        await self._store.enqueue(
            [NewTask(name="other", queue=self._name(rng), delay_s=rng.choice([0, NOTHING_DUE_S])) for _ in range(count)]
        )

    async def insert_loops(self, count: int, rng: random.Random) -> None:
        async def nothing() -> None: ...

        for _ in range(count):
            self._app.loops.add(nothing, every="1h", name=self._name(rng))

    async def remove_loops(self, count: int, rng: random.Random) -> None:
        for name in rng.sample(sorted(self._app.loops), min(count, len(self._app.loops))):
            await self._app.loops.remove(name)

    async def insert_workers(self, count: int, rng: random.Random) -> None:
        for _ in range(count):
            incarnation = 100 + next(self._numbers)
            card = WorkerCard(
                incarnation=incarnation,
                label=self._name(rng),
                host="there",
                pid=incarnation,
                queues=("default",),
                slots=1,
                version="test",
            )
            await self._store.sign_on(card, LEASE_S)
            if rng.random() < 0.5:
                await self._store.sign_off(incarnation)

    async def insert_looks(self, count: int, _: random.Random) -> None:
        looks = [NewLook(service="billing", at=next(self._looked_at), status="up", span_s=1.0) for _ in range(count)]
        await self._store.health.record(looks)

    async def end_some(self, count: int, rng: random.Random) -> None:
        """Lease all that is due; end so many tasks of each queue, and hand the others back."""
        hurried = [Revision(INCIDENT_KIND, key, hurry=True) for key in self._incidents]
        services = await self._store.live(CHECK_KIND)
        hurried += [Revision(CHECK_KIND, one.key, hurry=True) for one in services if one.key]
        await self._store.revise(hurried)
        rooms = {one.queue: 500 for one in await self._store.queues()}
        leases = (await self._store.lease(WALKER.incarnation, rooms, 500)).leases
        rng.shuffle(leases)
        left = dict.fromkeys(rooms, count)
        settlements: list[Ended | Again] = []
        for one in leases:
            left[one.queue] -= 1
            if left[one.queue] < 0 or one.key == "billing":
                settlements.append(Again(one.id, one.sequence, refund=True))
                continue
            over = self._incidents.pop(one.key or "", None)
            result = None if over is None else write(close(over, "recovered", 1_000.0))
            settlements.append(Ended(one.id, one.sequence, result=result))
        assert not await self._store.settle(WALKER.incarnation, settlements)

    async def cancel_jobs(self, count: int, rng: random.Random) -> None:
        await self._some_jobs("cancel", "queued", count, rng)

    async def retry_jobs(self, count: int, rng: random.Random) -> None:
        """They come back from the history."""
        await self._some_jobs("retry", rng.choice(["done", "canceled"]), count, rng)

    async def _some_jobs(self, order: str, state: Any, count: int, rng: random.Random) -> None:
        found = (await self._store.tasks(TaskFilter(kind="job", state=state), 500)).tasks
        for one in rng.sample(found, min(count, len(found))):
            await getattr(self._app.jobs.task(one.id), order)()


WHAT = tuple(name for name in vars(Changes) if not name.startswith("_") and name != "apply")


class Walk:
    """One walk along a list, by pages of any size."""

    def __init__(self, http: httpx.AsyncClient, listing: Listing) -> None:
        self._http, self.listing = http, listing
        self._after: str | None = None
        self._seen: list[tuple[Any, ...]] = []
        self._always: set[tuple[Any, ...]] | None = None
        self._ever: set[tuple[Any, ...]] = set()
        self.is_over = False

    async def compare(self) -> None:
        """Read the whole list, without changes in between."""
        rows: set[tuple[Any, ...]] = set()
        after: str | None = None
        while True:
            found, after = await self._page(1_000, after)
            assert not rows & set(found)
            rows |= set(found)
            if after is None:
                break
        self._always = rows if self._always is None else self._always & rows
        self._ever |= rows

    async def go_on(self, limit: int) -> None:
        """Read the next page."""
        if not self.is_over:
            found, self._after = await self._page(limit, self._after)
            assert len(found) <= limit
            self._seen += found
            self.is_over = self._after is None

    def judge(self) -> None:
        """Each row once, and none missing that was there all the time."""
        assert len(set(self._seen)) == len(self._seen), self.listing
        missing = (self._always or set()) - set(self._seen)
        assert not missing, (self.listing, missing)
        assert set(self._seen) <= self._ever, self.listing

    async def _page(self, limit: int, after: str | None) -> tuple[list[tuple[Any, ...]], str | None]:
        given = {"limit": limit} | ({} if after is None else {"after": after})
        answer = await self._http.get(self.listing.path, params=self.listing.query | given)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        return [tuple(one[name] for name in self.listing.identity) for one in page["items"]], page["after"]


Step = tuple[int, list[tuple[str, int, int]]]
STEPS = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.lists(st.tuples(st.sampled_from(WHAT), st.integers(1, 3), st.integers(0, 2**16)), max_size=4),
    ),
    min_size=2,
    max_size=6,
)


async def _walk_all(here: Site, changes: Changes, steps: list[Step]) -> None:
    # Between two examples the event loop stands still: the server would find that a kept connection is too old.
    async with here.client(Authorization=f"Bearer {TOKEN}", Connection="close") as http:
        await _walked(http, changes, steps)


async def _walked(http: httpx.AsyncClient, changes: Changes, steps: list[Step]) -> None:
    walks = [Walk(http, listing) for listing in LISTINGS]
    for one in walks:
        await one.compare()
    for limit, some in itertools.chain(steps, itertools.repeat((50, []))):
        for one in walks:
            await one.go_on(limit)
        if all(one.is_over for one in walks):
            break
        for what, count, seed in some:
            await changes.apply(what, count, seed)
            for one in walks:
                if not one.is_over:
                    await one.compare()
    for one in walks:
        one.judge()


def test_each_row_is_on_one_page_whatever_happens_between_the_pages(url: str) -> None:
    with asyncio.Runner() as runner:
        here_of = site(example_app(url), works=False)
        here = runner.run(here_of.__aenter__())
        try:
            changes = runner.run(_prepared(here))

            # Rows stay from one example to the next, so a smaller example would be of another database.
            @settings(
                max_examples=5,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                database=None,
                phases=[Phase.generate],
            )
            @given(STEPS)
            def walks(steps: list[Step]) -> None:
                runner.run(_walk_all(here, changes, steps))

            walks()
        finally:
            runner.run(here_of.__aexit__(None, None, None))


async def _prepared(here: Site) -> Changes:
    """Some rows in every list, ended ones, too."""
    store = await here.app.store()
    await here.app.services.publish([here.app.services.define("billing", "http://127.0.0.1:9/", {})])
    await store.sign_on(WALKER, LEASE_S)
    changes = Changes(here, store)
    for _ in range(2):
        for place, what in enumerate(WHAT):
            if what.startswith("insert"):
                await changes.apply(what, 4, place)
        await changes.apply("end_some", 3, 0)
    await changes.apply("cancel_jobs", 4, 0)
    return changes
