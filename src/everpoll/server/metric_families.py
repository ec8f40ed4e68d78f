"""Metric families: totals of this process and of the store in the words of Prometheus. Pure.

Promises: every name begins with `everpoll_`, counters end in `_total`, times are in seconds. The values of labels are
bounded: names of jobs, watches, loops, queues and tables that this process knows, and a fixed set of words.
"""

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from everpoll.engine.child_processes import ChildProcesses
from everpoll.engine.meter import Meter, PollerHealth
from everpoll.engine.tally_entry import Entry
from everpoll.jobs.schedule_listing import ScheduleInfo
from everpoll.policy.histogram import BASE
from everpoll.stores.contract import QueueInfo, TaskInfo, WorkerInfo
from everpoll.stores.figures import LoopCard
from everpoll.stores.set_aside import is_set_aside

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)
PHASES = ("idle", "waiting", "running", "paused", "open", "stopped", "closed")
LABELS_LIMIT = 200
"""How many queues, loops and counters of watches have series of their own; further ones are left out."""

_MIDDLE = 2 / (BASE + 1)
_JOBS = frozenset({"job", "table"})
_NAME = ("name", "queue")
_TIMES: dict[str, tuple[str, str, bool]] = {
    "everpoll_job_waiting_seconds": ("How long jobs were due before a worker leased them.", "waited", True),
    "everpoll_job_running_seconds": ("How long the functions of jobs ran.", "ran", True),
    "everpoll_look_lateness_seconds": (
        "How long looks of watches and services were due before they began.",
        "waited",
        False,
    ),
    "everpoll_look_duration_seconds": ("How long looks of watches and services took.", "ran", False),
}
_POLLER: dict[str, tuple[str, Callable[[PollerHealth], float | None]]] = {
    "everpoll_poller_healthy": ("1: it polls, and its heartbeats are answered.", lambda one: one.healthy),
    "everpoll_poller_polls_per_minute": ("Polls: queries for due tasks.", lambda one: one.polls_per_minute),
    "everpoll_poller_rows_per_poll": ("Tasks found by one query, on average.", lambda one: one.rows_per_poll),
    "everpoll_poller_lease_success_ratio": (
        "The share of leases that were won and kept.",
        lambda one: one.lease_success_rate,
    ),
    "everpoll_poller_lease_latency_seconds": (
        "How long a lease takes, on average.",
        lambda one: one.lease_latency_s,
    ),
    "everpoll_poller_consecutive_errors": (
        "Queries or heartbeats that failed in a row.",
        lambda o: o.consecutive_errors,
    ),
    "everpoll_poller_heartbeat_age_seconds": (
        "Time since the last answered heartbeat.",
        lambda one: one.heartbeat_age_s,
    ),
    "everpoll_poller_running": ("Handlers that run.", lambda one: one.running),
    "everpoll_poller_slots": ("Handlers that may run at a time.", lambda one: one.slots),
}
_METER: dict[str, tuple[str, Callable[[Meter], float]]] = {
    "everpoll_poller_leased": ("Tasks that were leased.", lambda one: one.leased),
    "everpoll_poller_missed": ("Tasks that another worker leased first.", lambda one: one.missed),
    "everpoll_poller_settled": ("Tasks with a written outcome.", lambda one: one.settled),
    "everpoll_poller_lost": ("Results that were dropped: another worker owned the task.", lambda one: one.lost),
    "everpoll_poller_errors": ("Queries and heartbeats that failed.", lambda one: one.errors),
}


