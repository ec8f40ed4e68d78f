"""Whatever happens in whatever order, the store does what the model does, and invariants 1 to 6 and 9 hold.

Random tasks, leases, settlements (also by zombies, thieves and twice), cancels, retries, crashes, rescues, outages that
all workers share, and steps of the clock. Time is coarse on purpose: every instant that is compared with another is
minutes away from it, so that the real time that passes beside the model's decides nothing.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from everpoll.engine.enqueuer import Enqueuer
from everpoll.errors import BadInput, LeaseLost
from everpoll.policy.liveness import Observations, judge
from everpoll.stores import limits
from everpoll.stores.contract import Again, Ended, Enqueued, Lease, NewEvent, NewTask, Settlement, TaskFilter
from everpoll.stores.limits import KEY_BYTES
from stores.backends import Backend
from stores.model import SLACK_S, Model, ModelTask, ModelWorker
from stores.stage import WATCH, Stage, card_of, json

T = TypeVar("T")

STEPS_S = st.sampled_from([1_000.0, 3_000.0, 10_000.0])
DELAYS_S = st.sampled_from([0.0, 0.0, 500.0, 3_500.0])
LEASES_S = st.sampled_from([2_250.0, 6_250.0])
TIMEOUTS_S = st.sampled_from([None, None, 700.0])
QUEUES = ("a", "b", "c")
LOOK_BYTES = 1_000
"""What one look hands out, made small; nothing but sizes near it depends on it."""
ARGS = st.sampled_from(["null", "null", json("é" * 200), json("x" * 700), json("x" * 1_100)])
UNFIT: list[dict[str, Any]] = [
    {"key": "\ud800"},
    {"key": "k" * (KEY_BYTES + 1)},
    {"args": "\0"},
    {"memory": json("é" * 5_000)},
    {"priority": 2**31},
    {"delay_s": float("inf")},
]
WAYS = ("done", "failed", "canceled", "retry now", "retry later", "snooze", "hand back")
ROOMS = st.integers(0, 3)
PICK = st.integers(0, 1_000_000)
"""Which of those there are, modulo their number: shrinks towards the oldest."""


PICKS = st.lists(st.tuples(PICK, st.sampled_from(WAYS)), min_size=1, max_size=4)


EVENTS = st.sampled_from([(), (), (1,), (2, 3)])


def happened(seqs: tuple[int, ...]) -> tuple[NewEvent, ...]:
    return tuple(NewEvent(seq, json({"n": seq})) for seq in seqs)


def settlement(lease: Lease, way: str, delay_s: float) -> tuple[Settlement, str | None]:
    """The settlement, and the decision that it leaves in the trail. Watches tell what happened; some numbers repeat."""
    plain, what = _settlement(lease, way, delay_s)
    events = happened((lease.sequence,)) if lease.name == "watch" else ()
    return msgspec.structs.replace(plain, events=events), what


def _settlement(lease: Lease, way: str, delay_s: float) -> tuple[Settlement, str | None]:
    note = json({"what": way, "error": {}})
    match way:
        case "done":
            return Ended(lease.id, lease.sequence, "done", "1"), None
        case "failed":
            return Ended(lease.id, lease.sequence, "failed", None, note), way
        case "canceled":
            return Ended(lease.id, lease.sequence, "canceled", None, note), way
        case "retry now":
            return Again(lease.id, lease.sequence, 0.0, note=note), way
        case "retry later":
            return Again(lease.id, lease.sequence, delay_s, note=note, memory='"seen"'), way
        case "snooze":
            return Again(lease.id, lease.sequence, delay_s, refund=True, note=note), way
        case _:
            return Again(lease.id, lease.sequence, None, refund=True), None


class StoreMachine(RuleBasedStateMachine):
    """One store beside one model."""

    def __init__(self, backend: Backend, runner: asyncio.Runner) -> None:
        super().__init__()
        self._runner = runner
        self._backend = backend
        self._look_bytes = LOOK_BYTES
        self._run(backend.forget_everything())
        self._stage = Stage(backend)
        self._run(self._stage.open())
        self._model = Model()
        self._active: list[int] = []
        self._vigils: defaultdict[int, Observations] = defaultdict(Observations)
        self._held_leases: list[tuple[int, Lease]] = []
        self._ended: Counter[tuple[int, int]] = Counter()
        self._feed_after = self._run(self._stage.store.events(None)).after
        self._feed: list[tuple[int, int]] = []
        self._actions: Counter[int] = Counter()

    def _run(self, move: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(move)

    def teardown(self) -> None:
        self._run(self._stage.close())

    @initialize(lease_s=LEASES_S)
    def begin(self, lease_s: float) -> None:
        self.sign_on(lease_s)

    @rule(
        how_many=st.integers(1, 3),
        key=st.sampled_from([None, None, "k", "l"]),
        queue=st.sampled_from(QUEUES),
        priority=st.integers(-1, 1),
        delay_s=DELAYS_S,
        timeout_s=TIMEOUTS_S,
        memory=st.sampled_from([None, "{}"]),
        args=ARGS,
    )
    def enqueue(self, how_many: int, delay_s: float, **fields: Any) -> None:
        task = NewTask(name="job", delay_s=delay_s, **fields)
        for answer in self._run(self._stage.store.enqueue([task] * how_many)):
            self._enqueued(answer, delay_s, **fields)

    def _enqueued(self, answer: Enqueued, delay_s: float = 0.0, **fields: Any) -> None:
        known = self._model.live_with("job", fields["key"])
        assert answer.is_new == (known is None), "invariant 6: a key has at most one live task"
        if known is not None:
            assert answer.id == known.id
            return
        assert answer.id not in self._model.tasks, "an id is never used twice"
        due = self._model.now + delay_s
        self._model.tasks[answer.id] = ModelTask(id=answer.id, due=due, created=self._model.now, **fields)

    @rule(unfit=st.sampled_from(UNFIT), key=st.sampled_from([None, "k", "m"]), queue=st.sampled_from(QUEUES))
    def enqueue_beside_what_cannot_be_kept(self, unfit: dict[str, Any], key: str | None, queue: str) -> None:
        """One caller's mistake is that caller's error alone, though the callers share a statement."""
        tasks = [NewTask(name="job", key=key, queue=queue)] * 3
        tasks.insert(2, NewTask(**{"name": "unfit", "queue": queue, **unfit}))
        answers = self._run(self._enqueued_together(tasks))
        assert isinstance(answers.pop(2), BadInput)
        for answer in answers:
            assert isinstance(answer, Enqueued)
            self._enqueued(answer, key=key, queue=queue, priority=0, timeout_s=None)

    async def _enqueued_together(self, tasks: list[NewTask]) -> list[Enqueued | BaseException]:
        enqueuer = Enqueuer(self._stage.store)
        return await asyncio.gather(*(enqueuer.one(task) for task in tasks), return_exceptions=True)

    @rule(
        key=st.sampled_from(["k", "l", "m"]),
        once=st.booleans(),
        queue=st.sampled_from(QUEUES),
        delay_s=DELAYS_S,
        events=EVENTS,
    )
    def begin_watches(self, key: str, once: bool, queue: str, delay_s: float, events: tuple[int, ...]) -> None:
        """Two with one key, at the same time."""
        task = NewTask(name="watch", **WATCH, key=key, once=once, queue=queue, delay_s=delay_s, events=happened(events))
        for answer in self._run(self._stage.store.enqueue([task] * 2)):
            known = self._model.live_with("watch", key) or (self._model.begun(key) if once else None)
            assert answer.is_new == (known is None), "nothing is begun twice under one key"
            if known is not None:
                assert answer.id == known.id
                continue
            now = self._model.now
            made = ModelTask(
                id=answer.id,
                queue=queue,
                priority=0,
                key=key,
                due=now + delay_s,
                timeout_s=None,
                kind="watch",
                created=now,
            )
            self._model.tasks[answer.id] = made
            self._model.append(made, task.events)

    @rule(lease_s=LEASES_S)
    def sign_on(self, lease_s: float) -> None:
        card = card_of()
        self._run(self._stage.store.sign_on(card, lease_s))
        self._model.workers[card.incarnation] = ModelWorker()
        self._active.append(card.incarnation)

    @precondition(lambda self: self._active)
    @rule(who=PICK)
    def lease_all(self, who: int) -> None:
        self._lease(self._active[who % len(self._active)], dict.fromkeys(QUEUES, 50), 50)

    @precondition(lambda self: self._active)
    @rule(who=PICK, most=st.integers(1, 3), rooms=st.dictionaries(st.sampled_from(QUEUES), ROOMS, min_size=1))
    def lease_some(self, who: int, most: int, rooms: dict[str, int]) -> None:
        """A worker serves some of the queues, and has room for so many of each."""
        self._lease(self._active[who % len(self._active)], rooms, most)

    def _lease(self, worker: int, rooms: dict[str, int], most: int) -> None:
        if self._model.workers[worker].is_stopped:
            with pytest.raises(LeaseLost):
                self._run(self._stage.store.lease(worker, rooms, most))
            self._active.remove(worker)
            return
        due = self._expected(rooms, most)
        expected = self._fitting(due)
        looked = self._run(self._stage.store.lease(worker, rooms, most))
        assert [one.id for one in looked.leases] == [one.id for one in expected], "the order of work"
        for lease, task in zip(looked.leases, expected, strict=True):
            assert task.holder is None, "invariant 1: leased by at most one incarnation"
            self._model.lease(task, worker)
            fence = (lease.sequence, lease.attempt, lease.rescues, lease.cancel_requested)
            assert fence == (task.sequence, task.attempt, task.rescues, task.cancel), "invariant 4: attempts"
            assert (lease.memory, lease.args) == (task.memory, task.args)
            self._held_leases.append((worker, lease))
        if len(expected) < len(due):
            assert (looked.next_due_s, looked.is_all) == (None, False), "a look that left something says so"
        else:
            self._check_next_due(looked.next_due_s, rooms, len(expected), most)

    def _fitting(self, due: list[ModelTask]) -> list[ModelTask]:
        """The first, and those after it for which one look has room."""
        taken = 0
        for place, task in enumerate(due):
            taken += task.size
            if place and taken > self._look_bytes:
                return due[:place]
        return due

    def _expected(self, rooms: dict[str, int], most: int) -> list[ModelTask]:
        due = list(self._model.due_in(list(rooms)))
        shown = self._run(self._stage.store.info([one.id for one in due]))
        chosen: list[ModelTask] = []
        left = dict(rooms)
        for task in sorted(due, key=lambda one: (-one.priority, shown[one.id].due_at, one.id)):
            if left[task.queue] > 0 and len(chosen) < most:
                left[task.queue] -= 1
                chosen.append(task)
        return chosen

    def _check_next_due(self, next_due_s: float | None, rooms: dict[str, int], got: int, most: int) -> None:
        expected = self._model.next_due_s(list(rooms))
        if got == most or expected is None:
            assert next_due_s is None
        elif min(rooms.values()) > 0 and not list(self._model.due_in(list(rooms))):
            assert next_due_s == pytest.approx(expected, abs=SLACK_S)

    @precondition(lambda self: self._standing())
    @rule(picks=PICKS, delay_s=DELAYS_S)
    def settle_what_is_held(self, picks: list[tuple[int, str]], delay_s: float) -> None:
        self._settle_some(self._standing(), picks, delay_s)

    @precondition(lambda self: self._held_leases)
    @rule(picks=PICKS, delay_s=DELAYS_S)
    def settle_what_was_held(self, picks: list[tuple[int, str]], delay_s: float) -> None:
        """Any lease that there ever was: a zombie, or a handler that comes twice."""
        self._settle_some(self._held_leases, picks, delay_s)

    def _standing(self) -> list[tuple[int, Lease]]:
        held = {(one.holder, one.id, one.sequence) for one in self._model.tasks.values()}
        return [(worker, lease) for worker, lease in self._held_leases if (worker, lease.id, lease.sequence) in held]

    def _settle_some(self, leased: list[tuple[int, Lease]], picks: list[tuple[int, str]], delay_s: float) -> None:
        worker, _ = leased[picks[0][0] % len(leased)]
        mine = [lease for one, lease in leased if one == worker]
        leases = [(mine[pick % len(mine)], way) for pick, way in picks]
        self._settle(worker, {lease.id: settlement(lease, way, delay_s) for lease, way in leases})

    @precondition(lambda self: self._held_leases and self._active)
    @rule(what=PICK, thief=PICK, way=st.sampled_from(WAYS))
    def steal(self, what: int, thief: int, way: str) -> None:
        """A worker settles a task that another may hold."""
        _, lease = self._held_leases[what % len(self._held_leases)]
        self._settle(self._active[thief % len(self._active)], {lease.id: settlement(lease, way, 500.0)})

    def _settle(self, worker: int, batch: dict[int, tuple[Settlement, str | None]]) -> None:
        lost = self._run(self._stage.store.settle(worker, [one for one, _ in batch.values()]))
        held = {task_id for task_id, (one, what) in batch.items() if self._model.settle(worker, one, what)}
        assert lost == set(batch) - held, "invariant 2: exactly what is not held is lost"
        for task_id in held:
            self._ended[task_id, batch[task_id][0].sequence] += 1
        assert max(self._ended.values(), default=1) == 1, "invariant 2: a lease is settled once"

    @precondition(lambda self: self._active)
    @rule(who=PICK, lease_s=LEASES_S)
    def beat(self, who: int, lease_s: float) -> None:
        """And have taken back what workers hold that it has watched standing still."""
        worker = self._active[who % len(self._active)]
        if dead := self._beat(worker, lease_s):
            self._rescue(worker, dead, [])

    def _beat(self, worker: int, lease_s: float) -> list[tuple[int, int]]:
        """One beat; which others this worker calls dead by now."""
        held = [one for one in self._model.tasks.values() if one.holder == worker]
        asked = {one.id for one in held if one.cancel}
        beat = self._run(self._stage.beat(worker, [one.id for one in held], lease_s))
        assert beat.is_alive != self._model.workers[worker].is_stopped
        if beat.is_alive:
            self._model.workers[worker].beats += 1
            assert set(beat.canceled) == asked
            others = {(one, other.beats) for one, other in self._model.workers.items() if not other.is_stopped}
            assert {(one.incarnation, one.beats) for one in beat.others} == {one for one in others if one[0] != worker}
            abandoned = [one for one in self._model.tasks.values() if one.holder and self._is_stopped(one.holder)]
            assert beat.has_leftovers >= bool(abandoned), "invariant 3: what a stopped worker holds is found"
        verdict = judge(self._vigils[worker], self._model.now, self._model.now, beat.others)
        self._vigils[worker] = verdict.observations
        return list(verdict.dead)

    def _is_stopped(self, worker: int) -> bool:
        return self._model.workers[worker].is_stopped

    @precondition(lambda self: self._active)
    @rule(who=PICK, other=PICK, how_old=st.integers(0, 1))
    def declare_dead(self, who: int, other: int, how_old: int) -> None:
        """By the number that it has now, or by an old one: it has beaten since, and is left alone."""
        worker = self._active[who % len(self._active)]
        known = [one for one in self._model.workers if one != worker]
        if known and not self._is_stopped(worker):
            dead = known[other % len(known)]
            self._rescue(worker, [(dead, self._model.workers[dead].beats - how_old)], [])

    @precondition(lambda self: self._standing())
    @rule(which=PICK, how_old=st.integers(0, 1))
    def name_as_overdue(self, which: int, how_old: int) -> None:
        worker, lease = self._standing()[which % len(self._standing())]
        if not self._is_stopped(worker):
            self._rescue(worker, [], [(lease.id, lease.sequence - how_old)])

    def _rescue(self, worker: int, dead: list[tuple[int, int]], overdue: list[tuple[int, int]]) -> None:
        rescued = self._run(self._stage.rescue(worker, dead, overdue))
        assert rescued == self._model.rescue(worker, dead, overdue), "invariant 5: the dead's tasks, and only those"

    @precondition(lambda self: len(self._active) > 1)
    @rule(who=PICK)
    def crash(self, who: int) -> None:
        """It is never heard of again, except that its handlers may settle what they have."""
        self._active.pop(who % len(self._active))

    @precondition(lambda self: any(one.holder for one in self._model.tasks.values()))
    @rule(lease_s=LEASES_S)
    def all_die_and_are_found(self, lease_s: float) -> None:
        """The whole fleet is lost, and a new worker comes."""
        self._active.clear()
        dead = [(one, worker.beats) for one, worker in self._model.workers.items() if not worker.is_stopped]
        self.sign_on(lease_s)
        self._rescue(self._active[0], dead, [])

    @precondition(lambda self: len(self._active) > 1)
    @rule(who=PICK)
    def sign_off(self, who: int) -> None:
        """A worker that holds tasks signs off: it should not, but it may have to."""
        busy = [one for one in self._active if any(task.holder == one for task in self._model.tasks.values())]
        worker = (busy or self._active)[who % len(busy or self._active)]
        self._run(self._stage.store.sign_off(worker))
        self._model.workers[worker].is_stopped = True

    @precondition(lambda self: self._active)
    @rule(seconds=st.sampled_from([1_000.0, 1_000.0, 3_000.0]), lease_s=LEASES_S)
    def everybody_beats(self, seconds: float, lease_s: float) -> None:
        """An ordinary while: no worker dies of it."""
        self.let_time_pass(seconds)
        for worker in list(self._active):
            self._beat(worker, lease_s)

    @precondition(lambda self: len(self._active) > 1)
    @rule(seconds=st.sampled_from([10_000.0, 100_000.0]), times=st.integers(1, 3), first=PICK, lease_s=LEASES_S)
    def an_outage_that_all_share(self, seconds: float, times: int, first: int, lease_s: float) -> None:
        """No beat gets through for longer than any lease, once or again and again; then they come in any order."""
        for _ in range(times):
            self.let_time_pass(seconds)
            place = first % len(self._active)
            for worker in self._active[place:] + self._active[:place]:
                assert self._beat(worker, lease_s) == [], "invariant 5: a live worker's task is not rescued"

    @precondition(lambda self: self._model.tasks)
    @rule(which=PICK)
    def cancel(self, which: int) -> None:
        self._cancel(list(self._model.tasks.values())[which % len(self._model.tasks)])

    @precondition(lambda self: self._model.tasks)
    @rule(which=PICK)
    def retry(self, which: int) -> None:
        """Mostly of what has ended: the others are refused."""
        ended = [one for one in self._model.tasks.values() if not one.is_live]
        tasks = ended if ended and which % 8 else list(self._model.tasks.values())
        task = tasks[which % len(tasks)]
        was_retried = self._run(self._stage.store.retry(task.id, json({"what": "retry"})))
        assert was_retried == self._model.retry(task)

    @precondition(lambda self: self._standing())
    @rule(which=PICK)
    def cancel_what_runs(self, which: int) -> None:
        standing = self._standing()
        self._cancel(self._model.tasks[standing[which % len(standing)][1].id])

    @precondition(lambda self: any(lease.name == "watch" for _, lease in self._standing()))
    @rule(which=PICK, way=st.sampled_from(["snooze", "hand back"]))
    def ask_a_watch_in_the_middle_of_a_look(self, which: int, way: str) -> None:
        """Its look ends without knowing of it, and wants to wait."""
        looking = [(worker, lease) for worker, lease in self._standing() if lease.name == "watch"]
        worker, lease = looking[which % len(looking)]
        self._cancel(self._model.tasks[lease.id])
        self._settle(worker, {lease.id: settlement(lease, way, 3_500.0)})

    def _cancel(self, task: ModelTask) -> None:
        state = self._run(self._stage.store.cancel(task.id, json({"what": "cancel"})))
        assert state == self._model.cancel(task)

    @rule(seconds=STEPS_S)
    def let_time_pass(self, seconds: float) -> None:
        self._run(self._stage.pass_time(seconds))
        self._model.now += seconds

    @invariant()
    def every_task_is_as_it_should_be(self) -> None:
        shown = self._run(self._stage.store.info(list(self._model.tasks)))
        assert shown.keys() == self._model.tasks.keys(), "invariant 3: no task is lost"
        wrong = {one: found for one, task in self._model.tasks.items() if (found := task.differs(shown[one]))}
        assert not wrong

    @invariant()
    def every_event_is_seen_once(self) -> None:
        """By one who goes from position to position."""
        page = self._run(self._stage.store.events(self._feed_after, 1_000))
        self._feed += [(one.task_id, one.seq) for one in page.events if one.seq >= 0]
        self._actions.update(one.task_id for one in page.events if one.seq < 0)
        self._feed_after = page.after
        assert self._feed == self._model.feed, "invariant 9: written with what it tells about, and never missed"
        assert self._actions == self._model.actions, "nor what was done to a task from outside"

    @invariant()
    def every_task_is_in_one_place(self) -> None:
        listed = self._run(self._stage.store.tasks(TaskFilter(), limit=1_000)).tasks
        assert [one.id for one in listed] == sorted(self._model.tasks, reverse=True), "invariant 3: nor there twice"
        keys = Counter((one.kind, one.key) for one in listed if one.key is not None and one.ended_at is None)
        assert max(keys.values(), default=1) == 1, "invariant 6: a key has at most one live task of a kind"


@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.prove)])
def test_invariants_one_to_six_and_nine(
    backend: Backend, runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """The same examples every time: running the one test again replays what failed."""
    monkeypatch.setattr(limits, "LEASE_BYTES", LOOK_BYTES)
    monkeypatch.setattr(limits, "STATEMENT_BYTES", LOOK_BYTES)
    monkeypatch.setattr(limits, "PAYLOAD_BYTES", 10_000)
    usual = settings(
        derandomize=True,
        deadline=None,
        database=None,
        max_examples=times * {"memory": 100, "sqlite": 20}.get(backend.name, 10),
        stateful_step_count=50,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    try:
        machine: Any = partial(StoreMachine, backend, runner)  # a factory will do, though its type says class
        run_state_machine_as_test(machine, settings=usual)
    except BaseException as error:
        replay = f"make test ARGS='tests/stores/test_invariants_hold.py -k {backend.name}'"
        error.add_note(f"Replay with: {replay} (the examples are the same in every run)")
        raise
