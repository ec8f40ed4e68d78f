"""The options of `app.job` and of `enqueue`, and their checks."""

import inspect
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Literal, TypedDict

from everpoll.errors import BadInput
from everpoll.jobs.limits import Per
from everpoll.jobs.outcome import Retry
from everpoll.jobs.unique import KeyFunction
from everpoll.jobs.verdicts import Classify
from everpoll.policy import Duration, Rate, flaw_of, seconds, shown, whole_number
from everpoll.stores.contract import OnConflict

NAME_LIMIT = 200
PRIORITY_LIMIT = 1_000_000_000


class JobOptions(TypedDict, total=False):
    """The options of `app.job`."""

    name: str
    """Default: the function's own name."""
    queue: str
    priority: int
    """A higher priority runs first; of equal ones, the oldest task."""
    retry: Retry
    timeout: Duration | None
    """How long one run may take; after that, it has failed like one that raised an error."""
    concurrency: int | None
    """How many of its tasks may run at a time, over the whole fleet."""
    rate: Rate | None
    """How many of its tasks may start in any period of that length, over the whole fleet."""
    run: Literal["process"] | None
    """"process": each run is in a process of its own, which a timeout or a cancel ends; for plain functions of a
    module."""
    fatal: type[Exception] | tuple[type[Exception], ...]
    """Errors after which the job fails at once, even if attempts are left."""
    classify: Classify | None
    """A plain function of the error. It returns "fatal", "transient", a duration until the next attempt, or None for
    the ordinary rules."""
    version: int
    """The version of its arguments, from 1. Tasks of an earlier version are converted by `@job.migrate`; those of a
    later version wait for a worker that has it."""
    per: Per | None
    """Which tasks count together for these limits: those with the same value of the parameter of this name, or for
    which this function of the arguments returns the same key. If it returns None, the task has no limit."""
    key: KeyFunction | None
    """A function of the arguments that returns the key of the task, or None for no key."""
    on_conflict: OnConflict
    """What an enqueue does if another task has the key; see `EnqueueOptions`."""
    unique_for: Duration | None
    """How long after its enqueue a task keeps its key, even if it has ended."""


class EnqueueOptions(TypedDict, total=False):
    """The options of `enqueue`, in addition to the job's arguments."""

    delay: Duration | datetime
    """A datetime must be aware; one in the past means now."""
    priority: int
    key: str
    """At most one live task has this key. If there is one, `enqueue` returns it, or does what `on_conflict` says."""
    on_conflict: OnConflict
    """What to do if a task has the key. "existing": return that task. "reject": raise `KeyTaken`. "replace": give a
    waiting task the new arguments, delay and priority; a running one goes on, and a new task gets the key."""
    unique_for: Duration
    """How long after its enqueue a task keeps the key, even if it has ended."""
    connection: object | None
    """Enqueue in the transaction of this connection: a rollback enqueues nothing."""


ENQUEUE_OPTIONS = frozenset(EnqueueOptions.__annotations__)
"""The names of these options; a parameter of the function with such a name could not be passed by keyword."""


def check_options(where: str, given: Iterable[str], known: type) -> None:
    """Raise `BadInput` for an unknown option."""
    for name in given:
        if name not in known.__annotations__:
            raise BadInput(f"{where}: {name}= is not an option; there are {', '.join(known.__annotations__)}")


def check_parameters(where: str, function: Callable[..., Any]) -> None:
    """Raise `BadInput` for a generator, or a function with a parameter that has the name of an option."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadInput(f"{where} is a generator: calling it would run none of it; write it without `yield`")
    for name, one in inspect.signature(function).parameters.items():
        if name in ENQUEUE_OPTIONS and one.kind in {one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY}:
            raise BadInput(
                f"{where}: its parameter {name!r} would never get {name}=…, which is an option of enqueue(); rename "
                f"it, or make it positional-only: def {getattr(function, '__name__', 'f')}({name}, /)"
            )


def checked_text(name: str, value: object) -> str:
    """Return a name that every database can store; refuse any other."""
    if (flaw := flaw_of(value, NAME_LIMIT)) is not None:
        raise BadInput(f"{name}={shown(value)} {flaw}: write a text of 1 to {NAME_LIMIT} characters")
    assert isinstance(value, str), "anything else has a flaw"
    return value


def checked_priority(name: str, value: int) -> int:
    """Return a whole number that every database can store; refuse any other."""
    accepted = "a whole number; higher runs first"
    number = whole_number(value, name=name, at_least=-PRIORITY_LIMIT, accepted=accepted)
    if number > PRIORITY_LIMIT:
        raise BadInput(f"{name}={value}: write a whole number of at most {PRIORITY_LIMIT:,}")
    return number


def delay_s_of(name: str, value: Duration | datetime, wall: Callable[[], float]) -> float:
    """Return the seconds from now; the time until an instant is measured by the clock of this process."""
    if not isinstance(value, datetime):
        return seconds(value, name=name)
    if value.tzinfo is None or value.utcoffset() is None:
        raise BadInput(f"{name}={value!r} has no time zone: write datetime(…, tzinfo=UTC), or a duration")
    until_s = (value - datetime.fromtimestamp(wall(), UTC)).total_seconds()
    return seconds(max(0.0, until_s), name=f"{name}={value.isoformat()}: the seconds until then")
