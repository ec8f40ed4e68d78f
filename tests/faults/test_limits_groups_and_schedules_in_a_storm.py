"""kill -9, and SIGSTOP past the lease, at random, with limits, rates, groups and a schedule: all of them hold.

A run of a handler is *live* from the moment at which it says that it began until the first of these: it says that it
is over, or the store declares its worker dead (`stopped_at` of that incarnation). So the run of a killed worker counts
until its lease is taken away, though nothing runs any more; and that of a frozen worker counts until then, and no
longer, though its code goes on for a moment when it wakes.
"""

import asyncio
import math
import os
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from everpoll.stores.contract import RESCUE_LIMIT
from faults.effects import EFFECTS, Effect, EffectsFile
from faults.ledger import Ledger, SqliteLedger
from faults.storm import LEASE, LIMIT, PER_S, STARTS, TICK_S, storm
from faults.storm_records import Records, Row
from faults.test_frozen_workers import freeze
from worker_processes import WorkerProcess, story_of

KEYS = ("a", "b", "c")
MEMBERS = 4
BACKLOG = 40
"""More is enqueued when fewer jobs than that are live."""
LEASE_S = 1.5
PAUSE_S = 0.3
"""At most so long after one fault comes the next."""
MARGIN_S = PER_S / 20
"""A start counts longer by that, for handlers that do not begin equally late."""
GIVE_UP_S = 120.0
LOOK_S = 0.02


class Storm:
    """Workers of one database, and the faults that come to them."""

    def __init__(self, ledger: Ledger, folder: Path, rng: random.Random, size: int) -> None:
        self.records = Records(ledger.url)
        self.started: list[WorkerProcess] = []
        self.groups: list[int] = []
        self._ledger = ledger
        self._folder = folder
        self._rng = rng
        self._size = size
        self._effects = EffectsFile(folder / "effects")
        self._frozen: dict[WorkerProcess, float] = {}
        """When each of them may go on; infinity: the store has not declared it dead yet."""
        self._crew: list[WorkerProcess] = []
        self.env = {
            **{name: value for name, value in os.environ.items() if name != "WORKER_ID"},
            "EVERPOLL_URL": ledger.url,
            EFFECTS: str(self._effects.path),
            LEASE: f"{LEASE_S}s",
        }

    def effects(self) -> list[Effect]:
        return self._effects.runs()

    def start(self) -> None:
        """Bring the crew to its size."""
        while len(self._crew) < self._size:
            worker = WorkerProcess(f"w{len(self.started)}", self._folder, self.env, "faults.storm:app", "5s")
            self.started.append(worker)
            self._crew.append(worker)

    def rage(self, faults: int) -> None:
        """Let so many faults come, as many kills as freezes; return when no worker is frozen."""
        kinds = [number % 2 == 0 for number in range(faults)]
        self._rng.shuffle(kinds)
        for number, is_kill in enumerate(kinds, 1):
            self.until(self._is_ready_for_more, "two workers are signed on and awake")
            self._rest(self._rng.random() * PAUSE_S)
            worker = self._rng.choice(self._ready())
            if is_kill:
                self._crew.remove(worker)
                worker.kill()
                self.start()
            else:
                freeze(worker, self._ledger)
                self._frozen[worker] = math.inf
            if number % 20 == 0:
                what = f"{number} faults of {faults}, {self.records.live()} jobs live, {len(self._frozen)} frozen"
                print(f"{self._ledger.url.split(':', 1)[0]}: {what}", file=sys.stderr, flush=True)  # noqa: T201
        self.until(lambda: not self._frozen, "the last ones wake up")

    def _is_ready_for_more(self) -> bool:
        """Whether two workers are up; meanwhile, enqueue more of everything where little is left."""
        if self.records.live() < BACKLOG:
            self.groups += asyncio.run(self._enqueue())
        return len(self._ready()) > 1

    async def _enqueue(self) -> list[int]:
        app = storm(self._ledger.url)
        try:
            await app.jobs["limited"].enqueue_many([(key, "") for key in KEYS for _ in range(10)])
            await app.jobs["paced"].enqueue_many([(key,) for key in KEYS for _ in range(5)])
            member, callback = app.jobs["member"], app.jobs["callback"]
            groups = [app.group([member.call(n) for n in range(MEMBERS)]).then(callback) for _ in range(4)]
            return [(await group.enqueue()).id for group in groups]
        finally:
            await app.close()

    def enqueue_gated(self, gate: Path, count: int) -> None:
        """Enqueue tasks of each key that run until the gate is there."""

        async def enqueue() -> None:
            app = storm(self._ledger.url)
            await app.jobs["limited"].enqueue_many([(key, str(gate)) for key in KEYS for _ in range(count)])
            await app.close()

        asyncio.run(enqueue())

    def _ready(self) -> list[WorkerProcess]:
        """Return the workers that are awake and alive for the store."""
        deaths = self.records.deaths().keys()
        awake = [one for one in self._crew if one not in self._frozen]
        return [one for one in awake if one.incarnations() and int(one.incarnations()[-1], 16) not in _unsigned(deaths)]

    def _wake(self) -> None:
        """Let frozen workers go on, a moment after the store has declared them dead."""
        deaths = _unsigned(self.records.deaths())
        for worker, wakes_at in list(self._frozen.items()):
            if wakes_at == math.inf and int(worker.incarnations()[-1], 16) in deaths:
                self._frozen[worker] = time.monotonic() + self._rng.random() * LEASE_S
            if self._frozen[worker] <= time.monotonic():
                del self._frozen[worker]
                worker.thaw()

    def until(self, condition: Callable[[], bool], wanted: str) -> None:
        """Wait for it; frozen workers wake up meanwhile."""
        give_up_at = time.monotonic() + GIVE_UP_S
        while not condition():
            assert time.monotonic() < give_up_at, f"not within {GIVE_UP_S:g} s: {wanted}\n{story_of(self._crew)}"
            self._rest(LOOK_S)

    def _rest(self, rest_s: float) -> None:
        self._wake()
        time.sleep(rest_s)

    def end(self) -> None:
        """Let all workers end in peace; they must."""
        # A process that is still importing has no handler for the signal yet, and would die of it.
        self.until(lambda: all(one.incarnations() for one in self._crew), "all have signed on")
        for worker in self._crew:
            worker.end()
        self.until(lambda: not any(one.is_running for one in self._crew), "all have ended")
        assert {one.process.returncode for one in self._crew} == {0}, story_of(self._crew)
        for worker in self.started:
            bugs = [one for one in worker.log() if one["level"] in {"critical", "raw"} or "traceback" in one]
            assert not bugs, f"{worker.label}: {bugs}"

    def kill(self) -> None:
        for worker in self._crew:
            if worker.is_running:
                worker.kill()