def tasks(entries: Iterable[Entry]) -> Iterator[Metric]:
    """Yield metrics of the tasks that workers of this process ran."""
    known = list(entries)
    total = CounterMetricFamily(
        "everpoll_tasks", "Runs of tasks, by outcome.", labels=("kind", "name", "queue", "outcome")
    )
    for entry in known:
        for outcome, count in sorted(entry.counts.items()):
            total.add_metric((entry.kind, entry.name, entry.queue, outcome), count)
    yield total
    for name, (text, what, is_job) in _TIMES.items():
        family = HistogramMetricFamily(name, text, labels=_NAME if is_job else ("kind", *_NAME))
        for entry in known:
            counts: dict[int, int] = getattr(entry, what)
            if counts and (entry.kind in _JOBS) is is_job:
                labels = (entry.name, entry.queue) if is_job else (entry.kind, entry.name, entry.queue)
                family.add_metric(labels, _buckets(counts), getattr(entry, f"{what}_s"))
        yield family


def _buckets(counts: Mapping[int, int]) -> list[tuple[str, float]]:
    """Return cumulative counts below the bounds; a value is known to within 5 %."""
    found = [0] * (len(BOUNDS_S) + 1)
    for bucket, count in counts.items():
        found[bisect_left(BOUNDS_S, _MIDDLE * BASE**bucket / 1e6)] += count
    bounds = [*(f"{bound:g}" for bound in BOUNDS_S), "+Inf"]
    return list(zip(bounds, map(float, itertools.accumulate(found)), strict=True))


def pollers(healths: Mapping[str, PollerHealth], meters: Mapping[str, Meter]) -> Iterator[Metric]:
    """Yield metrics of the pollers of this process: of jobs, of services, and of each table."""
    for name, (text, value_of) in _POLLER.items():
        gauge = GaugeMetricFamily(name, text, labels=("poller",))
        for poller, health in healths.items():
            if (value := value_of(health)) is not None:
                gauge.add_metric((poller,), value)
        yield gauge
    for name, (text, count_of) in _METER.items():
        counter = CounterMetricFamily(name, text, labels=("poller",))
        for poller, meter in meters.items():
            counter.add_metric((poller,), count_of(meter))
        yield counter


def watches(counters: Mapping[str, Mapping[str, int]]) -> Iterator[Metric]:
    """Yield counts of watches of this process: looks, checks, confirmations, retries, probes, timeouts, repairs."""
    family = CounterMetricFamily("everpoll_watch_counts", "What watches counted.", labels=("watch", "what"))
    for watch, counts in counters.items():
        for what, count in itertools.islice(sorted(counts.items()), LABELS_LIMIT):
            family.add_metric((watch, what), count)
    yield family


def loops(cards: Iterable[LoopCard]) -> Iterator[Metric]:
    """Yield metrics of the loops of this process."""
    runs = CounterMetricFamily("everpoll_loop_runs", "Runs that began.", labels=("loop",))
    failures = GaugeMetricFamily("everpoll_loop_failures", "Runs that failed in a row.", labels=("loop",))
    interval = GaugeMetricFamily(
        "everpoll_loop_interval_seconds", "The current interval between two runs.", labels=("loop",)
    )
    phase = GaugeMetricFamily("everpoll_loop_phase", "1 for the current phase of the loop.", labels=("loop", "phase"))
    for card in itertools.islice(cards, LABELS_LIMIT):
        runs.add_metric((card.name,), card.runs)
        failures.add_metric((card.name,), card.failures)
        interval.add_metric((card.name,), card.every_s * card.multiplier)
        for word in PHASES:
            phase.add_metric((card.name, word), card.phase == word)
    yield from (runs, failures, interval, phase)


def queues(infos: Iterable[QueueInfo], now: float) -> Iterator[Metric]:
    """Yield metrics of the tasks that wait in the queues of the store."""
    family = GaugeMetricFamily("everpoll_queue_tasks", "Live tasks, up to 10,000.", labels=("queue", "state"))
    oldest = GaugeMetricFamily(
        "everpoll_queue_oldest_wait_seconds", "How long the oldest ready task has been due.", labels=("queue",)
    )
    paused = GaugeMetricFamily("everpoll_queue_paused", "1: no worker leases from it.", labels=("queue",))
    for info in itertools.islice(infos, LABELS_LIMIT):
        for state in ("ready", "waiting", "running", "limited", "blocked"):
            family.add_metric((info.queue, state), getattr(info, state))
        since = info.oldest_due_at
        oldest.add_metric((info.queue,), 0.0 if since is None else max(0.0, now - since.timestamp()))
        paused.add_metric((info.queue,), info.paused is not None)
    yield from (family, oldest, paused)


