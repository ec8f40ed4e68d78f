"""A server that forgets what it had committed: a failover to a replica that lagged, a crash with asynchronous commits.

The worker was told that its task is settled, and has let go of it; the database has it leased to that worker, which
lives and beats. No rescue would ever come.
"""

from pathlib import Path

from faults.fleet import Fleet
from faults.ledger import PostgresLedger
from faults.proof import prove

FORGET = """with gone as (delete from everpoll.history returning *)
    insert into everpoll.tasks (id, due_at, created_at, owner, started_at, sequence, attempt, is_leased, kind, queue,
           name, args)
    select id, due_at, created_at, owner, started_at, sequence, attempt, true, kind, queue, name, args from gone"""


def test_a_settlement_that_the_server_forgot_is_made_up_for(postgres: PostgresLedger, tmp_path: Path) -> None:
    """Handed back as soon as its worker is connected again, and run once more: at least once is the promise."""
    with Fleet(postgres, tmp_path, lease="60s") as fleet:
        fleet.start()
        fleet.enqueue("step", [(0.0,)] * 20)
        fleet.until_all_have_ended()
        postgres.ask(FORGET)
        postgres.cut_connections()
        fleet.until_all_have_ended()
        assert {row.trail for row in postgres.history()} == {("hand-back",)}
        prove(fleet)
