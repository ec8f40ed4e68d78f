"""Why a task is where it is: the blocker, named, with the evidence that was recorded when decisions were made.

Pure: it gets a task, the workers and the queues of one moment, and returns sentences. Never guesses: it says only what
is recorded.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from everpoll.engine.work import name_and_version
from everpoll.policy import human
from everpoll.policy.start_window import Span, counting, left, opens_at, window_s
from everpoll.stores.contract import Limit, LimitInfo, QueueInfo, TaskInfo, WorkerInfo
from everpoll.stores.operations import Pause
from everpoll.stores.set_aside import is_set_aside

# While push works, workers poll at least once a minute, jitter included: a task due for longer should have been leased.
LONGEST_REST_S = 70.0
# Longer than the time between two heartbeats by default, and than most handlers need to clean up.
STUBBORN_S = 30.0


class Why(Struct, frozen=True):
    """One answer: the verdict in one sentence, the evidence for it, and advice."""

    verdict: str
    evidence: tuple[str, ...] = ()
    advice: str | None = None


def why(
    task: TaskInfo,
    workers: Sequence[WorkerInfo],
    queues: Sequence[QueueInfo],
    losses: Sequence[dict[str, Any]],
    now: datetime,
    gone: Collection[int] = (),
    limit: LimitInfo | None = None,
) -> Why:
    """Explain why the task has not ended, or how it ended.

    `limit` is the state of the limit that the task counts towards, if there is one. `gone` are the incarnations of
    workers whose process does not exist any more, as far as the caller knows.
    """
    if task.state == "running":
        answer = _running(task, workers, now, gone)
    elif task.state == "queued" and task.blockers:
        # `why_blocked` names these tasks.
        answer = Why(f"It waits for {task.blockers} other task{'s' if task.blockers != 1 else ''} to end.")
    elif task.state == "queued" and is_set_aside(task.trail) and task.due_at > now:
        answer = _set_aside(task, workers, now)
    elif task.state == "queued":
        answer = _due(task, workers, queues, now, gone, limit) if task.due_at <= now else _waiting(task, queues, now)
    else:
        answer = _ended(task)
    records = tuple(recorded(entry) for entry in (*task.trail, *losses))
    return Why(answer.verdict, answer.evidence + records, answer.advice)


def _retry(task: TaskInfo) -> str:
    return f"everpoll jobs retry {task.id}"


def _ended(task: TaskInfo) -> Why:
    took = ""
    if task.started_at is not None and task.ended_at is not None:
        took = f" in {_span(task.started_at, task.ended_at)}"
    where = f" on worker {task.worker}" if task.worker else ""
    if task.state == "done":
        return Why(f"It is done: attempt {task.attempt} ended{took}{where}.")
    if task.state == "canceled":
        return Why(f"It was canceled: {task.cancel_reason}.", advice=f"to run it after all: `{_retry(task)}`")
    if task.rescues and not task.errors:
        return Why(
            f"It failed: its worker was lost {task.rescues} times while running it.",
            advice=f"see what it does to workers, then run `{_retry(task)}`",
        )
    error = task.errors[-1] if task.errors else None
    cause = f"{error.get('type', 'error')}: {error.get('error')}" if error else _last(task, "why")
    return Why(
        f"It failed after {task.attempt} attempt{'s' if task.attempt != 1 else ''}: {cause}.",
        advice=f"mend the cause, then run `{_retry(task)}`: it gets fresh attempts",
    )


def _running(task: TaskInfo, workers: Sequence[WorkerInfo], now: datetime, gone: Collection[int]) -> Why:
    worker = next((one for one in workers if one.incarnation == task.incarnation), None)
    since = "" if task.started_at is None else f" for {_span(task.started_at, now)}"
    evidence = [f"attempt {task.attempt}, leased by worker {task.worker} (incarnation {task.incarnation:016x})"]
    if task.deadline_at is not None:
        evidence.append(f"its deadline is {_relative(task.deadline_at, now)}")
    asked_s = _asked_to_end_s(task, now)
    if task.cancel_requested and asked_s < STUBBORN_S:
        evidence.append("a caller asked to cancel it; its worker learns that at its next heartbeat")
    if worker is not None and worker.is_alive and worker.incarnation in gone:
        return Why(
            f"Its worker is gone: {_gone(worker)}; once its lease is over, a live worker makes the task due again.",
            tuple(evidence),
        )
    if worker is not None and worker.is_alive:
        if task.cancel_requested and asked_s >= STUBBORN_S:
            return Why(
                f"It was asked to end {human(round(asked_s))} ago and has not: its function still runs on worker "
                f"{task.worker}, and keeps its slot.",
                (*evidence, _heard(worker)),
                advice="a plain function has to look at task.is_stopping, or have a timeout=; else end that worker",
            )
        return Why(f"It is running{since} on {_heard(worker)}.", tuple(evidence))
    living = [one for one in workers if one.is_alive and one.incarnation not in gone]
    evidence.append("that worker is not known any more" if worker is None else _silence(worker))
    if living:
        return Why(
            "Its worker is lost; the next heartbeat of any live worker makes the task due again.", tuple(evidence)
        )
    return Why(
        "Its worker is lost, and no worker is alive to rescue it.", tuple(evidence), advice="start one: everpoll run"
    )


def _asked_to_end_s(task: TaskInfo, now: datetime) -> float:
    """Return how long ago a caller requested the cancel; 0 if the trail does not tell."""
    asked = [entry["at"] for entry in task.trail if entry.get("what") == "cancel" and "at" in entry]
    return float(now.timestamp() - asked[0]) if asked else 0.0


def _set_aside(task: TaskInfo, workers: Sequence[WorkerInfo], now: datetime) -> Why:
    last = task.trail[-1]
    serving = [one for one in workers if one.is_alive and task.queue in one.queues]
    evidence = [str(last.get("why", ""))]
    evidence += [
        f"worker {one.label} registers {', '.join((one.names or ())[:20]) or 'nothing'}" for one in serving[:10]
    ]
    fails_at = last.get("fails_at")
    limit = "" if fails_at is None else f"; it fails {_relative(datetime.fromtimestamp(fails_at, now.tzinfo), now)}"
    since = _span(datetime.fromtimestamp(last.get("since", now.timestamp()), now.tzinfo), now)
    name = name_and_version(task.name, task.version)
    return Why(
        f"It waits for a worker of queue {task.queue!r} that registers {name}, since {since}{limit}.",
        tuple(evidence),
        advice="start a worker of the release that has this job: `everpoll run module:app`",
    )


def _waiting(task: TaskInfo, queues: Sequence[QueueInfo], now: datetime) -> Why:
    queue = _queue_of(task, queues)
    answer = _not_due(task, _relative(task.due_at, now))
    if queue is None or queue.paused is None:
        return answer
    paused = _paused(task, queue.paused, [], now)
    return Why(answer.verdict, (f"then it waits on: {paused.verdict}",), paused.advice)


def _not_due(task: TaskInfo, due: str) -> Why:
    last = task.trail[-1] if task.trail else {}
    match last.get("what"):
        case "retry" if "attempt" in last:
            return Why(f"It waits for its next attempt, {due}: attempt {last.get('attempt')} failed.")
        case "snooze":
            return Why(f"It was snoozed by its own function; it is due {due}.")
    if task.started_at is not None:
        return Why(f"It has run before, and is due again {due}.")
    return Why(f"It is not due yet: it was enqueued with a delay and is due {due}.")


def _due(
    task: TaskInfo,
    workers: Sequence[WorkerInfo],
    queues: Sequence[QueueInfo],
    now: datetime,
    gone: Collection[int],
    limit: LimitInfo | None,
) -> Why:
    living = [one for one in workers if one.is_alive and one.incarnation not in gone]
    serving = [one for one in living if task.queue in one.queues]
    evidence = [f"it has been due for {_span(task.due_at, now)}"]
    evidence += [_gone(one) for one in workers if one.is_alive and one.incarnation in gone][:10]
    waiting = _queue_of(task, queues)
    if waiting is not None and waiting.paused is not None:
        evidence += [] if serving else ["no live worker serves its queue, either"]
        return _paused(task, waiting.paused, evidence, now)
    if not serving:
        evidence += [f"worker {one.label} serves {', '.join(one.queues)}" for one in living[:10]]
        return Why(
            f"No live worker serves its queue {task.queue!r}." if living else "No worker is alive.",
            tuple(evidence),
            advice="start one: everpoll run module:app",
        )
    if task.limit is not None and limit is not None and (behind := behind_limit(task.limit, limit, now)) is not None:
        return Why(behind.verdict, (*evidence, *behind.evidence), behind.advice)
    if waiting is not None:
        evidence.append(f"{waiting.ready} tasks of this queue are ready, {waiting.running} are running")
    evidence += [f"{_heard(one)}, runs {one.running} of {one.slots}" for one in serving[:10]]
    if all(one.running >= one.slots for one in serving):
        return Why(
            f"All {len(serving)} workers that serve its queue are full."
            if len(serving) > 1
            else "The worker that serves its queue is full.",
            tuple(evidence),
            advice="add workers or slots, or give it a higher priority",
        )
    if waiting is not None and waiting.running:
        # Workers tell the names of their queues, not how many slots they give to each.
        return Why(
            f"It waits for its turn: {waiting.running} of its queue are running; its workers have free slots, but may "
            "give fewer of them to this queue.",
            tuple(evidence),
            advice="compare how many of its queue are running with queues= of the app",
        )
    if waiting is not None and waiting.ready > 1:
        return Why(
            "It stands in line: higher priorities come first, then what has been due for longer.", tuple(evidence)
        )
    if (now - task.due_at).total_seconds() > LONGEST_REST_S:
        return Why(
            "It should have been leased by now: its workers were heard lately and have free slots.",
            tuple(evidence),
            advice="read their logs: failed polls are logged there",
        )
    return Why("It is about to be leased.", tuple(evidence))


def limit_text(limit: Limit) -> str:
    """Return a limit as a line of text."""
    running = [] if limit.running is None else [f"{limit.running} at a time"]
    starts = [] if limit.starts is None else [f"{limit.starts} starts in {human(limit.per_s)}"]
    return f"{limit.key}: {', '.join([*running, *starts])}"


def behind_limit(limit: Limit, at_key: LimitInfo, now: datetime) -> Why | None:
    """Explain that the next task of this limit must wait; None if it may start now."""
    evidence = [f"{at_key.waiting} tasks of this key are due and wait; keys take turns"]
    if limit.running is not None and at_key.running >= limit.running:
        if at_key.oldest_started_at is not None:
            evidence.append(f"of those that run, the first one started {_span(at_key.oldest_started_at, now)} ago")
        return Why(
            f"It waits behind the limit of its key {limit.key!r}: {at_key.running} of {limit.running} run.",
            tuple(evidence),
            advice="it may start when one of them ends; to allow more at a time, raise concurrency= of the job",
        )
    if limit.starts is None:
        return None
    window = window_s(limit.per_s)
    spans = [Span(at.timestamp(), at.timestamp(), starts) for at, starts in at_key.starts]
    spans = counting(spans, now.timestamp(), window)
    if left(limit.starts, spans) > 0:
        return None
    next_at = datetime.fromtimestamp(opens_at(spans, window), now.tzinfo)
    evidence += [f"{span.starts} started {_span(_instant(span, now), now)} ago" for span in spans[-10:]]
    return Why(
        f"It waits behind the rate of its key {limit.key!r}: {limit.starts} have started within "
        f"{human(limit.per_s)}; the next one may start {_relative(next_at, now)}.",
        tuple(evidence),
        advice="to allow more starts, raise rate= of the job",
    )


def _instant(span: Span, now: datetime) -> datetime:
    return datetime.fromtimestamp(span.ended, now.tzinfo)


def _queue_of(task: TaskInfo, queues: Sequence[QueueInfo]) -> QueueInfo | None:
    return next((one for one in queues if one.queue == task.queue), None)


def _paused(task: TaskInfo, pause: Pause, evidence: list[str], now: datetime) -> Why:
    by = f" by {pause.by}" if pause.by else ""
    reason = f": {pause.reason}" if pause.reason else ""
    return Why(
        f"Its queue {task.queue!r} is paused{by}, for {_span(pause.at, now)}{reason}.",
        tuple(evidence),
        advice=f"to go on: `everpoll queues resume {task.queue}`",
    )


def recorded(entry: dict[str, Any]) -> str:
    """Return one decision of a trail as a line of text."""
    at = datetime.fromtimestamp(entry["at"]).astimezone().strftime("%Y-%m-%d %H:%M:%S") if "at" in entry else "?"
    by = f" by {entry['by']}" if entry.get("by") else ""
    error = f" ({entry.get('type', 'error')}: {entry['error']})" if entry.get("error") else ""
    detail = f": {entry['why']}" if entry.get("why") else ""
    return f"{at} {entry.get('what', '?')}{by}{detail}{error}"


def _last(task: TaskInfo, field: str) -> str:
    return str(task.trail[-1].get(field, "no reason was given")) if task.trail else "no reason was given"


def _heard(worker: WorkerInfo) -> str:
    """Return when a worker last sent a heartbeat; no record can tell whether it lives at this moment."""
    return f"worker {worker.label}, last heard {human(round(worker.beat_age_s, 1))} ago"


def _gone(worker: WorkerInfo) -> str:
    return f"{_heard(worker)}; this host has no process {worker.pid} any more"


def _silence(worker: WorkerInfo) -> str:
    if worker.stopped_at is not None:
        return f"worker {worker.label} was declared dead or has ended at {worker.stopped_at:%H:%M:%S}"
    return f"worker {worker.label} has been silent for {human(round(worker.beat_age_s))}"


def _span(start: datetime, end: datetime) -> str:
    seconds = max(0.0, (end - start).total_seconds())
    return human(round(seconds, 3) if seconds < 10 else round(seconds))


def _relative(instant: datetime, now: datetime) -> str:
    return f"in {_span(now, instant)}" if instant > now else f"{_span(instant, now)} ago"