def set_aside(tasks: Iterable[TaskInfo]) -> Iterator[Metric]:
    """Yield metrics of tasks that workers have set aside, because none of them registers their names."""
    family = GaugeMetricFamily(
        "everpoll_set_aside_tasks", "Tasks that wait for a worker that registers them, up to 1,000.", labels=("queue",)
    )
    counts = Counter(one.queue for one in tasks if is_set_aside(one.trail))
    for queue, count in itertools.islice(sorted(counts.items()), LABELS_LIMIT):
        family.add_metric((queue,), count)
    yield family


def schedules(infos: Iterable[ScheduleInfo], now: float) -> Iterator[Metric]:
    """Yield metrics of the schedules of the store, of all processes."""
    registered = GaugeMetricFamily(
        "everpoll_schedule_registered", "1: a live worker registers it; 0: it enqueues nothing.", labels=("schedule",)
    )
    late = GaugeMetricFamily(
        "everpoll_schedule_lateness_seconds",
        "How long ago its next scheduled time was; 0: it is not due.",
        labels=("schedule",),
    )
    for info in itertools.islice(infos, LABELS_LIMIT):
        registered.add_metric((info.name,), info.is_registered)
        next_at = now if info.next_at is None else info.next_at.timestamp()
        late.add_metric((info.name,), max(0.0, now - next_at))
    yield from (registered, late)


def processes(children: ChildProcesses) -> Iterator[Metric]:
    """Yield metrics of the child processes of this process that run jobs with `run="process"`."""
    yield GaugeMetricFamily("everpoll_process_children_busy", "Child processes that run a job.", children.busy)
    yield GaugeMetricFamily("everpoll_process_children_limit", "How many child processes there may be.", children.limit)


def workers(infos: Iterable[WorkerInfo]) -> Iterator[Metric]:
    """Yield metrics of the workers of the fleet that have not stopped."""
    family = GaugeMetricFamily("everpoll_workers", "Workers that have not stopped.", labels=("state",))
    living = [one.is_alive for one in infos if one.stopped_at is None]
    family.add_metric(("alive",), sum(living))
    family.add_metric(("silent",), len(living) - sum(living))
    yield family


def services(looks: Mapping[str, int], alerts: Mapping[str, int]) -> Iterator[Metric]:
    """Yield counts of looks that this process made, and of messages that it sent."""
    looked = CounterMetricFamily("everpoll_service_looks", "Looks at services, by status.", labels=("status",))
    for status, count in sorted(looks.items()):
        looked.add_metric((status,), count)
    sent = CounterMetricFamily("everpoll_alerts", "Messages to channels, by outcome.", labels=("outcome",))
    for outcome in ("sent", "failed"):
        sent.add_metric((outcome,), alerts.get(outcome, 0))
    yield from (looked, sent)


def monitoring(statuses: Mapping[str, int], open_breakers: int, incidents: int, outbox: int) -> Iterator[Metric]:
    """Yield metrics of the services of the store, of all processes."""
    family = GaugeMetricFamily("everpoll_services", "Services, by status.", labels=("status",))
    for status, count in sorted(statuses.items()):
        family.add_metric((status,), count)
    yield family
    yield GaugeMetricFamily("everpoll_service_breakers_open", "Services with an open breaker.", open_breakers)
    yield GaugeMetricFamily("everpoll_incidents_open", "Incidents that are not over.", incidents)
    yield GaugeMetricFamily("everpoll_outbox_notices", "Notices that wait to be delivered.", outbox)
