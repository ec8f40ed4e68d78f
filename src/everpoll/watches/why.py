"""Explains the state of a run: its last decision, the rule that made it, the facts, and the next look.

Pure: a task, the workers and the queues of one moment go in, sentences come out. It never guesses: each decision is
recorded with the run in the write that settles it, and this module repeats the record. If a run is due and no worker
has leased it, `everpoll.engine.why` explains it like any other task.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from everpoll.engine.why import Why, recorded
from everpoll.engine.why import why as why_task
from everpoll.policy import human
from everpoll.stores.contract import QueueInfo, TaskInfo, WorkerInfo
from everpoll.stores.operations import Pause
from everpoll.watches.extension import split_args
from everpoll.watches.memory import Decision, RunMemory
from everpoll.watches.run_info import RunInfo, memory_of, run_info

EARLIER = 5
"""How many decisions before the last one are shown; `everpoll runs show` shows all."""

UNDER_WAY = {
    "intent": "It is being started",
    "looking": "It is being looked at",
    "verifying": "It is being looked at",
    "canceling": "It is being canceled",
    "cleaning": "It is being cleaned up",
    "paused": "It is being looked at a last time before its pause",
    "needs_code": "It is being looked at, although it needed code before",
}
ENDS = {"ready": "It is ready", "failed": "It failed", "canceled": "It was canceled", "timed_out": "It timed out"}


def why(
    task: TaskInfo,
    workers: Sequence[WorkerInfo],
    queues: Sequence[QueueInfo],
    losses: Sequence[dict[str, Any]],
    now: datetime,
    gone: Collection[int] = (),
) -> Why:
    """Explain what the run waits for, or how it ended.

    `gone`: the incarnations of workers that the caller knows to have no process any more.
    """
    info, memory = run_info(task), memory_of(task)
    if info.ended_at is not None:
        answer = _ended(info)
    elif info.paused is not None and task.state != "running":
        answer = _paused(info.paused, now)
    elif task.state == "running":
        answer = _under_way(task, info, workers, now, gone)
    elif task.due_at > now:
        answer = _waiting(task, info, memory, now)
    else:
        # The run is due, and no worker has leased it: the engine explains that. The trail is added below.
        blocked = why_task(task, workers, queues, (), now, gone)
        answer = Why(blocked.verdict, _without_trail(blocked, task), blocked.advice)
    evidence = (*answer.evidence, *_facts(task, info, memory, now))
    return Why(answer.verdict, evidence + tuple(recorded(entry) for entry in (*task.trail, *losses)), answer.advice)


def decision_line(decision: Decision) -> str:
    """Write one decision of a run's log as a line of text."""
    since = "" if decision.first_at is None else f" ({decision.times} times since {_clock(decision.first_at)})"
    status = "" if decision.status is None else f" [{decision.status}]"
    next_look = "" if decision.next_s is None else f"; the next in {human(round(decision.next_s, 3))}"
    facts = "".join(f"; {name}: {value}" for name, value in decision.facts.items())
    return f"{_clock(decision.at)} {decision.rule}: {decision.why}{status}{facts}{next_look}{since}"


def _ended(info: RunInfo) -> Why:
    took = "" if info.elapsed_s is None else f", after {human(round(info.elapsed_s, 1))} and {_looks(info.looks)}"
    advice = None
    if info.cleaned is False:
        advice = "its cleanup was given up: workers with this watch try it again about once an hour"
    return Why(f"{ENDS[info.outcome or 'failed']}: {info.reason or 'no reason was recorded'}{took}.", advice=advice)


def _under_way(
    task: TaskInfo, info: RunInfo, workers: Sequence[WorkerInfo], now: datetime, gone: Collection[int]
) -> Why:
    engine = why_task(task, workers, (), (), now, gone)
    evidence = _without_trail(engine, task)
    worker = next((one for one in workers if one.incarnation == task.incarnation and one.is_alive), None)
    if worker is None or worker.incarnation in gone or "asked to end" in engine.verdict:
        return Why(engine.verdict, evidence, engine.advice)
    since = "" if task.started_at is None else f", for {_span(task.started_at, now)}"
    heard = f"last heard {human(round(worker.beat_age_s, 1))} ago"
    return Why(f"{UNDER_WAY[info.phase]} just now{since}, on worker {task.worker}, {heard}.", evidence)


def _waiting(task: TaskInfo, info: RunInfo, memory: RunMemory, now: datetime) -> Why:
    due = f"in {_span(now, task.due_at)}"
    last = memory.log[-1] if memory.log else None
    if memory.parked is not None:
        return Why(
            f"It needs code: {memory.parked}. A worker tries again {due}.",
            advice="deploy what the message asks for; its budget is paused meanwhile, and it goes on by itself",
        )
    if info.outcome is not None:
        return Why(
            f"It has its outcome, {info.outcome}, and waits for its cleanup, {due}: {_reason(last)}.",
            advice="the cleanup does not change the outcome",
        )
    if info.phase == "canceling":
        return Why(f"It is being canceled: {_reason(last)}; the next step is {due}.")
    if last is None:
        begun = "started" if info.phase == "intent" else "looked at"
        return Why(f"It was begun with a delay, and is first {begun} {due}.")
    return _by_rule(last, info, _pause_of(memory, now), due)


