"""Judgements about what the database keeps on disk: dead rows, the write-ahead log, the file itself. Pure."""

from collections.abc import Sequence

from everpoll.doctor.diagnosis import Verdict, counted, fine, listed, problem, sized, warning, worst_of
from everpoll.policy import human
from everpoll.stores.examination import FileFacts, IntegrityFacts, LogFacts, TableRows

DEAD_WARNING, DEAD_PROBLEM = 10_000, 1_000_000
"""How many dead rows, if there are fewer live ones; each poll reads past those at the head of the queue."""
LOG_WARNING, LOG_PROBLEM = 16, 256
"""How many times its limit a log may have: 64 MB and 1 GB."""
OTHERS_READ, OTHERS_WRITE = 0o004, 0o002


def dead_rows(tables: Sequence[TableRows]) -> Verdict:
    """Judge whether vacuum keeps up."""
    found = [_dead(one) for one in tables if one.dead >= DEAD_WARNING and one.dead > one.live]
    total = sum(one.size_bytes for one in tables)
    return worst_of(found, fine(f"vacuum keeps up; the tables with the most dead rows have {sized(total)}"))


def _dead(one: TableRows) -> Verdict:
    vacuum = (
        "no vacuum has run yet" if one.vacuumed_s is None else f"the last vacuum was {human(round(one.vacuumed_s))} ago"
    )
    says = (
        f"everpoll.{one.table} has {counted(one.dead, 'dead row')} beside {one.live:,} live ones in "
        f"{sized(one.size_bytes)}; {vacuum}"
    )
    remedy = (
        f"end old transactions (see `transactions`), then run: vacuum (analyze) everpoll.{one.table}; "
        "and see whether autovacuum is on"
    )
    return problem(says, remedy) if one.dead >= DEAD_PROBLEM else warning(says, remedy)


def log(facts: LogFacts) -> Verdict:
    """Judge whether the write-ahead log is copied into the file."""
    says = f"the write-ahead log {facts.path} has {sized(facts.log_bytes)}"
    if facts.log_bytes < LOG_WARNING * facts.limit_bytes:
        return fine(says)
    says += f"; a writer keeps it within {sized(facts.limit_bytes)} unless a program reads an old snapshot"
    remedy = f"end the program that keeps a read transaction open (`fuser {facts.path}` lists those that use it)"
    return problem(says, remedy) if facts.log_bytes >= LOG_PROBLEM * facts.limit_bytes else warning(says, remedy)


def integrity(facts: IntegrityFacts) -> Verdict:
    """Judge whether the file is sound."""
    by_hand = f"sqlite3 {facts.path} 'pragma quick_check'"
    if facts.findings:
        return problem(
            f"SQLite's quick check found: {listed(facts.findings)}",
            f"stop every program that uses it, then restore a backup, or save what can be read: sqlite3 {facts.path} "
            "'.recover' | sqlite3 recovered.db",
        )
    if not facts.is_complete:
        return fine(f"no fault so far; {sized(facts.size_bytes)} are too much for this check: run `{by_hand}` by hand")
    return fine(f"SQLite's quick check found no fault in {sized(facts.size_bytes)}")


def files(facts: FileFacts) -> Verdict:
    """Judge whether this user may write the file, and other users may not read it."""
    found = []
    if not facts.is_writable:
        found.append(problem(f"{facts.path} is not writable for this user", f"run `chmod u+w {facts.path}`"))
    if not facts.is_folder_writable:
        found.append(
            problem(
                f"the folder of {facts.path} is not writable for this user, and SQLite puts its log there",
                "make the folder writable for the user that runs everpoll",
            )
        )
    if facts.mode is not None and facts.mode & (OTHERS_READ | OTHERS_WRITE):
        may = "change" if facts.mode & OTHERS_WRITE else "read"
        found.append(
            warning(
                f"every user of this machine may {may} {facts.path} (mode {facts.mode:04o}), and with it all arguments",
                f"run `chmod o-rwx {facts.path}`",
            )
        )
    mode = "" if facts.mode is None else f" (mode {facts.mode:04o})"
    return worst_of(found, fine(f"{facts.path} is writable{mode}, and not open to all users"))
