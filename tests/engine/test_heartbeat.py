"""The heartbeat beats from its own thread whatever the event loop does, and tells when it could not for too long.

In real time, decided by events: a wait that runs into its limit fails the test, a beat that comes ends it.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from engine.engine_stage import done
from everpoll.drivers.wake import OnWake
from everpoll.engine import beat_sender, heartbeat
from everpoll.engine.beat_sender import BEATS_PER_LEASE, HeartbeatTiming, Listeners
from everpoll.engine.heartbeat import Heartbeat
from everpoll.engine.options import WorkerOptions
from everpoll.engine.work import Run, Work, WorkRegistry
from everpoll.engine.worker import Worker
from everpoll.errors import StoreUnavailable
from everpoll.policy.liveness import OtherWorker
from everpoll.stores.contract import Beat, Leased, NewTask, Rescued, Settlement, WorkerCard
from everpoll.stores.figures import Figure
from everpoll.stores.memory import MemoryStore

LIMIT_S = 20.0
QUICK_S = 0.15
SLOW_S = 3_600.0


class FakeConnection:
    """Counts beats, and answers as told; every connection that was opened is in `opened`."""

    def __init__(self, answer: Callable[[int], Beat] | None = None) -> None:
        self._answer = answer or (lambda _: Beat(is_alive=True))
        self._changed = threading.Condition()
        self.beats = 0
        self.opened = 0
        self.closed = 0
        self.threads: set[str] = set()
        self.asked: list[tuple[int, float, list[int]]] = []
        self.rescues: list[tuple[list[tuple[int, int]], list[tuple[int, int]]]] = []

    def __call__(self) -> "FakeConnection":
        self.opened += 1
        return self

    def beat(self, incarnation: int, lease_s: float, running: Sequence[int]) -> Beat:
        with self._changed:
            self.beats += 1
            self.threads.add(threading.current_thread().name)
            self.asked.append((incarnation, lease_s, list(running)))
            self._changed.notify_all()
        return self._answer(self.beats)

    def rescue(self, incarnation: int, dead: Sequence[tuple[int, int]], overdue: Sequence[tuple[int, int]]) -> Rescued:
        self.rescues.append((list(dead), list(overdue)))
        return Rescued(len(dead) + len(overdue))

    def publish(self, incarnation: int, figures: Sequence[Figure], loops: str | None) -> None:
        pass

    def close(self) -> None:
        self.closed += 1

    def wait_for(self, beats: int) -> None:
        """Block this thread until so many beats have come."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.beats >= beats, LIMIT_S), f"{self.beats} of {beats} beats"