def _unsigned(incarnations: Iterable[int]) -> set[int]:
    """Return them as the log has them."""
    return {one % 2**64 for one in incarnations}


@pytest.mark.parametrize("faults", [6, pytest.param(200, marks=pytest.mark.prove)])
def test_all_hold_in_a_storm(ledger: Ledger, tmp_path: Path, faults: int) -> None:
    storms = Storm(ledger, tmp_path, random.Random(faults), size=3 if isinstance(ledger, SqliteLedger) else 4)
    asyncio.run(migrate(ledger.url))
    storms.records.prepare()
    storms.start()
    try:
        storms.rage(faults)
        storms.until(lambda: all_but_ticks_have_ended(storms.records), "all jobs have ended")
        no_slot_is_lost(storms, tmp_path / "gate")
        storms.end()
    finally:
        storms.kill()
    tasks = {row.id: row for row in storms.records.tasks()}
    runs = live_runs(storms.effects(), storms.records.deaths())
    limits_held(runs, tasks)
    starts = storms.records.starts("paced")
    rates_held(starts)
    prompt_begins_keep_the_rate(starts, storms.effects())
    no_task_ran_twice_at_once(runs)
    every_callback_came_once(storms.groups, tasks, storms.records.callbacks())
    every_slot_came_once(tasks.values())
    nothing_else_failed(tasks.values())


async def migrate(url: str) -> None:
    app = storm(url)
    await app.store()
    await app.close()


def all_but_ticks_have_ended(records: Records) -> bool:
    """The schedule goes on."""
    return all(row.state != "live" for row in records.tasks() if row.kind == "job" and row.name != "tick")


def no_slot_is_lost(storms: Storm, gate: Path) -> None:
    """Whatever was lost with the workers: as many tasks of each key run as may."""
    seen = len(storms.effects())
    storms.enqueue_gated(gate, LIMIT + 1)
    limited = {row.id: row.limit_key for row in storms.records.tasks() if row.name == "limited" and row.args["args"][1]}

    def running() -> Counter[str | None]:
        return Counter(limited[run.task] for run in storms.effects()[seen:] if run.task in limited and run.is_running)

    storms.until(lambda: sorted(running().values()) == [LIMIT] * len(KEYS), f"{LIMIT} of each key run")
    gate.touch()
    storms.until(lambda: all_but_ticks_have_ended(storms.records), "the last ones have ended")


