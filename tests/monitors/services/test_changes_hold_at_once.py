"""Adding, changing and removing services takes effect on the running fleet, without a restart."""

import asyncio
from typing import Any

import pytest

from everpoll.errors import ServiceNotFound

from .stage import REFUSED, URL, Said, Stage, gaps

OTHER = "http://other/"


def test_another_url_is_due_at_once_and_starts_over(stage: Stage) -> None:
    stage.client.scripts[URL] = REFUSED

    async def scene() -> None:
        app = stage.app()
        app.service("billing", URL, every="1h")
        async with app:
            await stage.clock.advance(10)
            assert (await app.services["billing"].info()).failures == 1
            app.service("billing", OTHER, every="1h")
            changed_at = stage.clock.now()
            await stage.clock.advance(2)
            [looked_at] = stage.client.times(OTHER)
            assert looked_at - changed_at <= 2.0
            info = await app.services["billing"].info()
            assert (info.status, info.failures, info.breaker) == ("up", 0, "closed")

    stage.play(scene)


def test_another_url_ends_the_wait_of_an_open_breaker(stage: Stage) -> None:
    stage.client.scripts[URL] = REFUSED

    async def scene() -> None:
        app = stage.app()
        app.service("billing", URL, every="5s")
        async with app:
            await stage.clock.advance(530)
            assert (await app.services["billing"].info()).breaker == "open"
            app.service("billing", OTHER, every="5s")
            await stage.clock.advance(2)
            assert (await app.services["billing"].info()).breaker == "closed"
            assert len(stage.client.times(OTHER)) == 1

    stage.play(scene)


@pytest.mark.parametrize(("before", "after", "after_s"), [("1h", "5s", 5.0), ("5s", "1h", 3600.0)])
def test_another_interval_holds_at_once(stage: Stage, before: str, after: str, after_s: float) -> None:
    async def scene() -> None:
        app = stage.app()
        app.service("billing", URL, every=before)
        async with app:
            await stage.clock.advance(20)
            app.service("billing", URL, every=after)
            changed_at = stage.clock.now()
            await stage.clock.advance(3 * after_s + 2)
            times = [at for at in stage.client.times() if at > changed_at]
            assert times[0] - changed_at <= after_s + 2
            assert set(gaps(times)) == {after_s}

    stage.play(scene)


def test_a_removed_service_is_gone_within_two_seconds(stage: Stage) -> None:
    async def scene() -> None:
        async with stage.service() as service:
            await stage.clock.advance(60)
            await service.remove()
            removed_at = stage.clock.now()
            await stage.clock.advance(2)
            with pytest.raises(ServiceNotFound):
                await service.info()
            assert await service.history() == [], "its records are forgotten"
            await stage.clock.advance(60)
            assert max(stage.client.times()) <= removed_at + 2

    stage.play(scene)


def test_services_are_added_while_the_app_runs(stage: Stage) -> None:
    async def scene() -> None:
        async with stage.service() as _:
            app = stage.app()
            async with app:
                app.service("late", OTHER, every="5s")
                await stage.clock.advance(7.1)
                assert stage.client.times(OTHER)

    stage.play(scene)


def test_an_app_without_anything_looks_at_the_first_service_that_it_is_given(stage: Stage) -> None:
    async def scene() -> None:
        app = stage.app()

        @app.loop(every="10s")
        async def tick() -> None:
            """An app of loops alone."""

        async with app:
            await stage.clock.advance(60)
            app.service("late", OTHER, every="5s")
            await stage.clock.advance(7.1)
            assert stage.client.times(OTHER)
            assert (await app.services["late"].info()).status == "up"

    stage.play(scene)


def test_services_that_are_added_while_others_are_published_are_published_too(stage: Stage) -> None:
    """The second one comes in the middle of the statement that publishes the first."""

    async def scene() -> None:
        app = stage.app()
        app.service("first", URL, every="5s")
        async with app:
            store, enqueue = stage.store, stage.store.enqueue

            async def slow(tasks: object) -> object:
                answers = await enqueue(tasks)  # type: ignore[arg-type]
                if "third" not in app.services:
                    app.service("third", "http://third/", every="5s")
                return answers

            store.enqueue = slow  # type: ignore[method-assign, assignment]
            app.service("second", OTHER, every="5s")
            await stage.clock.advance(8)
            assert stage.client.times(OTHER)
            assert stage.client.times("http://third/")

    stage.play(scene)


def test_a_slow_database_at_the_start_makes_one_worker_for_services(stage: Stage) -> None:
    """Publishing takes longer than the loop waits: it begins no second worker."""

    async def scene() -> None:
        app = stage.app()
        app.service("billing", URL, every="5s")
        enqueue = stage.store.enqueue

        async def slow(tasks: object) -> object:
            await asyncio.sleep(3)
            return await enqueue(tasks)  # type: ignore[arg-type]

        stage.store.enqueue = slow  # type: ignore[method-assign, assignment]
        async with app:
            await stage.clock.advance(20)
            workers = [one for one in await stage.store.workers() if "services" in one.label]
            assert len(workers) == 1

    stage.play(scene)