class Heart:
    """A heartbeat and what it tells."""

    def __init__(
        self,
        connection: FakeConnection,
        lease_s: float,
        running: Sequence[int] = (),
        overdue: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.beats: asyncio.Queue[Beat] = asyncio.Queue()
        self.rescued: asyncio.Queue[Rescued] = asyncio.Queue()
        self.failures: asyncio.Queue[str] = asyncio.Queue()
        self.silences: asyncio.Queue[float] = asyncio.Queue()
        listeners = Listeners(
            self.beats.put_nowait, self.rescued.put_nowait, self.failures.put_nowait, self.silences.put_nowait
        )
        timing = HeartbeatTiming(lease_s, lease_s / BEATS_PER_LEASE)
        self.heartbeat = Heartbeat(connection, 7, timing, lambda: (running, overdue), listeners)
        self.heartbeat.start()

    async def beat(self) -> Beat:
        async with asyncio.timeout(LIMIT_S):
            return await self.beats.get()

    async def silence(self) -> float:
        async with asyncio.timeout(LIMIT_S):
            return await self.silences.get()


def gone(_beat: int) -> Beat:
    raise StoreUnavailable("connection refused")


def no_heart_beats() -> None:
    """Wait for the threads of hearts to end."""
    for thread in threading.enumerate():
        if thread.name.startswith("everpoll-heartbeat"):
            thread.join(LIMIT_S)
            assert not thread.is_alive(), thread.name


async def test_beats_go_on_while_a_handler_blocks_the_event_loop() -> None:
    connection = FakeConnection()
    heart = Heart(connection, QUICK_S)
    connection.wait_for(4)  # in this very thread: nothing else runs on the event loop meanwhile
    assert heart.beats.empty()
    assert (await heart.beat()).is_alive
    await heart.heartbeat.stop()
    assert heart.silences.empty()
    assert connection.threads == {"everpoll-heartbeat"}


async def test_a_beat_says_who_beats_for_how_long_and_asks_about_what_runs() -> None:
    connection = FakeConnection(lambda _: Beat(is_alive=True, canceled=(3,), rescued=2))
    heart = Heart(connection, QUICK_S, running=[3, 4])
    beat = await heart.beat()
    assert (beat.canceled, beat.rescued) == ((3,), 2)
    assert connection.asked[0] == (7, QUICK_S, [3, 4])
    await heart.heartbeat.stop()


async def test_the_first_beat_comes_at_once() -> None:
    heart = Heart(FakeConnection(), SLOW_S)
    await heart.beat()
    await heart.heartbeat.stop()


async def test_a_worker_whose_number_stands_still_is_declared_dead_by_that_number() -> None:
    """And only after a whole lease of it: a beat with another number in between starts the watch over."""
    numbers = [4, 4, 5]

    def answer(beat: int) -> Beat:
        number = numbers[min(beat, len(numbers)) - 1]
        return Beat(is_alive=True, others=(OtherWorker(9, number, QUICK_S), OtherWorker(8, beat, QUICK_S)))

    connection = FakeConnection(answer)
    heart = Heart(connection, QUICK_S)
    async with asyncio.timeout(LIMIT_S):
        assert (await heart.rescued.get()).tasks == 1
    await heart.heartbeat.stop()
    assert connection.rescues[0] == ([(9, 5)], [])


async def test_handlers_past_their_deadline_are_named_to_the_rescue() -> None:
    connection = FakeConnection()
    heart = Heart(connection, SLOW_S, running=[3, 4], overdue=[(3, 1)])
    async with asyncio.timeout(LIMIT_S):
        assert (await heart.rescued.get()).tasks == 1
    await heart.heartbeat.stop()
    assert connection.rescues == [([], [(3, 1)])]


async def test_a_rescue_that_fails_costs_no_beat() -> None:
    class Unlucky(FakeConnection):
        def rescue(
            self, incarnation: int, dead: Sequence[tuple[int, int]], overdue: Sequence[tuple[int, int]]
        ) -> Rescued:
            raise StoreUnavailable("connection refused")

    connection = Unlucky(lambda _: Beat(is_alive=True, has_leftovers=True))
    heart = Heart(connection, SLOW_S)
    for _ in range(4):
        assert (await heart.beat()).is_alive
        heart.heartbeat.beat_now()
    assert "rescue: StoreUnavailable" in await heart.failures.get()
    await heart.heartbeat.stop()
    assert (connection.opened, heart.silences.empty()) == (1, True)


async def test_hurry_beats_at_once() -> None:
    connection = FakeConnection()
    heart = Heart(connection, SLOW_S)
    await heart.beat()
    for _ in range(2):
        heart.heartbeat.beat_now()
        await heart.beat()
    await heart.heartbeat.stop()
    assert connection.beats == 3


async def test_after_stop_no_beat_comes_the_connection_is_closed_and_no_thread_is_left() -> None:
    connection = FakeConnection()
    heart = Heart(connection, QUICK_S)
    await heart.beat()
    await heart.heartbeat.stop()
    beats = connection.beats
    assert (connection.opened, connection.closed) == (1, 1)
    await heart.heartbeat.stop()
    no_heart_beats()
    assert connection.beats == beats


async def test_a_beat_that_fails_is_tried_again_on_another_connection(caplog: pytest.LogCaptureFixture) -> None:
    connection = FakeConnection(lambda beat: gone(beat) if beat <= 2 else Beat(is_alive=True))
    heart = Heart(connection, QUICK_S)
    await heart.beat()
    await heart.heartbeat.stop()
    assert connection.opened == connection.closed == 3
    assert heart.failures.get_nowait() == "heartbeat: StoreUnavailable: connection refused"
    assert sum("heartbeat failed: StoreUnavailable: connection refused" in one.message for one in caplog.records) == 1


async def test_a_worker_that_could_not_beat_for_two_thirds_of_its_lease_is_told_and_again_while_it_lasts() -> None:
    lease_s = 0.3
    heart = Heart(FakeConnection(gone), lease_s)
    first, second = await heart.silence(), await heart.silence()
    assert first >= lease_s * 2 / 3
    assert second > first
    await heart.heartbeat.stop()
    assert heart.beats.empty()


async def test_a_beat_that_succeeds_in_time_keeps_silence_away() -> None:
    # Two of three beats fail: the lease is never in danger, because a failed beat is tried again at once.
    connection = FakeConnection(lambda beat: Beat(is_alive=True) if beat % 3 == 0 else gone(beat))
    heart = Heart(connection, SLOW_S)
    for _ in range(5):
        heart.heartbeat.beat_now()
        before = connection.beats
        await asyncio.get_running_loop().run_in_executor(None, connection.wait_for, before + 1)
    assert heart.silences.empty()
    await heart.heartbeat.stop()


async def test_a_beat_that_hangs_in_the_network_cannot_hide_its_silence_and_does_not_hold_up_stop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(heartbeat, "STOP_S", 0.05)
    let_go = threading.Event()

    def hangs(_beat: int) -> Beat:
        assert let_go.wait(LIMIT_S)
        return Beat(is_alive=True)

    heart = Heart(FakeConnection(hangs), QUICK_S)
    assert await heart.silence() >= QUICK_S * 2 / 3
    await heart.heartbeat.stop()
    assert any("thread is left behind" in one.message for one in caplog.records)
    let_go.set()
    no_heart_beats()


async def test_a_worker_declared_dead_is_told_once_and_its_heart_stops_by_itself() -> None:
    connection = FakeConnection(lambda _: Beat(is_alive=False))
    heart = Heart(connection, QUICK_S)
    assert not (await heart.beat()).is_alive
    await asyncio.get_running_loop().run_in_executor(None, no_heart_beats)
    assert (connection.beats, connection.closed) == (1, 1)
    await heart.heartbeat.stop()
    assert heart.silences.empty()


def test_a_heart_whose_event_loop_was_closed_stops_by_itself() -> None:
    connection = FakeConnection()

    async def forgets() -> None:
        Heart(connection, QUICK_S)

    asyncio.run(forgets())
    no_heart_beats()
    assert connection.closed == 1


class BeatingStore(MemoryStore):
    """Counts the beats of each worker."""

    def __init__(self) -> None:
        super().__init__()
        self.beaten = threading.Semaphore(0)

    def beat(self, incarnation: int, lease_s: float, running: Sequence[int]) -> Beat:
        beat = super().beat(incarnation, lease_s, running)
        self.beaten.release()
        return beat


async def test_a_task_whose_handler_blocks_the_event_loop_past_the_lease_is_not_rescued_and_runs_once() -> None:
    store = BeatingStore()
    finder = WorkerCard(incarnation=7, label="finder", host="", pid=0, queues=(), slots=0, version="")
    await store.sign_on(finder, SLOW_S)
    numbers: list[int] = []
    ended = asyncio.Event()

    async def blocks(run: Run) -> Settlement:
        for _ in range(5):  # five beats are more than one lease
            assert store.beaten.acquire(timeout=LIMIT_S)
            [worker] = MemoryStore.beat(store, 7, SLOW_S, ()).others
            numbers.append(worker.beats)
        ended.set()
        return done(run.lease)

    works = WorkRegistry()
    works.add(Work("job", "default", blocks))
    worker = Worker(store, works, WorkerOptions(lease_s=0.2))
    await worker.start()
    [task] = await store.enqueue([NewTask(name="job")])
    async with asyncio.timeout(LIMIT_S):
        await ended.wait()
    await worker.stop()
    assert numbers[-1] >= 5
    info = (await store.info([task.id]))[task.id]
    assert (info.state, info.attempt, info.rescues) == ("done", 1, 0)
    no_heart_beats()


async def test_nothing_is_leased_before_the_heartbeat_was_heard() -> None:
    """A heartbeat that finds no connection would leave what its worker leases to the rescue."""
    beats: list[str] = []

    class Refusing(MemoryStore):
        def beat(self, incarnation: int, lease_s: float, running: Sequence[int]) -> Beat:
            if len(beats) < 3:
                beats.append("refused")
                raise StoreUnavailable("too many connections")
            beats.append("heard")
            return super().beat(incarnation, lease_s, running)

        async def lease(self, incarnation: int, rooms: dict[str, int], most: int) -> Leased:
            beats.append("leased")
            return await super().lease(incarnation, rooms, most)

    ended = asyncio.Event()

    async def work(run: Run) -> Settlement:
        ended.set()
        return done(run.lease)

    store, works = Refusing(), WorkRegistry()
    works.add(Work("job", "default", work))
    await store.enqueue([NewTask(name="job")])
    worker = Worker(store, works, WorkerOptions(lease_s=0.3))
    await worker.start()
    async with asyncio.timeout(LIMIT_S):
        await ended.wait()
    await worker.stop()
    assert beats[:5] == ["refused"] * 3 + ["heard", "leased"]


async def test_starting_that_fails_or_is_canceled_leaves_no_heart_beating() -> None:
    class Deaf(MemoryStore):
        hangs = False

        async def listen(self, on_wake: OnWake) -> None:
            del on_wake
            if self.hangs:
                await asyncio.Event().wait()
            raise StoreUnavailable("connection refused")

    store = Deaf()
    works = WorkRegistry()
    with pytest.raises(StoreUnavailable):
        await Worker(store, works, WorkerOptions()).start()
    store.hangs = True
    starting = asyncio.ensure_future(Worker(store, works, WorkerOptions()).start())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    no_heart_beats()
    assert [worker.is_alive for worker in await store.workers()] == [False, False]


def test_after_a_slow_answer_the_next_beat_comes_sooner() -> None:
    """The lease counts from the question: a full rest after the answer would fence handlers of a live worker."""
    now_s = 1_000.0
    takes_s = [1.0, 7.5, 30.0, 0.0]

    def answer(beat: int) -> Beat:
        nonlocal now_s
        now_s += takes_s[beat - 1]
        return Beat(is_alive=True)

    listeners = Listeners(*[lambda _: None] * 4)
    sender = beat_sender.BeatSender(7, HeartbeatTiming(30.0, 10.0), lambda: ((), ()), lambda: now_s, listeners)
    connection = FakeConnection(answer)
    assert [sender.beat(connection) for _ in takes_s] == [9.0, 2.5, 0.0, 10.0]