Live = dict[int, list[tuple[float, float]]]
"""By task: from when to when each of its runs was live, by the steady clock of this machine."""
Starts = dict[str, dict[tuple[int, int], float]]
"""By limit key: when the store leased each task, by its id and sequence."""


def live_runs(runs: list[Effect], deaths: dict[int, float]) -> Live:
    to_steady_s = time.monotonic() - time.time()
    found: Live = defaultdict(list)
    for run in runs:
        over_at = math.inf if run.over_at is None else run.over_at
        dead_at = deaths[run.incarnation] + to_steady_s if run.incarnation in deaths else math.inf
        if run.began_at < min(over_at, dead_at):
            found[run.task].append((run.began_at, min(over_at, dead_at)))
    return found


def most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    steps = sorted(step for began_at, over_at in spans for step in ((began_at, 1), (over_at, -1)))
    most = now = 0
    for _, change in steps:
        now += change
        most = max(most, now)
    return most


def limits_held(runs: Live, tasks: dict[int, Row]) -> None:
    spans: dict[str | None, list[tuple[float, float]]] = defaultdict(list)
    for task, of_task in runs.items():
        if tasks[task].name == "limited":
            spans[tasks[task].limit_key] += of_task
    assert len(spans) == len(KEYS)
    assert {key: most_at_once(of_key) for key, of_key in spans.items()} == dict.fromkeys(spans, LIMIT)


def rates_held(starts: Starts) -> None:
    assert len(starts) == len(KEYS)
    for key, of_key in starts.items():
        gaps = gaps_of(list(of_key.values()))
        assert min(gaps) >= PER_S, f"{key}: {STARTS + 1} starts within {min(gaps):.3f} s"
        assert min(gaps) < 2 * PER_S, f"{key}: nothing waited for its rate, so that this has proved nothing"


def prompt_begins_keep_the_rate(starts: Starts, runs: list[Effect]) -> None:
    """Handlers that began within the margin after their lease, for which each start counts longer, keep the rate, too.

    Others, on a machine that is busy, may begin closer together: the documentation says so.
    """
    to_steady_s = time.monotonic() - time.time()
    began_at = {(run.task, run.sequence): run.began_at for run in runs}
    for key, of_key in starts.items():
        begins = [(began_at[lease], at + to_steady_s) for lease, at in of_key.items() if lease in began_at]
        gaps = gaps_of(sorted(began for began, leased in begins if 0 <= began - leased <= MARGIN_S))
        assert min(gaps, default=PER_S) >= PER_S, f"{key}: {STARTS + 1} handlers began within {min(gaps):.3f} s"


def gaps_of(instants: list[float]) -> list[float]:
    """From each to the first one that would be too many together with it."""
    return [later - earlier for earlier, later in zip(instants, instants[STARTS:], strict=False)]


def no_task_ran_twice_at_once(runs: Live) -> None:
    assert {task: most_at_once(of_task) for task, of_task in runs.items() if most_at_once(of_task) > 1} == {}


def every_callback_came_once(groups: list[int], tasks: dict[int, Row], effects: list[int]) -> None:
    """One task for each group, after all of its members; one effect if it is done, none if it has lost its workers."""
    assert sorted(row.id for row in tasks.values() if row.name == "callback") == sorted(groups)
    members: dict[int | None, list[Row]] = defaultdict(list)
    for row in tasks.values():
        if row.name == "member":
            members[row.then_id].append(row)
    for group in groups:
        callback = tasks[group]
        ends = [row.ended_at for row in members[group] if row.ended_at is not None]
        assert len(ends) == MEMBERS
        assert callback.started_at is not None
        assert max(ends) <= callback.started_at
    assert Counter(effects) == Counter(group for group in groups if tasks[group].state == "done")


def every_slot_came_once(tasks: Iterable[Row]) -> None:
    """None is missing, and none is there twice, from the first time to the last."""
    times = sorted(row.args["scheduled_for"] for row in tasks if row.name == "tick")
    assert len(times) > 2
    assert times == [times[0] + TICK_S * place for place in range(len(times))]


def nothing_else_failed(tasks: Iterable[Row]) -> None:
    """A job that has lost three workers has failed, which random faults do to some; its group ends all the same."""
    failed = [row for row in tasks if row.kind == "job" and row.state not in {"done", "live"}]
    assert all(row.state == "failed" and row.rescues >= RESCUE_LIMIT for row in failed), failed
