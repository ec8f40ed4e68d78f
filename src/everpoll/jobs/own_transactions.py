"""Transactions of the caller: enqueues jobs in them, and ends a job in one.

Promises: a commit enqueues or ends exactly once, a rollback does neither. A connection that cannot be used is refused
before anything is changed, and the error says what to pass.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from everpoll.drivers.callers import CallerWork, OtherDatabase, check_kind, perform, perform_async
from everpoll.engine.work import Run
from everpoll.errors import BadInput, WrongState
from everpoll.jobs.outages import through_outages
from everpoll.jobs.outcome import returned
from everpoll.policy import Cancel, Snooze
from everpoll.stores.contract import Ended, Enqueued, NewTask, Store

if TYPE_CHECKING:
    from everpoll.jobs.registry import Jobs

T = TypeVar("T")
WorkOf = Callable[[Store, bool], Awaitable[CallerWork[T]]]
"""Gets the work from a store. True: get it anew, because the connection is one of another database now."""


async def inside(jobs: "Jobs", connection: object, work_of: WorkOf[T], instead: str) -> T:
    """Do the work in the transaction of an asynchronous connection; `instead` is the call for a synchronous one."""
    check_kind(connection, is_async=True, instead=instead)
    store = await jobs.store()
    try:
        return await perform_async(connection, await work_of(store, False), instead)
    except OtherDatabase:
        # The server may have restarted since the store read its identity.
        return await perform_async(connection, await work_of(store, True), instead)


def inside_sync(
    call: "Callable[[Callable[[Jobs], Coroutine[Any, Any, Any]], str], Any]",
    connection: object,
    work_of: WorkOf[T],
    instead: str,
) -> T:
    """Do the same for a synchronous connection; `call` runs a coroutine on an event loop."""
    check_kind(connection, is_async=False, instead=instead)

    async def ask(jobs: "Jobs", anew: bool) -> CallerWork[T]:
        return await work_of(await jobs.store(), anew)

    def performed(anew: bool) -> T:
        work: CallerWork[T] = call(lambda jobs: ask(jobs, anew), instead)
        return perform(connection, work, instead)

    try:
        return performed(anew=False)
    except OtherDatabase:
        return performed(anew=True)


def enqueueing_of(tasks: Sequence[NewTask]) -> WorkOf[list[Enqueued]]:
    """Return a function that gets the work of enqueueing these tasks from a store."""
    return lambda store, anew: store.enqueue_inside(tasks, anew=anew)


def completing_of(run: Run, ended: Ended) -> WorkOf[None]:
    """Return a function that gets the work of ending this run from a store."""
    return lambda store, anew: store.complete_inside(run.incarnation, ended, anew=anew)


def completion(run: Run, result: object) -> Ended:
    """Return the end of a job with this result, and mark the run as completing."""
    label = f"task {run.lease.id}"
    if run.completing is not None:
        raise WrongState(f"{label}: complete() was called already; a job ends once")
    if isinstance(result, Snooze | Cancel):
        raise BadInput(f"{label}: complete() ends it as done: return {type(result).__name__}(…) from the job instead")
    ended = returned(run.lease, result)
    if not isinstance(ended, Ended) or ended.note is not None:
        raise BadInput(f"{label}: complete() cannot keep this result: it must be JSON, and small enough to be stored")
    run.completing = ended
    return ended


async def is_complete(store: Store, run: Run) -> bool:
    """Return True if a committed transaction ended the task. Waits while the database is away."""

    async def ask() -> bool:
        return await store.is_complete(run.incarnation, run.lease)

    return await through_outages(store, ask, f"{run.lease.label}: cannot find out whether it is complete")
