"""Judgements about the database: schema, indexes, clock, transactions, connections, notifications. Pure."""

from everpoll.doctor.diagnosis import Verdict, counted, fine, listed, problem, warning, worst_of
from everpoll.policy import human
from everpoll.stores.examination import (
    ClockFacts,
    ConnectionFacts,
    HeldTransaction,
    IndexFacts,
    PushFacts,
    SchemaFacts,
    TransactionFacts,
)

CLOCK_WARNING_S, CLOCK_PROBLEM_S = 2.0, 60.0
"""The store's clock decides when tasks are due, so a difference delays none. It shifts what people are shown."""
OLD_AGES = 12
"""A transaction that is this many times as old as `--transaction-age` is a problem: an hour, by default."""
USED_WARNING, USED_PROBLEM = 0.8, 0.95


def schema(facts: SchemaFacts) -> Verdict:
    """Judge whether the tables are those of this release."""
    if not facts.is_there:
        return problem(
            "there are no everpoll tables in it",
            "check that --url or EVERPOLL_URL is the address that the app uses; if it is, run `everpoll migrate`",
        )
    if facts.newer:
        return problem(
            f"another release of everpoll has migrated it: this one does not know {listed(facts.newer)}",
            "if that release is newer, upgrade everpoll here; if it is older, begin with a new database",
        )
    if facts.missing:
        return problem(f"{listed(facts.missing)} is not applied", "run `everpoll migrate`")
    return fine("the tables are those of this release")


def indexes(facts: IndexFacts) -> Verdict:
    """Judge whether every index exists, is valid and is used."""
    found = []
    remedy = "; ".join(facts.remedies)
    if facts.missing:
        found.append(problem(f"missing: {listed(facts.missing)}", f"run: {remedy}"))
    if facts.invalid:
        found.append(problem(f"invalid: {listed(facts.invalid)}", f"run: {remedy}"))
    broken = {*facts.missing, *facts.invalid}
    found += [
        warning(
            f"the planner does not use {plan.index} for {plan.question}: {plan.plan}",
            "run `analyze` on the tables of everpoll; report it if that changes nothing",
        )
        for plan in facts.plans
        if not plan.is_used and plan.index not in broken
    ]
    return worst_of(found, fine(f"all {facts.there} are there, and used" if facts.there else "this store needs none"))


def clock(facts: ClockFacts) -> Verdict:
    """Judge whether the clocks of store and machine agree, as far as the round trip shows it."""
    off_s = max(0.0, abs(facts.ahead_s) - facts.uncertain_s / 2)
    direction = "ahead of" if facts.ahead_s > 0 else "behind"
    what = "the database's clock" if facts.of == "database" else "the newest heartbeat or task in the file"
    says = f"{what} is {human(round(abs(facts.ahead_s), 3))} {direction} this machine's clock"
    remedy = "have both machines set their clocks by NTP (`timedatectl set-ntp true`)"
    if off_s >= CLOCK_PROBLEM_S:
        return problem(says, remedy)
    if off_s >= CLOCK_WARNING_S:
        return warning(says, remedy)
    if facts.of == "file":
        return fine("no time in the file lies in the future")
    return fine(f"the database's clock and this machine's agree within {human(max(0.001, round(off_s, 3)))}")


def transactions(facts: TransactionFacts, age_s: float) -> Verdict:
    """Judge whether a transaction is open for so long that dead rows stay, or writers wait."""
    found = [_held(one, age_s) for one in facts.held]
    if facts.hidden:
        found.append(
            warning(
                f"{counted(facts.hidden, 'session')} of other roles cannot be seen by this role",
                f"run as a superuser: {facts.grant}",
            )
        )
    return worst_of(found, fine(f"none is open for longer than {human(age_s)}"))


def _held(one: HeldTransaction, age_s: float) -> Verdict:
    if one.blocks_writers:
        return problem(f"{one.holder} {one.state} for longer than {human(one.age_s)}", one.remedy)
    says = f"open for {human(round(one.age_s))} ({one.state}): {one.holder}; dead rows stay until it ends"
    return problem(says, one.remedy) if one.age_s >= OLD_AGES * age_s else warning(says, one.remedy)


def connections(facts: ConnectionFacts) -> Verdict:
    """Judge whether the server has connections left."""
    says = f"{facts.used:,} of {facts.limit:,} connections of {facts.of} are in use"
    remedy = f"raise the limit of {facts.of}, end idle sessions, or give workers fewer: ?connections=2 in the address"
    share = facts.used / max(1, facts.limit)
    if share >= USED_PROBLEM:
        return problem(says, remedy)
    return warning(says, remedy) if share >= USED_WARNING else fine(says)


def notifications(facts: PushFacts) -> Verdict:
    """Judge whether workers learn of new tasks at once."""
    if facts.arrives:
        return fine(f"a notification arrived, after {human(round(facts.took_s, 3))}")
    return warning(
        "notifications do not arrive, as behind a transaction pooler: workers poll instead, and find new tasks later",
        "give workers a direct address of Postgres, or a pool in session mode",
    )
