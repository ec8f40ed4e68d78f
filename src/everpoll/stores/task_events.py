"""Events that stores write about tasks by themselves: the same words on every store, and in the feed of each."""

from everpoll.stores.contract import EndState, NewEvent, TaskState, encode
from everpoll.stores.operations import UNNUMBERED, LogEntry

CANCELED_MEANWHILE = "a caller asked to cancel it while it ran"
LOST_WORKER = "its worker was lost"
OVERDUE = "it ran past its deadline"


REPLACED = encode({"what": "replaced", "why": "an enqueue of its key replaced its arguments, delay and priority"})
"""The note of a queued task that took what another enqueue brought; of several in a row, the trail has the last."""


def canceled_event() -> NewEvent:
    """Return the event of a task that ends instead of being due again: a caller canceled it meanwhile."""
    return NewEvent(UNNUMBERED, encode({"what": "canceled", "why": CANCELED_MEANWHILE}))


def rescued_event(what: EndState, why: str, rescues: int) -> NewEvent:
    """Return the event of a task that ends because its worker was lost, or it ran past its deadline."""
    return NewEvent(UNNUMBERED, encode({"what": what, "by": "rescue", "why": why, "rescues": rescues}))


def queue_entry(what: str, queue: str, by: str, why: str = "") -> LogEntry:
    """Return the entry of the log about what was done to a queue."""
    said = {"by": by, "why": why}
    return LogEntry("queue", queue, encode({"what": what, **{name: text for name, text in said.items() if text}}))


def with_state(note: str, state: TaskState) -> str:
    """Return a note as the feed has it, with the state that the task has after it; spliced and not decoded."""
    fields = note.strip()[1:].lstrip()
    return f'{{"state":"{state}"{"," if fields != "}" else ""}{fields}'
