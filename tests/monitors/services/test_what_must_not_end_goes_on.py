"""Services, incidents, mailboxes and the upkeep go on, whatever workers died with them; what was removed stays away."""

import asyncio
import itertools
from typing import Any

import pytest

from everpoll import Everpoll
from everpoll.errors import ServiceNotFound, StoreUnavailable
from everpoll.monitors.alerting import Alert, Message
from everpoll.monitors.alerts.mailbox import KIND as MAILBOX
from everpoll.monitors.alerts.mailbox import Mail, write
from everpoll.monitors.checks.assignment import QUEUE
from everpoll.monitors.checks.upkeep import KIND as UPKEEP
from everpoll.monitors.services import Services
from everpoll.stores.contract import Again, Ended, NewTask, Settlement, Store, TaskInfo, WorkerCard
from everpoll.stores.operations import Revision

from .stage import URL, Said, Stage

OTHER = "http://other/"
LEASE_S = 5.0
_incarnations = itertools.count(1_000)


async def lease(store: Store, kind: str, key: str) -> tuple[int, Settlement]:
    """Lease one task as a worker that never beats; what else it got is handed back."""
    incarnation = next(_incarnations)
    card = WorkerCard(incarnation=incarnation, label="mortal", host="h", pid=1, queues=(QUEUE,), slots=99, version="0")
    await store.sign_on(card, LEASE_S)
    await store.revise([Revision(kind, key, hurry=True)])
    found = await store.find(kind, key)
    assert found is not None
    wanted = None
    for one in (await store.lease(incarnation, {QUEUE: 100}, 100)).leases:
        if one.id == found.id:
            wanted = Ended(one.id, one.sequence, "failed")
        else:
            await store.settle(incarnation, [Again(one.id, one.sequence, refund=True)])
    assert wanted is not None
    return incarnation, wanted


async def give_up(store: Store, kind: str, key: str) -> None:
    """End a task as one that three workers died with."""
    incarnation, failed = await lease(store, kind, key)
    await store.settle(incarnation, [failed])
    await store.sign_off(incarnation)


async def row_of(store: Store, kind: str, key: str) -> TaskInfo:
    row = await store.find(kind, key)
    assert row is not None
    return row


def test_a_service_that_was_given_up_is_looked_at_again_within_a_minute(stage: Stage) -> None:
    async def scene() -> None:
        adding = stage.app()
        adding.service("billing", URL, every="5s")
        await adding.services.publish(list(adding.services._definitions.values()))
        await give_up(stage.store, "check", "billing")
        async with stage.service("other", OTHER):
            assert stage.client.times(URL) == []
            await stage.clock.advance(70)
            assert stage.client.times(URL)
            assert (await (await stage.app().services.find("billing")).info()).status == "up"

    stage.play(scene)


def test_a_mailbox_that_was_given_up_goes_on(stage: Stage) -> None:
    async def scene() -> None:
        memory = write(Mail()).decode()
        about: dict[str, Any] = {
            "name": "everpoll.mailbox",
            "kind": MAILBOX,
            "queue": QUEUE,
            "key": "ops",
            "args": "{}",
        }
        await stage.store.enqueue([NewTask(**about, memory=memory, indexed=True, cancels_itself=True)])
        await give_up(stage.store, MAILBOX, "ops")
        async with stage.service():
            await stage.clock.advance(70)
            assert (await row_of(stage.store, MAILBOX, "ops")).ended_at is None

    stage.play(scene)


def test_a_service_that_was_removed_does_not_come_back_because_an_earlier_one_was_given_up(stage: Stage) -> None:
    async def scene() -> None:
        adding = stage.app()
        adding.service("billing", URL, every="5s")
        await adding.services.publish(list(adding.services._definitions.values()))
        await give_up(stage.store, "check", "billing")
        async with stage.service("other", OTHER) as _:
            await adding.services.publish(list(adding.services._definitions.values()))
            await stage.clock.advance(10)
            await adding.services["billing"].remove()
            await stage.clock.advance(150)
            with pytest.raises(ServiceNotFound):
                await stage.app().services.find("billing")

    stage.play(scene)


def test_the_upkeep_outlives_any_number_of_workers_that_die_with_it_now_and_then(stage: Stage) -> None:
    async def scene() -> None:
        async with stage.service():
            await stage.clock.advance(61)
            for _ in range(4):
                await lease(stage.store, UPKEEP, "health")
                await stage.clock.advance(100)
            assert (await row_of(stage.store, UPKEEP, "health")).ended_at is None

    stage.play(scene)