def _paused(pause: Pause, now: datetime) -> Why:
    by = f" by {pause.by}" if pause.by else ""
    reason = f": {pause.reason}" if pause.reason else ""
    verdict = (
        f"It is paused{by}, for {_span(pause.at, now)}{reason}. No worker looks at it, and its budget stands still."
    )
    return Why(verdict, advice="`everpoll runs resume` makes its next look due at once")


def _pause_of(memory: RunMemory, now: datetime) -> str:
    """Say how an outage of the remote affects the budget of the run."""
    if memory.paused_at is None:
        used_s = round(memory.outage_s)
        return f"; its time budget runs, after it was paused for {human(used_s)} in outages" if used_s else ""
    if memory.paused_most_s is None:
        return "; its time budget is paused meanwhile"
    left_s = memory.paused_most_s - memory.pause_s(now.timestamp())
    return f"; its time budget is paused meanwhile, for {human(round(left_s))} more at most"


def _by_rule(last: Decision, info: RunInfo, pause: str, due: str) -> Why:
    error = last.facts.get("error")
    match last.rule:
        case "breaker":
            return Why(
                f"It is postponed by the breaker of its remote, and tries again {due}: {last.why}{pause}.",
                advice="find out what is wrong with the remote; its next answer closes the breaker",
            )
        case "rate":
            return Why(f"It is postponed by the rate of its remote, and may call it {due}: {last.why}.")
        case "error" if info.phase == "intent":
            return Why(f"It is not started yet: {last.why}; tried again {due}.")
    if error is not None:
        return Why(f"Its last look failed: {error}; the next is {due}: {last.why}.")
    return Why(f"It has not ended, and is looked at again {due}: {last.why}.")


def _facts(task: TaskInfo, info: RunInfo, memory: RunMemory, now: datetime) -> list[str]:
    evidence = [f"phase {info.phase}, {_looks(info.looks)}, {_failed_calls(info.errors)}"]
    if info.outcome is None and info.budget_s is not None:
        evidence.append(_budget(task, info, memory, now))
    if info.status is not None or info.progress is not None:
        progress = f", progress {info.progress}" if info.progress else ""
        evidence.append(f"status at the remote: {info.status or 'none'}{progress}")
    if task.cancel_requested and info.outcome is None:
        evidence.append(f"a caller asked to cancel it: {task.cancel_reason}")
    evidence += [f"fact {name}: {_shown(value, now)}" for name, value in info.facts.items()]
    if memory.log:
        evidence.append(f"last decision: {decision_line(memory.log[-1])}")
    evidence += [f"before that: {decision_line(one)}" for one in reversed(memory.log[-EARLIER - 1 : -1])]
    return evidence


def _budget(task: TaskInfo, info: RunInfo, memory: RunMemory, now: datetime) -> str:
    elapsed = human(round(memory.elapsed_s(now.timestamp()), 1))
    looks = "" if info.budget_looks is None else f", {info.looks} of {info.budget_looks} looks"
    extension = split_args(task.args)[1]
    added = f"; {extension} of it were added by hand" if extension else ""
    return f"budget used: {elapsed} of {human(info.budget_s or 0.0)}{looks}{added}"


def _shown(fact: dict[str, Any], now: datetime) -> str:
    words = []
    for name, value in fact.items():
        if name != "last_at":
            words.append(f"{name} {value}")
        elif value is not None:
            words.append(f"last {human(round(max(0.0, now.timestamp() - value), 1))} ago")
    return ", ".join(words)


def _without_trail(answer: Why, task: TaskInfo) -> tuple[str, ...]:
    """Return the evidence without the trail, with which the engine's evidence ends."""
    return answer.evidence[: len(answer.evidence) - len(task.trail)]


def _reason(last: Decision | None) -> str:
    return "nothing was recorded yet" if last is None else last.why


def _looks(number: int) -> str:
    return "1 look" if number == 1 else f"{number} looks"


def _failed_calls(number: int) -> str:
    return "1 failed call" if number == 1 else f"{number} failed calls"


def _clock(at: float) -> str:
    try:
        return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return f"at {at:g}"  # a row that was edited by hand: not an instant of the calendar


def _span(start: datetime, end: datetime) -> str:
    seconds = max(0.0, (end - start).total_seconds())
    return human(round(seconds, 3) if seconds < 10 else round(seconds))
