"""Makes a diagnosis of a store: gathers the facts, then judges each of them."""

import time
from collections.abc import Callable, Collection
from typing import TypeVar

from everpoll.doctor import database, fleet, services, storage
from everpoll.doctor.diagnosis import Check, Diagnosis, Verdict, fine, problem, warning
from everpoll.doctor.fleet import Fleet
from everpoll.engine.live_workers import ended_here
from everpoll.monitors.alerts.mailbox import KIND as MAILBOX
from everpoll.stores.examination import Examiner, Facts, NotGathered

T = TypeVar("T")

TRANSACTION_AGE_S = 300.0


async def diagnose(
    examiner: Examiner, transaction_age_s: float = TRANSACTION_AGE_S, registered: Collection[str] = ()
) -> Diagnosis:
    """Examine a store and judge what is found. `registered`: the names of the tasks that the asking app can run."""
    facts = await examiner.examine(transaction_age_s, MAILBOX)
    checks = judged(facts, transaction_age_s, registered, time.time())
    return Diagnosis(all(one.level == "ok" for one in checks), checks)


def judged(facts: Facts, transaction_age_s: float, registered: Collection[str], now: float) -> tuple[Check, ...]:
    """Return every check that this kind of store has, in the order in which people read them."""
    workers = Fleet(()) if isinstance(facts.workers, NotGathered) else Fleet(facts.workers, ended_here(facts.workers))
    due = () if isinstance(facts.due, NotGathered) else facts.due
    # Without the list of workers, leases, queues and names cannot be judged.
    of_workers = facts.workers if isinstance(facts.workers, NotGathered) else None
    verdicts: dict[str, Verdict | None] = {
        "database": _reached(facts),
        "schema": _judged(facts.schema, database.schema),
        "indexes": _judged(facts.indexes, database.indexes),
        "clock": _judged(facts.clock, database.clock),
        "transactions": _judged(facts.transactions, lambda one: database.transactions(one, transaction_age_s)),
        "connections": _judged(facts.connections, database.connections),
        "notifications": _judged(facts.push, database.notifications),
        "dead rows": _judged(facts.rows, storage.dead_rows),
        "log": _judged(facts.log, storage.log),
        "integrity": _judged(facts.integrity, storage.integrity),
        "files": _judged(facts.files, storage.files),
        "workers": _judged(facts.workers, lambda _: fleet.workers(workers, due)),
        "leases": _judged(of_workers or facts.leases, lambda one: fleet.leases(one, workers)),
        "queues": _judged(of_workers or facts.queues, lambda one: fleet.queues(due, one, workers)),
        "paused": _judged(facts.queues, fleet.paused),
        "names": _judged(of_workers or facts.due, lambda one: fleet.names(one, workers, registered)),
        "services": _judged(facts.due, services.stale),
        "outbox": _judged(facts.listed, lambda one: services.outbox(one, now)),
    }
    return tuple(
        Check(name=name, level=one.level, says=one.says, remedy=one.remedy)
        for name, one in verdicts.items()
        if one is not None
    )


def _reached(facts: Facts) -> Verdict:
    if isinstance(facts.reached, NotGathered):
        why = facts.reached
        return problem(why.why, why.remedy or f"check that {facts.place} runs and can be reached from here")
    return fine(f"{facts.reached}, {facts.place}")


def _judged(fact: T | NotGathered | None, judge: Callable[[T], Verdict]) -> Verdict | None:
    """Judge a fact; return None if this kind of store does not have it."""
    if fact is None:
        return None
    if isinstance(fact, NotGathered):
        return warning(f"not looked at: {fact.why}", fact.remedy or "see the check `database`")
    return judge(fact)