def test_a_service_that_is_added_while_the_database_is_away_is_published_when_it_is_back(stage: Stage) -> None:
    async def scene() -> None:
        async with stage.service():
            app = stage.app()
            app.service("first", "http://first/", every="5s")
            async with app:
                enqueue = stage.store.enqueue

                async def away(tasks: object) -> object:
                    raise StoreUnavailable("the database is away")

                stage.store.enqueue = away  # type: ignore[method-assign, assignment]
                app.service("late", OTHER, every="5s")
                await stage.clock.advance(30)
                assert stage.client.times(OTHER) == []
                stage.store.enqueue = enqueue  # type: ignore[method-assign]
                await stage.clock.advance(7.1)
                assert stage.client.times(OTHER)

    stage.play(scene)


def test_what_waits_to_be_sent_about_services_that_are_gone_is_sent_by_an_app_without_services(stage: Stage) -> None:
    stage.client.scripts[URL] = Said({"status": "DOWN"}, 503)
    answer: list[Message] = []

    async def scene() -> None:
        async with stage.service(alert=Alert(after=1, to=["ops"])) as service:
            await stage.clock.advance(5)
            await service.remove()
            await stage.clock.advance(5)
        later = stage.app()

        @later.job
        async def some_job() -> None:
            """It is what makes this app a worker."""

        later.services.channel("ops", answer.append)
        async with later:
            await stage.clock.advance(90)
        [message] = answer
        assert "billing" in message.subject

    stage.play(scene)


@pytest.mark.parametrize("apart_s", [-86_400.0, -3.0, 3.0, 86_400.0])
def test_a_look_that_is_asked_for_is_made_whatever_the_clock_of_the_caller_says(stage: Stage, apart_s: float) -> None:
    async def scene() -> None:
        async with stage.service(every="1h"):
            caller = await _caller(stage, apart_s).find("billing")
            for _ in range(3):
                before = len(stage.client.times())
                stage.client.scripts[URL] = Said({"status": "DOWN"}, 503) if before % 2 else Said()
                info = await asyncio.wait_for(caller.check(), 5)
                assert len(stage.client.times()) == before + 1
                assert info.http_status == (503 if before % 2 else 200)

    stage.play(scene)


@pytest.mark.parametrize("apart_s", [-86_400.0, -3.0, 3.0, 86_400.0])
def test_every_heartbeat_counts_whatever_the_clock_of_its_sender_says(stage: Stage, apart_s: float) -> None:
    async def scene() -> None:
        app = stage.app()
        app.service("backup", "beat:", every="1m", timeout="10s")
        async with app:
            sender = await _caller(stage, apart_s).find("backup")
            for _ in range(5):
                await sender.beat()
                await stage.clock.advance(65)
                assert (await app.services["backup"].info()).status == "up"
            await stage.clock.advance(10)
            assert (await app.services["backup"].info()).status == "down"

    stage.play(scene)


def _caller(stage: Stage, apart_s: float) -> Services:
    """The services as another host sees them, whose clock is that much ahead."""

    async def store() -> Store:
        return stage.store

    return Services(store, lambda: stage.clock.wall() + apart_s, "caller")


def test_an_app_of_services_alone_drops_old_history(stage: Stage) -> None:
    """Of a service that flaps for a day, events and incidents of the last six hours are kept, and no others."""
    answers = itertools.cycle([Said(status=503), Said()])
    stage.client.scripts[URL] = lambda: next(answers)

    async def scene() -> None:
        app = Everpoll(stage.store, clock=stage.clock, history="6h")
        app.service("billing", URL, every="1h", alert=Alert(after=1))
        async with app:
            await stage.clock.advance(86_400)
            past = await app.services.incidents.list(open=False, limit=1000)
            assert past
            oldest = stage.clock.wall() - 1.3 * 6 * 3_600
            assert min(one.closed_at or 0.0 for one in past) > oldest
            events = await stage.store.task_events((await app.services.row("billing")).id, 0)
            assert min(one.body["timestamp"] for one in events) > oldest

    stage.play(scene)


def test_an_app_that_has_only_channels_looks_at_services_of_the_command_line(stage: Stage) -> None:
    async def scene() -> None:
        adding = stage.app()
        adding.service("billing", URL, every="5s")
        running = stage.app()
        running.services.channel("ops", lambda _: None)
        async with running:
            await stage.clock.advance(3)
            await adding.services.publish(list(adding.services._definitions.values()))
            await stage.clock.advance(8)
            assert stage.client.times(URL)

    stage.play(scene)
