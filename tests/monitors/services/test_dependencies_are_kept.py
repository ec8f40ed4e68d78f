"""What services report of their dependencies, from the answer to the records, the events and their numbers."""

from itertools import count
from typing import Any

import pytest

from everpoll.monitors import dependencies
from everpoll.monitors.checks import known
from everpoll.monitors.events import PollComplete, PollError, ServiceEvent, payload
from everpoll.stores.health import Retention

from .stage import REFUSED, URL, Said, Stage


def dependency(name: str = "db", healthy: object = True, latency: object = 12, **more: Any) -> dict[str, Any]:
    return {"name": name, "healthy": healthy, "health": {"state": 0, "code": 200, "latency": latency}, **more}


def test_a_dependency_is_upserted_by_service_and_name(stage: Stage) -> None:
    full = dependency(
        type="database",
        impact="no orders",
        description="orders",
        contact={"team": "dba"},
        checkDetails={"type": "query"},
    )
    stage.client.scripts[URL] = Said([full])

    async def scene() -> None:
        async with stage.service() as service:
            [one] = await service.dependencies()
            assert (one.name, one.status, one.healthy, one.skipped, one.latency_ms) == ("db", "up", True, False, 12)
            assert (one.type, one.impact, one.description) == ("database", "no orders", "orders")
            assert (one.contact, one.check_details) == ({"team": "dba"}, {"type": "query"})
            changed_at = one.changed_at
            odd = {**full, "contact": {"team": "core"}, "checkDetails": "many", "impact": 7, "type": ["x"]}
            stage.client.scripts[URL] = Said([odd])
            await stage.looked_at()
            [one] = await service.dependencies()
            assert one.contact == {"team": "core"}, "contact follows the latest look"
            assert (one.check_details, one.type) == (None, "other"), "invalid optional fields are ignored"
            assert (one.status, one.changed_at) == ("up", changed_at), "its health has not changed"

    stage.play(scene)


def test_two_services_have_a_row_each_for_one_dependency_and_aliases_name_both(stage: Stage) -> None:
    stage.client.scripts[URL] = Said([dependency("pg-main")])
    stage.client.scripts["http://other/"] = Said([dependency("PostgreSQL", healthy=False)])

    async def scene() -> None:
        app = stage.app()
        one, two = app.service("one", URL, every="5s"), app.service("two", "http://other/", every="5s")
        async with app:
            await stage.clock.advance(6)
            assert [each.canonical for each in await one.dependencies()] == ["pg-main"]
            app.services.alias("pg-main", "PostgreSQL")
            await stage.clock.advance(6)
            [first], [second] = await one.dependencies(), await two.dependencies()
            assert (first.name, first.canonical, first.status) == ("pg-main", "PostgreSQL", "up")
            assert (second.name, second.canonical, second.status) == ("PostgreSQL", "PostgreSQL", "down")

    stage.play(scene)


def test_a_skipped_dependency_counts_as_healthy_and_is_marked(stage: Stage) -> None:
    stage.client.scripts[URL] = Said([{"name": "db", "healthy": False, "health": {"skipped": True, "state": 2}}])

    async def scene() -> None:
        async with stage.service() as service:
            [one] = await service.dependencies()
            assert (one.status, one.healthy, one.skipped) == ("up", True, True)
            assert (await service.info()).status == "up"
            assert await service.errors("db") == []

    stage.play(scene)


def test_errors_are_in_the_history_when_they_change(stage: Stage) -> None:
    """Recovery once, a new error once, a different one again; `{"unhealthy": true}` where there is no error object."""
    reports: list[dict[str, Any]] = [
        dependency(),
        dependency(healthy=False),
        dependency(healthy=False, latency=13),
        dependency(healthy=False, errorMessage="too slow"),
        dependency(healthy=False, error={"code": "ECONNREFUSED"}, errorMessage="refused"),
        dependency(healthy=False, error={"code": "ECONNREFUSED"}, errorMessage="refused", latency=14),
        dependency(error=None),
        dependency(latency=15),
    ]

    async def scene() -> None:
        stage.client.scripts[URL] = Said(reports[:1])
        async with stage.service() as service:
            for report in reports[1:]:
                stage.client.scripts[URL] = Said([report])
                await stage.looked_at()
                await stage.looked_at()
            entries = [(one.error, one.error_message) for one in reversed(await service.errors("db"))]
            assert entries == [
                ({"unhealthy": True}, "Unhealthy"),
                ({"unhealthy": True}, "too slow"),
                ({"code": "ECONNREFUSED"}, "refused"),
                (None, None),
            ]

    stage.play(scene)


