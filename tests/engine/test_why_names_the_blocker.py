"""`why`: the blocker of a task is named with evidence, and what the records do not say is not said."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from everpoll.engine.why import LONGEST_REST_S, STUBBORN_S, why
from everpoll.stores.contract import QueueInfo, TaskInfo, WorkerInfo
from everpoll.stores.operations import Pause

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def task(**fields: Any) -> TaskInfo:
    row: dict[str, Any] = {
        "id": 1,
        "kind": "job",
        "name": "audit",
        "queue": "default",
        "key": None,
        "state": "queued",
        "priority": 0,
    }
    times = {"attempt": 0, "rescues": 0, "created_at": ago(60), "due_at": ago(5)}
    return TaskInfo(**(row | times | fields))


def worker(**fields: Any) -> WorkerInfo:
    card: dict[str, Any] = {
        "incarnation": 7,
        "label": "till-1",
        "host": "h",
        "pid": 1,
        "queues": ("default",),
        "slots": 5,
    }
    life = {"version": "0", "started_at": ago(600), "beat_at": ago(1), "beat_age_s": 1.0, "is_alive": True}
    return WorkerInfo(**(card | life | {"stopped_at": None, "running": 0} | fields))


def queue(ready: int = 1, running: int = 0) -> list[QueueInfo]:
    return [QueueInfo(queue="default", ready=ready, waiting=0, running=running)]


def running(**fields: Any) -> TaskInfo:
    held: dict[str, Any] = {
        "state": "running",
        "attempt": 1,
        "worker": "till-1",
        "incarnation": 7,
        "started_at": ago(100),
    }
    return task(**(held | fields))


def test_a_pause_is_named_with_its_actor_its_age_and_its_reason() -> None:
    pause = Pause(reason="the printer burns", by="ann", at=ago(90))
    paused = [QueueInfo(queue="default", ready=3, waiting=0, running=0, paused=pause)]
    told = why(task(), [worker()], paused, (), NOW)
    assert told.verdict == "Its queue 'default' is paused by ann, for 1m30s: the printer burns."
    assert told.advice == "to go on: `everpoll queues resume default`"
    assert "no live worker serves its queue, either" in why(task(), [], paused, (), NOW).evidence
    later = why(task(due_at=ago(-60)), [worker()], paused, (), NOW)
    assert later.verdict.startswith("It is not due yet")
    assert later.evidence == ("then it waits on: Its queue 'default' is paused by ann, for 1m30s: the printer burns.",)
    bare = [QueueInfo(queue="default", ready=3, waiting=0, running=0, paused=Pause(reason="", by="", at=ago(5)))]
    assert why(task(), [worker()], bare, (), NOW).verdict == "Its queue 'default' is paused, for 5s."


def asked_to_end(seconds_ago: float) -> TaskInfo:
    trail = ({"what": "cancel", "why": "not needed", "at": ago(seconds_ago).timestamp(), "by": ""},)
    return running(cancel_requested=True, trail=trail)


LOST = worker(is_alive=False, beat_age_s=90.0)
BUSY = worker(running=5)


@pytest.mark.parametrize(
    ("which", "workers", "queues", "verdict"),
    [
        (task(), [], queue(), "No worker is alive."),
        (task(), [LOST], queue(), "No worker is alive."),
        (task(), [worker(queues=("mail",))], queue(), "No live worker serves its queue 'default'."),
        (task(), [BUSY], queue(), "The worker that serves its queue is full."),
        (task(), [BUSY, BUSY, LOST], queue(), "All 2 workers that serve its queue are full."),
        (task(), [worker()], queue(ready=3), "It stands in line: "),
        (task(), [worker()], queue(), "It is about to be leased."),
        (task(due_at=ago(LONGEST_REST_S + 1)), [worker()], queue(), "It should have been leased by now"),
        (
            task(due_at=ago(-60)),
            [worker()],
            queue(),
            "It is not due yet: it was enqueued with a delay and is due in 1m.",
        ),
        (running(), [worker()], queue(), "It is running for 1m40s on worker till-1, last heard 1s ago."),
        (running(), [LOST], queue(), "Its worker is lost, and no worker is alive to rescue it."),
        (running(), [LOST, worker(incarnation=8)], queue(), "Its worker is lost; the next heartbeat of any live"),
        (asked_to_end(1), [worker()], queue(), "It is running for 1m40s on worker till-1, last heard 1s ago."),
    ],
)
def test_the_verdict(which: TaskInfo, workers: list[WorkerInfo], queues: list[QueueInfo], verdict: str) -> None:
    assert why(which, workers, queues, [], NOW).verdict.startswith(verdict)


def test_a_queue_whose_own_slots_may_be_full_is_not_called_about_to_be_leased() -> None:
    """`queues={"default": 2}` of a worker with five slots: it tells the names of its queues only."""
    answer = why(task(), [worker(running=2)], queue(ready=1, running=2), [], NOW)
    assert answer.verdict.startswith("It waits for its turn: 2 of its queue are running;")
    assert "may give fewer of them to this queue" in answer.verdict
    assert "queues=" in str(answer.advice)
    assert "worker till-1, last heard 1s ago, runs 2 of 5" in answer.evidence


def test_a_worker_whose_process_is_gone_is_not_called_alive() -> None:
    """Its last heartbeat is a second old, and its lease lasts; but this host has no such process any more."""
    answer = why(running(), [worker(pid=4711)], queue(), [], NOW, gone={7})
    assert answer.verdict == (
        "Its worker is gone: worker till-1, last heard 1s ago; this host has no process 4711 any more; once its lease "
        "is over, a live worker makes the task due again."
    )
    answer = why(task(), [worker(pid=4711)], queue(), [], NOW, gone={7})
    assert answer.verdict == "No worker is alive."
    assert "worker till-1, last heard 1s ago; this host has no process 4711 any more" in answer.evidence
    assert "alive" not in why(running(), [worker()], queue(), [], NOW).verdict


def test_a_function_that_ignores_its_cancel_is_named_with_what_to_do() -> None:
    answer = why(asked_to_end(STUBBORN_S + 270), [worker()], queue(), [], NOW)
    assert answer.verdict == (
        "It was asked to end 5m ago and has not: its function still runs on worker till-1, and keeps its slot."
    )
    assert "task.is_stopping" in str(answer.advice)


def test_the_trail_and_the_losses_are_evidence() -> None:
    trail = ({"at": ago(9).timestamp(), "by": "till-1", "what": "hand-back", "why": "its worker shuts down"},)
    losses = [{"at": ago(8).timestamp(), "by": "till-2", "what": "loss", "why": "dropped"}]
    evidence = why(task(trail=trail), [worker()], queue(), losses, NOW).evidence
    assert [line.split(" ", 2)[2] for line in evidence[-2:]] == [
        "hand-back by till-1: its worker shuts down",
        "loss by till-2: dropped",
    ]


@pytest.mark.parametrize(
    "ended",
    [
        {"state": "failed", "attempt": 3, "trail": ({"what": "failed", "error": "no", "type": "ValueError"},)},
        {"state": "failed", "rescues": 3},
        {"state": "canceled", "trail": ({"what": "cancel", "why": "not wanted"},)},
    ],
    ids=["failed", "lost its workers", "canceled"],
)
def test_an_ended_task_is_told_the_command_that_retries_it(ended: dict[str, Any]) -> None:
    answer = why(task(id=17, ended_at=ago(1), **ended), [], [], (), NOW)
    assert "`everpoll jobs retry 17`" in str(answer.advice)


def test_a_task_of_a_newer_version_waits_for_a_worker_of_that_version() -> None:
    """The worker of the release before registers its name."""
    note = {"what": "set-aside", "why": "version 1 is registered here", "since": ago(60).timestamp(), "fails_at": None}
    waiting = task(version=2, trail=(note,), due_at=NOW + timedelta(hours=1))
    answer = why(waiting, [worker(names=("audit",))], queue(), [], NOW)
    assert "that registers 'audit' with version 2 or newer, since 1m" in answer.verdict
    assert "worker till-1 registers audit" in answer.evidence
    first = why(task(trail=(note,), due_at=NOW + timedelta(hours=1)), [], queue(), [], NOW)
    assert "that registers 'audit', since" in first.verdict
