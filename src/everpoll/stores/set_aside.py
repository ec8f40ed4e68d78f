"""Set-aside tasks: a worker that has not registered the name of a task leaves it to workers that have.

    leased by a worker that does not know its name ──▶ set aside: due much later ──released by one that does──▶ due now
                                                                      │
                                                                      └── no worker came: leased again, or failed

A set-aside task is a waiting task with such a note as its last one, and UNKNOWN_JOB as its class of errors, so that the
index of errors finds it. Other tasks cost nothing for that, neither when they are enqueued nor when they are leased.
"""

from typing import Any

from everpoll.stores.contract import encode

UNKNOWN_JOB = "JobNotFound"
SET_ASIDE = "set-aside"


def set_aside_note(why: str, since: float, fails_at: float | None) -> str:
    """Return the note of a set-aside task: why, since when, and when it fails if no worker registers its name."""
    return encode({"what": SET_ASIDE, "type": UNKNOWN_JOB, "why": why, "since": since, "fails_at": fails_at})


def is_set_aside(trail: tuple[dict[str, Any], ...] | list[dict[str, Any]]) -> bool:
    """Return True if a waiting task with this trail is set aside."""
    return bool(trail) and trail[-1].get("what") == SET_ASIDE