def test_every_look_with_a_latency_above_zero_is_in_the_latency_history(stage: Stage) -> None:
    """Also where the body is the same every time."""
    stage.client.scripts[URL] = Said(
        [dependency(latency=12), dependency("cache", latency=0), dependency("mq", True, -1)]
    )

    async def scene() -> None:
        async with stage.service() as service:
            await stage.clock.advance(50)
            looks = await service.history()
            points = await service.latencies("db")
            assert len(points) == len(looks) >= 10
            assert {one.latency_ms for one in points} == {12}
            assert await service.latencies("cache") == await service.latencies("mq") == []

    stage.play(scene)


def test_dependencies_appear_vanish_and_return(stage: Stage) -> None:
    stage.client.scripts[URL] = Said([dependency("db")])

    async def scene() -> None:
        async with stage.service() as service:
            stage.client.scripts[URL] = Said([dependency("db"), dependency("cache", healthy=False)])
            await stage.looked_at()
            stage.client.scripts[URL] = Said([dependency("cache", healthy=False)])
            await stage.looked_at()
            assert [one.name for one in await service.dependencies()] == ["cache"]
            stage.client.scripts[URL] = Said("<h1>oops</h1>", 500)
            await stage.looked_at()
            assert [one.name for one in await service.dependencies()] == ["cache"], "an error page lists nothing"
            stage.client.scripts[URL] = Said([dependency("db")])
            await stage.looked_at()
            kinds = [
                (one.kind, getattr(one, "dependency_name", None))
                for one in await stage.events()
                if one.kind.startswith("dependency:")
            ]
            assert kinds == [
                ("dependency:new", "db"),
                ("dependency:new", "cache"),
                ("dependency:vanished", "db"),
                ("dependency:returned", "db"),
                ("dependency:vanished", "cache"),
            ]

    stage.play(scene)


def test_warnings_are_stored_with_the_service_and_replaced_at_every_look(stage: Stage) -> None:
    broken = [dependency("db"), {"name": "x", "healthy": "yes"}, {"name": "x", "healthy": "yes"}, 7]
    stage.client.scripts[URL] = Said(broken)

    async def scene() -> None:
        async with stage.service() as service:
            info = await service.info()
            assert len(info.warnings) == len(set(info.warnings)) == 2
            assert [one.name for one in await service.dependencies()] == ["db"], "one bad item fails nothing"
            await stage.looked_at()
            assert (await service.info()).warnings == info.warnings, "also of a body that has not changed"
            stage.client.scripts[URL] = Said([dependency("db"), {"healthy": True}])
            await stage.looked_at()
            assert (await service.info()).warnings == ("item 1: has no name",)
            stage.client.scripts[URL] = Said([dependency("db")])
            await stage.looked_at()
            assert (await service.info()).warnings == ()

    stage.play(scene)


def test_a_mapping_reads_other_shapes_and_warns_of_what_it_cannot_read(stage: Stage) -> None:
    mapping = {"root": "parts", "fields": {"name": "$key", "healthy": {"field": "state", "equals": "OK"}}}
    stage.client.scripts[URL] = Said({"parts": {"db": {"state": "ok"}, "mq": {"state": "bad"}, "odd": {}}})

    async def scene() -> None:
        async with stage.service(mapping=mapping) as service:
            found = {one.name: one.status for one in await service.dependencies()}
            assert found == {"db": "up", "mq": "down"}
            assert len((await service.info()).warnings) == 1

    stage.play(scene)


def test_events_have_their_payloads_and_numbers(stage: Stage) -> None:
    stage.client.scripts[URL] = Said([dependency("db")])
    answer: list[ServiceEvent] = []

    async def scene() -> None:
        app = stage.app()
        app.services.subscribe(answer.append)
        service = app.service("billing", URL, every="5s", depends_on=())
        async with app:
            await stage.looked_at()
            stage.client.scripts[URL] = Said([dependency("db", healthy=False, errorMessage="refused")])
            await stage.looked_at()
            stage.client.scripts[URL] = REFUSED
            await stage.looked_at()
            events = await stage.events()
            kinds = [one.kind for one in events]
            assert kinds[:3] == ["service:started", "status:change", "dependency:new"]
            [change] = [
                payload(one) for one in events if one.kind == "status:change" and payload(one)["dependencyName"] == "db"
            ]
            assert change | {"timestamp": 0} == {
                "kind": "status:change",
                "serviceId": "billing",
                "serviceName": "billing",
                "timestamp": 0,
                "dependencyName": "db",
                "previousHealthy": True,
                "currentHealthy": False,
                "previousStatus": "up",
                "currentStatus": "down",
                "error": "refused",
            }
            for number in range(len(events) + 1):
                assert await stage.events(after=number) == events[number:], "the first event has the number 1"
            assert (await service.info()).status == "down"
        completed = [one for one in answer if isinstance(one, PollComplete)]
        failed = [one for one in answer if isinstance(one, PollError)]
        looks = len(stage.client.asked)
        assert len(completed) == looks
        assert [one.success for one in completed[:3]] == [True, True, False]
        assert completed[0].dependencies_updated == 1
        assert failed[0].error == "the connection was refused"

    stage.play(scene)


