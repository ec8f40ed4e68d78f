"""Whatever is recorded, in whatever order and how often, however it is rolled up, pruned and forgotten in between:
every read answers what a simple model does.

The model keeps each look that was ever recorded, in plain sets, and counts one by one.
"""

import asyncio
import math
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from everpoll.policy import Availability, Rollup, Tally
from everpoll.stores.health import HealthRecords, NewDependency, NewError, NewLook, Retention
from everpoll.stores.health_chunks import times_of
from stores.backends import Backend
from stores.health_looks import DAY_S, HOUR_S, START, roll_up_all
from stores.stage import Stage

T = TypeVar("T")

SERVICES = ("a", "b", "c")
DEPENDENCIES = ("db", "cache")
# Few instants, so that looks meet: some minutes apart, over the end of hours and days.
INSTANTS_S = st.builds(
    lambda day, hour, second: day * DAY_S + hour * HOUR_S + second,
    st.integers(0, 3),
    st.sampled_from([0, 1, 22, 23]),
    st.sampled_from([0.0, 0.001, 30.0, 59.999, 60.0, 90.0, 1_800.0, 3_599.0]),
)
LOOKS = st.builds(
    lambda service, at_s, status, span_s, latency_ms, latencies: NewLook(
        service=service,
        at=START + at_s,
        status=status,
        span_s=span_s,
        latency_ms=latency_ms,
        error="refused" if status == "down" else None,
        latencies=latencies,
    ),
    st.sampled_from(SERVICES),
    INSTANTS_S,
    st.sampled_from(["up", "up", "degraded", "down", "unknown"]),
    st.sampled_from([1.0, 30.0, 3_600.0]),
    st.sampled_from([None, 0.5, 12.0, 900.0]),
    st.one_of(st.none(), st.dictionaries(st.sampled_from(DEPENDENCIES), st.sampled_from([0.0, 1.0, 2.5]))),
)
CHANGES = st.sampled_from([None, None, "db", "cache"])
BATCHES = st.lists(st.tuples(LOOKS, CHANGES, st.booleans()), min_size=1, max_size=6)
KEPT = Retention(looks_s=DAY_S, minutes_s=1.5 * DAY_S, hours_s=2 * DAY_S, days_s=3 * DAY_S, errors_s=DAY_S)


def with_changes(look: NewLook, name: str | None, is_gone: bool) -> NewLook:
    """The look, which also says something about a dependency."""
    if name is None:
        return look
    changed = NewDependency(
        name=name, status=look.status, changed_at=look.at, seen_at=look.at, vanished=is_gone, latency_ms=7.0
    )
    return msgspec.structs.replace(
        look, dependencies=(changed,), errors=(NewError(dependency=name, error_message=str(look.at)),)
    )


def ms(at: float) -> int:
    return round(at * 1_000)


MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


@dataclass
class ModelService:
    """One service: what waits to be rolled up, and what was rolled up into what, as long as that is kept."""

    waiting: dict[int, NewLook] = field(default_factory=dict)
    looks: dict[int, NewLook] = field(default_factory=dict)
    minutes: list[NewLook] = field(default_factory=list)
    hours: list[NewLook] = field(default_factory=list)
    days: list[NewLook] = field(default_factory=list)
    ever: list[NewLook] = field(default_factory=list)
    dependencies: dict[str, tuple[int, NewDependency]] = field(default_factory=dict)
    errors: dict[str, dict[int, str]] = field(default_factory=dict)

    def roll_up(self, until_ms: int) -> None:
        new = {at_ms: self.waiting.pop(at_ms) for at_ms in sorted(self.waiting) if at_ms < until_ms}
        self.looks |= new
        self.ever += new.values()
        for kept in (self.minutes, self.hours, self.days):
            kept.extend(new.values())

    def counted(self, looks: Iterable[NewLook]) -> Rollup:
        """What looks come to: each stands until the next one, rolled up or not, kept or not."""
        instants = sorted(ms(look.at) for look in (*self.ever, *self.waiting.values()))
        following = dict(pairwise(instants))
        tally = Tally()
        for look in looks:
            at_ms, latency_ms = ms(look.at), look.latency_ms
            span_ms = min(ms(look.span_s), following.get(at_ms, at_ms + DAY_MS) - at_ms)
            tally.add(look.status, span_ms, None if latency_ms is None else round(latency_ms * 1_000))
        return tally.rollup()

    def is_rolled_past(self, at_ms: int) -> bool:
        return any(ms(look.at) >= at_ms for look in self.ever)