def test_a_service_of_another_process_is_looked_at_by_an_app_that_had_none(stage: Stage) -> None:
    """Only through the store: the process that adds it never looks itself."""

    async def scene() -> None:
        running, adding = stage.app(), stage.app()

        @running.job
        async def some_job() -> None:
            """It is what makes this app a worker."""

        async with running:
            await stage.clock.advance(30)
            adding.service("billing", URL, every="5s")
            await adding.services.publish(list(adding.services._definitions.values()))
            await stage.clock.advance(7.1)
            assert stage.client.times(URL)
            found = await running.services.find("billing")
            assert (await found.info()).status == "up"
            stage.client.scripts[URL] = Said({"status": "DOWN"}, 503)
            await stage.clock.advance(6)
            assert (await found.info()).status == "down"

    stage.play(scene)


def test_an_idle_app_without_services_asks_for_them_once_a_minute_at_most(stage: Stage) -> None:
    """The store tells when a task is enqueued; an app that is told nothing asks rarely."""

    async def scene() -> None:
        running, adding = stage.app(), stage.app()
        asked: set[float] = set()
        tasks = stage.store.tasks

        async def counted(*args: Any, **options: Any) -> Any:
            asked.add(stage.clock.wall())
            return await tasks(*args, **options)

        stage.store.tasks = counted  # type: ignore[method-assign]

        @running.job
        async def some_job() -> None:
            """It is what makes this app a worker."""

        async with running:
            await stage.clock.advance(600)
            idle = len(asked)
            assert idle <= 11
            for _ in range(50):
                await some_job.enqueue()
                await stage.clock.advance(0.1)
            assert len(asked) - idle <= 6, "five seconds of jobs: a question a second"
            adding.service("billing", URL, every="5s")
            await adding.services.publish(list(adding.services._definitions.values()))
            await stage.clock.advance(2)
            assert stage.client.times(URL), "a service elsewhere is looked at within two seconds"

    stage.play(scene)


def test_a_service_that_is_added_again_before_a_worker_has_removed_it_is_there_anew(stage: Stage) -> None:
    async def scene() -> None:
        app = stage.app()
        service = app.service("billing", URL, every="5s")
        async with app:
            await stage.clock.advance(60)
            await service.remove()
            added_at = stage.clock.now()
            app.service("billing", URL, every="5s")
            await stage.clock.advance(7)
            info = await service.info()
            assert not info.is_removed
            history = await service.history()
            assert history, "it is looked at"
            assert min(look.at for look in history) >= added_at, "the records of the old one are forgotten"

    stage.play(scene)


def test_a_service_whose_removal_no_worker_has_done_is_there_anew_after_the_next_start(stage: Stage) -> None:
    async def scene() -> None:
        async with stage.service() as service:
            await stage.clock.advance(10)
        await service.remove()
        app = stage.app()
        app.service("billing", URL, every="5s")
        async with app:
            await stage.clock.advance(9)
            assert not (await app.services["billing"].info()).is_removed
            assert await app.services["billing"].history()

    stage.play(scene)


def test_a_service_that_is_removed_while_it_is_published_is_published_whole(stage: Stage) -> None:
    """The old task ends between the answer that it is there and the look at what it has."""

    async def scene() -> None:
        async with stage.service() as service:
            other = stage.app()
            other.service("billing", URL, every="5s")
            enqueue = stage.store.enqueue

            async def late(tasks: object) -> object:
                answers = await enqueue(tasks)  # type: ignore[arg-type]
                stage.store.enqueue = enqueue  # type: ignore[method-assign]
                await service.remove()
                await asyncio.sleep(2)
                return answers

            stage.store.enqueue = late  # type: ignore[method-assign, assignment]
            async with other:
                await stage.clock.advance(10)
                assert (await other.services["billing"].info()).status == "up"

    stage.play(scene)


@pytest.mark.parametrize("after_s", [0.0, 0.03, 0.06, 0.09])
def test_a_look_just_before_the_removal_leaves_no_record(stage: Stage, after_s: float) -> None:
    """It waits to be written, with others, when its service is removed: by its own process, or by another one."""

    async def scene() -> None:
        async with stage.service() as service, stage.app():
            await stage.clock.advance(20)
            before = len(stage.client.times())
            while len(stage.client.times()) == before:  # noqa: ASYNC110 - the look is what it waits for
                await asyncio.sleep(0.001)
            await asyncio.sleep(after_s)
            await service.remove()
            await stage.clock.advance(3)
            assert await stage.store.health.last_looks(["billing"], 1) == {}

    stage.play(scene)
