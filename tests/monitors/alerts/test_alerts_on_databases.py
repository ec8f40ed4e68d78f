"""The same on real databases and over real HTTP, in real time: two processes, one alert, one recovery."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from everpoll.engine.options import WorkerOptions
from everpoll.engine.work import WorkRegistry
from everpoll.engine.worker import Worker
from everpoll.http import HttpClient
from everpoll.monitors.alerting import Alert
from everpoll.monitors.alerts import delivery
from everpoll.monitors.alerts.channels import Channels
from everpoll.monitors.alerts.incidents import Incidents
from everpoll.monitors.alerts.mailbox import KIND as MAILBOX_KIND
from everpoll.monitors.alerts.outbox import Outbox
from everpoll.monitors.alerts.runtime import Alerts
from everpoll.monitors.alerts.signing import is_authentic
from everpoll.monitors.alerts.webhook import Webhook
from everpoll.monitors.checks import assignment as assignments
from everpoll.monitors.checks.assignment import CHECK, KIND, QUEUE, Assignment
from everpoll.monitors.control import write as write_control
from everpoll.monitors.decision import register
from everpoll.monitors.options import Bounds, ServiceOptions, define
from everpoll.monitors.report import Status
from everpoll.policy import Backoff
from everpoll.stores.contract import NewTask, Store
from everpoll.stores.urls import store_for

from .notices import notice
from .receiver import Receiver, receiving
from .stage import ScriptedChecks, World

ODD = "käse \"' :1"
LIMIT_S = 120.0
"""Far more than it takes: a test that needs it has failed."""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'alerts.db'}"
    else:
        yield request.getfixturevalue("postgres_url")


@asynccontextmanager
async def process(url: str, world: World, channels: Channels) -> AsyncIterator[Store]:
    store, client = store_for(url), HttpClient()
    await store.open()
    alerts = Alerts(store, channels, client, {"SECRET": "s3cret"})
    works = WorkRegistry()
    for work in (*alerts.works, ScriptedChecks(world, alerts.rows).work):
        works.add(work)
    works.more_queues = alerts.queues
    worker = Worker(store, works, WorkerOptions(slots=20, keep_s=None, label="services"))
    await worker.start()
    try:
        yield store
    finally:
        await worker.stop(2.0)
        await alerts.close()
        await client.close()
        await store.close()


async def publish(store: Store, name: str) -> None:
    alert = Alert(after=2, to=["ops"])
    options: ServiceOptions = {"every": "200ms", "alert": alert, "backoff": None, "breaker": None}
    definition = define(name, "http://127.0.0.1/", options, Bounds("100ms"))
    first = register(definition, time.time())
    args = assignments.write(Assignment(definition=definition))
    memory = write_control(first.control)
    await store.enqueue([NewTask(name=CHECK, args=args, kind=KIND, queue=QUEUE, key=name, memory=memory, indexed=True)])


async def arrived(receiver: Receiver, how_many: int) -> list[str]:
    """Kind and service of every notice, once there are so many."""
    async with asyncio.timeout(LIMIT_S):
        while len(found := messages(receiver)) < how_many:
            receiver.arrived.clear()
            await receiver.arrived.wait()
    return found


def messages(receiver: Receiver) -> list[str]:
    return [
        f"{one['kind']} {one['service']}"
        for got in receiver.received
        if got.status == 200
        for one in got.json["notices"]
    ]


async def test_two_processes_send_one_alert_and_one_recovery(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "RETRY", Backoff("100ms"))
    world, channels = World(), Channels()
    async with AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(receiving())
        receiver.statuses = [503]
        channels.add("ops", Webhook(receiver.url, "${SECRET}"), "0s")
        store = await stack.enter_async_context(process(url, world, channels))
        await stack.enter_async_context(process(url, world, channels))

        async def opened() -> Store:
            return store

        incidents = Incidents(opened, lambda: 2e9)
        world.statuses = {"billing": Status.DOWN, ODD: Status.DOWN}
        await publish(store, "billing")
        await publish(store, ODD)
        # The first answer was 503: nothing arrived, and it is tried again.
        assert sorted(await arrived(receiver, 2)) == ["alert billing", f"alert {ODD}"]
        await incidents.acknowledge((await incidents.list(service="billing"))[0].id, "ada")
        world.statuses = {}
        assert sorted((await arrived(receiver, 4))[2:]) == ["recovered billing", f"recovered {ODD}"]
        async with asyncio.timeout(LIMIT_S):
            while await incidents.list():  # noqa: ASYNC110 - a worker is what it waits for
                await asyncio.sleep(0.02)
        past = await incidents.list(open=False)
    assert {one.service: one.acknowledged_by for one in past} == {"billing": "ada", ODD: None}
    assert len({one.id for one in past}) == 2
    assert len(messages(receiver)) == 4
    for got in receiver.received:
        assert is_authentic("s3cret", got.headers, got.body, float(got.headers["webhook-timestamp"]))


async def test_many_processes_hand_over_to_one_mailbox_and_lose_nothing(url: str) -> None:
    stores = [store_for(url) for _ in range(4)]
    for store in stores:
        await store.open()
    try:
        outboxes = [Outbox(store, Channels()) for store in stores for _ in range(3)]
        names = [f"s{number}" for number in range(120)]
        await asyncio.gather(
            *(
                outboxes[place % len(outboxes)].hand_over([notice(name), notice("all")])
                for place, name in enumerate(names)
            )
        )
        row = await stores[0].find(MAILBOX_KIND, "ops")
        assert row is not None
        assert sorted(one["service"] for one in row.args["notices"]) == sorted([*names, "all"])
    finally:
        for store in stores:
            await store.close()