def since(looks: list[NewLook], first: int, step_ms: int) -> list[NewLook]:
    return [one for one in looks if ms(one.at) // step_ms >= first]


class Model:
    """All services, and what was pruned."""

    def __init__(self) -> None:
        self.services: dict[str, ModelService] = {}
        self.looks_from = self.minutes_from = self.hours_from = self.errors_from = 0

    def record(self, look: NewLook) -> None:
        service = self.services.setdefault(look.service, ModelService())
        at_ms = ms(look.at)
        is_gone = service.is_rolled_past(at_ms) and at_ms // HOUR_MS < self.looks_from
        if at_ms not in service.waiting and at_ms not in service.looks and not is_gone:
            service.waiting[at_ms] = look
        if at_ms >= self.errors_from:
            for one in look.dependencies:
                if one.name not in service.dependencies or at_ms > service.dependencies[one.name][0]:
                    service.dependencies[one.name] = (at_ms, one)
            for error in look.errors:
                service.errors.setdefault(error.dependency, {}).setdefault(at_ms, str(error.error_message))

    def prune(self, now: float) -> None:
        looks, minutes, hours = (ms(now - kept) // HOUR_MS for kept in (KEPT.looks_s, KEPT.minutes_s, KEPT.hours_s))
        errors_ms = ms(now - KEPT.errors_s)
        rolled = [ms(look.at) // HOUR_MS for one in self.services.values() for look in one.hours]
        if rolled:
            end = max(rolled) + 1
            self.looks_from = max(self.looks_from, min(looks, end))
            self.minutes_from = max(self.minutes_from, min(minutes, end))
            self.hours_from = max(self.hours_from, min(hours, end))
            self.errors_from = max(self.errors_from, min(errors_ms, end * HOUR_MS))
        for one in self.services.values():
            one.looks = {at_ms: look for at_ms, look in one.looks.items() if at_ms // HOUR_MS >= looks}
            one.minutes = since(one.minutes, minutes, HOUR_MS)
            one.hours = since(one.hours, hours, HOUR_MS)
            one.days = since(one.days, ms(now - KEPT.days_s) // DAY_MS, DAY_MS)
            for entries in one.errors.values():
                for at_ms in [at_ms for at_ms in entries if at_ms < errors_ms]:
                    del entries[at_ms]
            for name, (_, row) in list(one.dependencies.items()):
                if row.vanished and ms(row.seen_at) < errors_ms:
                    del one.dependencies[name]

    def summary(self, service: ModelService, from_at: float, to_at: float) -> Rollup:
        """Minute by minute: each counts by the finest that is kept of it, or with its whole hour or day."""
        from_ms, to_ms = ms(from_at) // MINUTE_MS * MINUTE_MS, -(-ms(to_at) // MINUTE_MS) * MINUTE_MS
        parts = [look for at, look in service.waiting.items() if from_ms <= at < to_ms]
        for day in range(from_ms // DAY_MS, -(-to_ms // DAY_MS)):
            begins, ends = max(from_ms, day * DAY_MS), min(to_ms, (day + 1) * DAY_MS)
            if ends - begins == DAY_MS or begins // HOUR_MS < self.hours_from:
                parts += [one for one in service.days if ms(one.at) // DAY_MS == day]
                continue
            for hour in range(begins // HOUR_MS, -(-ends // HOUR_MS)):
                first, last = max(begins, hour * HOUR_MS), min(ends, (hour + 1) * HOUR_MS)
                if last - first == HOUR_MS or hour < self.minutes_from:
                    parts += [one for one in service.hours if ms(one.at) // HOUR_MS == hour]
                else:
                    parts += [one for one in service.minutes if first <= ms(one.at) < last]
        return service.counted(parts)


RANGES = [
    (START - DAY_S, START + 9 * DAY_S),
    (START + DAY_S, START + 3 * DAY_S),
    (START + 22.5 * HOUR_S, START + DAY_S + HOUR_S + 61),
    (START + 2 * DAY_S + 23 * HOUR_S + 60, START + 2 * DAY_S + 23 * HOUR_S + 120),
    (START + DAY_S + HOUR_S, START + DAY_S + 2 * HOUR_S),
]


class HealthMachine(RuleBasedStateMachine):
    """The records of one store beside a model."""

    def __init__(self, backend: Backend, runner: asyncio.Runner) -> None:
        super().__init__()
        self._runner = runner
        self._run(backend.forget_everything())
        self._stage = Stage(backend)
        self._run(self._stage.open())
        self._health: HealthRecords = self._stage.store.health
        self._model = Model()
        self._batches: list[list[NewLook]] = []

    def _run(self, move: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(move)

    def teardown(self) -> None:
        self._run(self._stage.close())

    @rule(batch=BATCHES)
    def record(self, batch: list[tuple[NewLook, str | None, bool]]) -> None:
        looks = [with_changes(*one) for one in batch]
        self._batches.append(looks)
        self._record(looks)

    @precondition(lambda self: self._batches)
    @rule(which=st.integers(0, 1_000_000))
    def record_again(self, which: int) -> None:
        """Its answer was lost: at once, or much later."""
        self._record(self._batches[which % len(self._batches)])

    def _record(self, looks: list[NewLook]) -> None:
        self._run(self._health.record(looks))
        for look in sorted(looks, key=lambda one: one.at):
            self._model.record(look)

    @rule(until_s=st.sampled_from([0.5, HOUR_S, DAY_S, 2 * DAY_S, 9 * DAY_S]))
    def roll_up(self, until_s: float) -> None:
        self._run(roll_up_all(self._health, START + until_s))
        for one in self._model.services.values():
            one.roll_up(ms(START + until_s))

    @rule(now_s=st.sampled_from([DAY_S, 2.1 * DAY_S, 3.3 * DAY_S, 4 * DAY_S, 5.7 * DAY_S]))
    def prune(self, now_s: float) -> None:
        while self._run(self._health.prune(START + now_s, KEPT)):
            pass
        self._model.prune(START + now_s)

    @rule(service=st.sampled_from(SERVICES), luck=st.integers(0, 4))
    def forget(self, service: str, luck: int) -> None:
        if luck == 0:
            assert self._run(self._health.forget(service)) == (service in self._model.services)
            self._model.services.pop(service, None)

    @invariant()
    def looks_are_those_of_the_model(self) -> None:
        points = self._run(self._health.last_looks(SERVICES, 4))
        assert points.keys() == self._model.services.keys()
        for name, service in self._model.services.items():
            kept = {**service.looks, **service.waiting}
            found = self._run(self._health.looks(name, 0, math.inf))
            expected = [kept[at_ms] for at_ms in sorted(kept, reverse=True)]
            assert [(one.at, one.status, one.span_s, one.latency_ms, one.error) for one in found] == [
                (one.at, one.status, one.span_s, one.latency_ms, one.error) for one in expected
            ]
            recent = sorted([*service.ever, *service.waiting.values()], key=lambda one: -one.at)[:4]
            assert [(one.at, one.status) for one in points[name]] == [(one.at, one.status) for one in recent]

    @invariant()
    def dependencies_are_those_of_the_model(self) -> None:
        for name, service in self._model.services.items():
            timed = [(one.at, kept) for one in service.ever if (kept := above_0(one))]
            timed += [(one.at, kept) for one in service.waiting.values() if (kept := above_0(one))]
            latest = max(timed, default=(0.0, {}), key=lambda one: one[0])
            found = self._run(self._health.dependencies(name))
            assert [(one.name, one.status, one.vanished, one.latency_ms) for one in found] == [
                (key, row.status, row.vanished, latest[1].get(key) if ms(latest[0]) > at_ms else row.latency_ms)
                for key, (at_ms, row) in sorted(service.dependencies.items())
            ]
            for key in DEPENDENCIES:
                entries = service.errors.get(key, {})
                shown = self._run(self._health.errors(name, key))
                assert [one.error_message for one in shown] == [entries[at] for at in sorted(entries, reverse=True)]
                looks = {**service.looks, **service.waiting}
                points = self._run(self._health.latencies(name, key, 0, math.inf))
                assert [(one.at, one.latency_ms) for one in points] == [
                    (looks[at_ms].at, above_0(looks[at_ms])[key])
                    for at_ms in sorted(looks, reverse=True)
                    if key in above_0(looks[at_ms])
                ]

    @invariant()
    def figures_are_those_of_the_model(self) -> None:
        since_start = self._run(self._health.availability(SERVICES, START))
        for name, service in self._model.services.items():
            for from_at, to_at in RANGES:
                found = self._run(self._health.summary(name, from_at, to_at))
                assert found == self._model.summary(service, from_at, to_at)
            whole = self._model.summary(service, START, START + 9 * DAY_S)
            assert (name in since_start) == (whole.count > 0)
            assert times_of(since_start.get(name, Availability())) == times_of(whole)
            waiting = service.waiting.values()
            hours = self._run(self._health.rollups(name, "hour", START, START + 9 * DAY_S))
            assert Rollup.merged(one.rollup for one in hours) == service.counted([*service.hours, *waiting])
            minutes = self._run(self._health.rollups(name, "minute", START, START + 5 * DAY_S))
            assert Rollup.merged(one.rollup for one in minutes) == service.counted([*service.minutes, *waiting])


def above_0(look: NewLook) -> dict[str, float]:
    return {name: latency for name, latency in (look.latencies or {}).items() if latency > 0}


@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.prove)])
def test_every_answer_is_that_of_the_model(backend: Backend, runner: asyncio.Runner, times: int) -> None:
    """The same examples every time: running the one test again replays what failed."""
    usual = settings(
        derandomize=True,
        deadline=None,
        database=None,
        max_examples=times * {"memory": 60, "sqlite": 20}.get(backend.name, 6),
        stateful_step_count=25,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    machine: Any = partial(HealthMachine, backend, runner)  # a factory will do, though its type says class
    run_state_machine_as_test(machine, settings=usual)