def test_reports_are_stale_after_three_intervals_without_an_answer(stage: Stage) -> None:
    """The service itself is down, which is known; of its dependencies nothing is known any more."""
    stage.client.scripts[URL] = Said([dependency("db")])

    async def scene() -> None:
        async with stage.service() as service:
            stage.client.scripts[URL] = REFUSED
            await stage.clock.advance(14)
            [one] = await service.dependencies()
            assert one.status == "up"
            await stage.clock.advance(2)
            [one] = await service.dependencies()
            assert (one.status, one.healthy) == ("unknown", None)
            assert (await service.info()).status == "down"

    stage.play(scene)


def test_a_status_is_stale_after_three_intervals_without_a_look(stage: Stage) -> None:
    """No process runs any more."""

    async def scene() -> None:
        async with stage.service() as service:
            assert (await service.info()).status == "up"
        found = await stage.app().services.find("billing")
        await stage.clock.advance(14)
        assert (await found.info()).status == "up"
        await stage.clock.advance(6)
        info = await found.info()
        assert (info.status, info.healthy) == ("stale", None)

    stage.play(scene)


def test_status_latency_and_last_error_are_stored_after_each_look(stage: Stage) -> None:
    stage.client.takes_s = 0.25

    async def scene() -> None:
        async with stage.service() as service:
            await stage.clock.advance(1)
            info = await service.info()
            assert (info.status, info.latency_ms, info.error, info.http_status) == ("up", 250, None, 200)
            stage.client.scripts[URL] = Said({"status": "DOWN"}, 503)
            await stage.looked_at()
            await stage.clock.advance(1)
            info = await service.info()
            assert (info.status, info.latency_ms, info.error, info.http_status) == ("down", 250, "HTTP 503", 503)
            newest = (await service.history())[0]
            assert (newest.status, newest.latency_ms, newest.error) == ("down", 250, "HTTP 503")
            assert newest.http_status == 503
            stage.client.scripts[URL] = REFUSED
            await stage.looked_at()
            await stage.clock.advance(1)
            info, newest = await service.info(), (await service.history())[0]
            assert (info.status, info.latency_ms, info.error, info.http_status) == ("down", None, REFUSED.reason, None)
            assert (newest.status, newest.latency_ms, newest.error) == ("down", None, REFUSED.reason)
            assert newest.http_status is None

    stage.play(scene)


def test_a_service_that_renames_its_dependencies_at_every_look_fills_no_database(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that it has named first stay known; the others are left out with a warning, until there is room again."""
    monkeypatch.setattr(dependencies, "MAX_KNOWN", 250)
    monkeypatch.setattr(known, "MAX_KNOWN", 250)
    numbers = count()
    stage.client.scripts[URL] = lambda: Said([dependency(f"pod-{next(numbers)}") for _ in range(100)])

    async def scene() -> None:
        async with stage.service() as service:
            await stage.clock.advance(30)
            rows = await stage.store.health.dependencies("billing")
            assert len(rows) == 250
            events = len(await stage.events())
            [warning] = (await service.info()).warnings
            assert warning.startswith("100 new dependencies are left out: ")
            await stage.clock.advance(60)
            assert len(await stage.store.health.dependencies("billing")) == 250
            assert len(await stage.events()) == events, "nothing that was left out has an event"
            stage.client.scripts[URL] = Said([dependency("pod-1"), dependency("new")])
            await stage.clock.advance(10)
            assert [one.name for one in await service.dependencies()] == ["pod-1"]
            await stage.clock.advance(10)
            assert (await service.info()).warnings, "it warns as long as it is so, also where the answer stays the same"
            # What vanished is forgotten after 90 days, and here after a second.
            await stage.store.health.prune(stage.clock.wall(), Retention(errors_s=1))
            await stage.clock.advance(known.FULL_S + 10)
            assert {one.name for one in await service.dependencies()} == {"pod-1", "new"}, "there is room again"
            assert (await service.info()).warnings == ()

    stage.play(scene)
