"""A scrape tells what this process did and what waits in the store; dashboard and alerts ask for what is there."""

import asyncio
import itertools
import json
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import yaml
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from everpoll import Backoff, Budget, Everpoll, Retry
from everpoll.engine.tally import Batch, Tally
from everpoll.engine.tally_entry import Entry
from everpoll.jobs.schedule_listing import ScheduleInfo, list_schedules
from everpoll.server import metrics as metrics_module
from everpoll.server.metric_families import BOUNDS_S, schedules, set_aside, tasks
from everpoll.server.metrics import Metrics
from everpoll.stores.contract import Ended, Lease, NewTask, Store, TaskFilter, TaskInfo
from everpoll.stores.flows import FlowTask
from everpoll.stores.set_aside import UNKNOWN_JOB, is_set_aside, set_aside_note
from everpoll.testing import VirtualClock
from everpoll.watches import Done

DEPLOY = Path(__file__).parents[2] / "deploy"
LABELS = {
    *("kind", "name", "queue", "outcome", "le", "poller", "watch", "what", "loop", "phase", "state", "status"),
    *("schedule",),
}


async def scraped(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample, by its name and labels."""
    text = (await metrics.text()).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def made() -> Everpoll:
    """An app with something of each front."""
    app = Everpoll("memory://")

    @app.job(queue="mail", retry=Retry(1))
    async def send(number: int) -> None:
        if number < 0:
            raise ValueError(number)

    @app.watch(every=Backoff("1s"), budget=Budget("1m"))
    async def build(op: str, w: object) -> Done:
        return Done(op)

    @app.loop(every="1h")
    async def refresh() -> None:
        """Do nothing."""

    return app


async def test_jobs_watches_loops_and_queues_are_told() -> None:
    app = made()
    metrics = Metrics(app)
    async with app:
        sent = [await app.jobs["send"].enqueue(number) for number in (1, 2, -1)]
        await app.jobs["send"].enqueue(4, delay="1h")
        run = await app.watches["build"].begin("x", id="run")
        await asyncio.gather(*(one.result() for one in sent), run.result(), return_exceptions=True)
        found = await scraped(metrics)

    def value(name: str, /, **labels: str) -> float:
        return found[name, tuple(sorted(labels.items()))]

    assert value("everpoll_tasks_total", kind="job", name="send", queue="mail", outcome="done") == 2
    assert value("everpoll_tasks_total", kind="job", name="send", queue="mail", outcome="failed") == 1
    assert value("everpoll_tasks_total", kind="watch", name="build", queue="default", outcome="done") == 1
    assert value("everpoll_job_waiting_seconds_count", name="send", queue="mail") == 3
    assert value("everpoll_job_running_seconds_bucket", name="send", queue="mail", le="+Inf") == 3
    assert value("everpoll_look_lateness_seconds_count", kind="watch", name="build", queue="default") >= 1
    assert value("everpoll_watch_counts_total", watch="build", what="looks") == 1
    assert value("everpoll_loop_phase", loop="refresh", phase="waiting") == 1
    assert value("everpoll_queue_tasks", queue="mail", state="waiting") == 1
    assert value("everpoll_poller_healthy", poller="jobs") == 1
    assert value("everpoll_poller_settled_total", poller="jobs") >= 4
    assert value("everpoll_workers", state="alive") >= 1
    assert value("everpoll_store_up") == 1


async def test_schedules_set_aside_tasks_and_child_processes_are_told() -> None:
    """A schedule that no live worker registers is reported from one that a worker does."""
    app = Everpoll("memory://", processes=3)

    @app.schedule(every="1h", name="hourly")
    @app.job()
    async def report() -> None: ...

    async with app:
        store = await app.store()
        await store.enqueue([NewTask(name="unknown", queue="default")])
        await _until(lambda: _is_ready(store))
        await store.enqueue_flow(
            [FlowTask(NewTask(name="after"), None, "end"), FlowTask(NewTask(name="x", delay_s=9.0), 0)]
        )
        child = _LiveChild()
        app.jobs.children._all.add(child)  # type: ignore[arg-type]
        found = await scraped(Metrics(app))
        app.jobs.children._all.discard(child)
        assert found["everpoll_schedule_registered", (("schedule", "hourly"),)] == 1
        assert found["everpoll_schedule_lateness_seconds", (("schedule", "hourly"),)] >= 0
        assert found["everpoll_set_aside_tasks", (("queue", "default"),)] == 1
        assert found["everpoll_queue_tasks", (("queue", "default"), ("state", "blocked"))] == 1
        assert found["everpoll_process_children_busy", ()] == 1
        assert found["everpoll_process_children_limit", ()] == 3


class _LiveChild:
    """A child process that runs a function."""

    is_alive = True


async def _is_ready(store: Store) -> bool:
    page = await store.tasks(TaskFilter(name="unknown"))
    return is_set_aside(page.tasks[0].trail) and bool(await list_schedules(store))


async def _until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        for _ in itertools.count():
            if await is_so():
                return
            await asyncio.sleep(0.01)


def test_a_schedule_without_a_worker_is_late() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    lost = ScheduleInfo(
        name="a", job="b", timetable="", missed="once", next_at=at, last_at=None, is_registered=False, task_id=1
    )
    reported = {one.name: one.samples[0].value for one in schedules([lost], at.timestamp() + 90.0)}
    assert reported == {"everpoll_schedule_registered": 0, "everpoll_schedule_lateness_seconds": 90.0}


def test_a_retry_after_an_error_of_the_same_class_is_not_set_aside() -> None:
    """The index of errors finds both: a job whose own code raised `JobNotFound` waits for its next attempt."""
    at = datetime(2030, 1, 1, tzinfo=UTC)
    trails = (
        json.loads(set_aside_note("no worker registers it", 0.0, None)),
        {"what": "failed", "type": UNKNOWN_JOB, "error": "no job is called that"},
    )
    found = [
        TaskInfo(
            id=number,
            kind="job",
            name="a",
            queue="mail",
            key=None,
            state="queued",
            priority=0,
            attempt=1,
            rescues=0,
            created_at=at,
            due_at=at,
            trail=(note,),
        )
        for number, note in enumerate(trails)
    ]
    [family] = set_aside(found)
    assert [(one.labels, one.value) for one in family.samples] == [({"queue": "mail"}, 1)]


async def test_services_are_told() -> None:
    app = Everpoll("memory://")
    app.service("closed", "tcp://127.0.0.1:9", every="5s")
    metrics = Metrics(app)
    seen = asyncio.Event()
    app.services.subscribe(lambda _: seen.set())
    async with app:
        await seen.wait()
        found = await scraped(metrics)
    assert sum(value for (name, _), value in found.items() if name == "everpoll_service_looks_total") >= 1
    assert sum(value for (name, _), value in found.items() if name == "everpoll_services") == 1
    for name in ("everpoll_service_breakers_open", "everpoll_incidents_open", "everpoll_outbox_notices"):
        assert found[name, ()] >= 0
    assert found["everpoll_alerts_total", (("outcome", "sent"),)] == 0


async def test_names_units_and_labels() -> None:
    """All under one prefix, counters and times by their endings, labels from a fixed set."""
    app = made()
    async with app:
        text = (await Metrics(app).text()).decode()
    families = list(text_string_to_metric_families(text))
    assert len(families) > 20
    for family in families:
        assert family.name.startswith("everpoll_")
        assert family.documentation
        if family.type == "histogram":
            assert family.name.endswith("_seconds")
        for sample in family.samples:
            assert family.type != "counter" or sample.name.endswith("_total")
            assert set(sample.labels) <= LABELS


def test_the_registry_of_the_program_is_left_alone() -> None:
    Metrics(made())
    assert not any(family.name.startswith("everpoll_") for family in REGISTRY.collect())


async def test_an_app_of_loops_asks_no_store() -> None:
    app = Everpoll("postgresql://nowhere.invalid/nothing")

    @app.loop(every="1h")
    async def refresh() -> None:
        """Do nothing."""

    async with app:
        found = await scraped(Metrics(app))
    assert ("everpoll_store_up", ()) not in found
    assert ("everpoll_loop_runs_total", (("loop", "refresh"),)) in found


async def test_the_store_is_asked_at_most_every_five_seconds() -> None:
    clock = VirtualClock()
    app = Everpoll("memory://", clock=clock)

    @app.job()
    async def work() -> None:
        """Do nothing."""

    ready = ("everpoll_queue_tasks", (("queue", "default"), ("state", "waiting")))
    async with clock:
        metrics = Metrics(app)
        await work.enqueue(delay="1h")
        assert (await scraped(metrics))[ready] == 1
        await work.enqueue(delay="1h")
        assert (await scraped(metrics))[ready] == 1
        await clock.advance(metrics_module.STORE_S)
        assert (await scraped(metrics))[ready] == 2
        await app.close()


async def test_a_store_that_is_away_is_said_and_what_the_process_did_is_still_told(tmp_path: Path) -> None:
    app = Everpoll(f"sqlite:///{tmp_path / 'gone' / 'tasks.db'}", migrate=False)

    @app.job()
    async def work() -> None:
        """Do nothing."""

    metrics = Metrics(app)
    found = await scraped(metrics)
    assert found["everpoll_store_up", ()] == 0
    assert not [name for name, _ in found if name.startswith("everpoll_queue")]


def test_buckets_are_cumulative_and_hold_every_value() -> None:
    tally = Tally(lambda _: "job")
    times = [0.0001, 0.004, 0.09, 0.2, 3.0, 100.0, 10_000.0]
    entries = tally.leased([Lease(number, 1, 1, "job", "default", "null") for number in range(len(times))], [])
    tally.settled(Batch([Ended(number, 1) for number in range(len(times))], list(entries), times), set(), 0.0)
    [family] = [one for one in tasks(tally.entries()) if one.name == "everpoll_job_running_seconds"]
    buckets = {one.labels["le"]: one.value for one in family.samples if one.name.endswith("_bucket")}
    assert list(buckets.values()) == sorted(buckets.values())
    for bound in BOUNDS_S:
        assert buckets[f"{bound:g}"] == sum(one <= bound for one in times)
    assert buckets["+Inf"] == len(times)


async def _known_names() -> set[str]:
    """Every name that a scrape may have, with its series of a histogram."""
    app = made()
    async with app:
        text = (await Metrics(app).text()).decode()
    names = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    empty = Entry("job", "x", "y")
    names |= {one.name for one in tasks([empty])}
    return {f"{name}{end}" for name in names for end in ("", "_total", "_bucket", "_sum", "_count")}


async def test_the_dashboard_and_the_alerts_use_metrics_that_exist() -> None:
    known = await _known_names()
    dashboard = json.loads((DEPLOY / "grafana.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
    asked += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    assert len(asked) > 25
    for expression in asked:
        names = re.findall(r"everpoll_\w+", expression)
        assert names, expression
        assert set(names) <= known, expression
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert {"summary", "description"} <= set(rule["annotations"])
