"""A server with few connections to give: every worker does with what it gets, and all work gets done."""

from pathlib import Path

import pytest

from faults.fleet import Fleet
from faults.ledger import PostgresLedger
from faults.proof import prove

WORKERS = 3
JOBS = 300
LEASE = "8s"
ROLE = "crew"


def limit_role(ledger: PostgresLedger, connections: int) -> str:
    """Let a role of its own have so many connections; the address of the database for that role."""
    if not ledger.ask(f"select true from pg_roles where rolname = '{ROLE}'"):  # noqa: S608 - a constant
        ledger.ask(f"create role {ROLE} login")
    ledger.ask(f"alter role {ROLE} connection limit {connections}")
    ledger.ask(f"grant create on database {ledger.url.rsplit('/', 1)[1]} to {ROLE}")
    return ledger.url.replace("postgres@", f"{ROLE}@")


def connections_of(ledger: PostgresLedger) -> int:
    return int(ledger.ask(f"select count(*) from pg_stat_activity where usename = '{ROLE}'")[0][0])  # noqa: S608


def started(fleet: Fleet, url: str) -> None:
    """Three at once, whether or not each of them finds a connection."""
    fleet._env["EVERPOLL_URL"] = url
    for _ in range(WORKERS):
        fleet.start_one_soon()
    fleet.until(lambda: any(one.said("signed on as") for one in fleet.workers.values()), "one has signed on")


@pytest.mark.parametrize("limit", [14, 9, 6])
def test_three_workers_end_their_jobs_whatever_the_role_may_have(
    postgres: PostgresLedger, tmp_path: Path, limit: int
) -> None:
    """None of them waits for ever with connections in hand that the others need; none loses its heartbeat."""
    with Fleet(postgres, tmp_path, lease=LEASE, slots=20) as fleet:
        started(fleet, limit_role(postgres, limit))
        fleet.enqueue("step", [(0.1,)] * JOBS)
        most = 0

        def is_over() -> bool:
            nonlocal most
            most = max(most, connections_of(postgres))
            return {run.task for run in fleet.effects() if run.has_ended} >= set(fleet.ids) and not postgres.live()

        fleet.until(is_over, f"all {JOBS} jobs have ended")
        assert most <= min(limit, 3 * WORKERS)
        prove(fleet)


def test_a_worker_that_is_refused_says_so_once(postgres: PostgresLedger, tmp_path: Path) -> None:
    """And works with the two that it has."""
    with Fleet(postgres, tmp_path, lease=LEASE, slots=20) as fleet:
        fleet._env["EVERPOLL_URL"] = limit_role(postgres, 2)
        [worker] = fleet.start()
        while not worker.said("this is logged once"):
            fleet.enqueue("step", [(0.01,)] * JOBS)
            fleet.until_all_have_ended()
        for _ in range(2):
            fleet.enqueue("step", [(0.01,)] * JOBS)
            fleet.until_all_have_ended()
        assert worker.said("this is logged once") == 1
        prove(fleet)
