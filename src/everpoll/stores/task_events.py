"""Events that stores write about tasks, with the same texts on every store."""

from everpoll.stores.contract import EndState, NewEvent, TaskState, encode
from everpoll.stores.operations import UNNUMBERED, LogEntry

CANCELED_MEANWHILE = "a caller asked to cancel it while it ran"
LOST_WORKER = "its worker was lost"
OVERDUE = "it ran past its deadline"


REPLACED = encode({"what": "replaced", "why": "an enqueue of its key replaced its arguments, delay and priority"})
"""The note of a queued task that another enqueue replaced; of several in a row, the trail has the last one."""


def canceled_event() -> NewEvent:
    """Return the event of a task that ends instead of being due again, because a caller canceled it meanwhile."""
    return NewEvent(UNNUMBERED, encode({"what": "canceled", "why": CANCELED_MEANWHILE}))


def rescued_event(what: EndState, why: str, rescues: int) -> NewEvent:
    """Return the event of a task that ends because its worker was lost, or it ran past its deadline."""
    return NewEvent(UNNUMBERED, encode({"what": what, "by": "rescue", "why": why, "rescues": rescues}))


def queue_entry(what: str, queue: str, by: str, why: str = "") -> LogEntry:
    """Return the entry of the log for an operation on a queue."""
    said = {"by": by, "why": why}
    return LogEntry("queue", queue, encode({"what": what, **{name: text for name, text in said.items() if text}}))


def with_state(note: str, state: TaskState) -> str:
    """Return the note with the state of the task inserted, for the feed. The text is not decoded."""
    fields = note.strip()[1:].lstrip()
    return f'{{"state":"{state}"{"," if fields != "}" else ""}{fields}'
