"""The primary dies in the middle of the work and its standby is promoted: the fleet follows by itself."""

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from everpoll.errors import StoreUnavailable
from faults.crew import crew
from faults.fleet import Fleet
from faults.ledger import PostgresLedger
from faults.proof import prove
from servers.postgres import FAST, Cluster, Standby, cluster, standby_of

WORKERS = 3
LEASE_S = 4.0
EACH_S = 0.02
GOES_ON_S = 30.0
"""After the promotion; about two seconds on an idle machine."""
IS_SYNCHRONOUS = "select exists (select from pg_stat_replication where sync_state in ('sync', 'quorum'))"


@pytest.fixture
def primary() -> Iterator[Cluster]:
    """Of its own: it is killed."""
    with cluster(settings={**FAST, "synchronous_commit": "on"}) as server:
        yield server


@pytest.fixture
def standby(primary: Cluster) -> Iterator[Standby]:
    """A commit is acknowledged when it is there as well."""
    with standby_of(primary) as server:
        ledger = PostgresLedger(primary.url())
        ledger.ask("alter system set synchronous_standby_names = '*'")
        ledger.ask("select pg_reload_conf()")
        give_up_at = time.monotonic() + 20
        while not ledger.ask(IS_SYNCHRONOUS)[0][0]:
            assert time.monotonic() < give_up_at, "the standby does not follow"
            time.sleep(0.02)
        yield server


class Caller(threading.Thread):
    """Enqueues without a pause, whatever happens to the database, and keeps what was acknowledged."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.acknowledged: list[int] = []
        self.failures = 0
        self.over = threading.Event()
        self._url = url

    def run(self) -> None:
        asyncio.run(self._enqueue())

    async def _enqueue(self) -> None:
        app = crew(self._url)
        while not self.over.is_set():
            try:
                self.acknowledged.append((await app.jobs["step"].enqueue(EACH_S)).id)
            except StoreUnavailable:
                self.failures += 1
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.005)
        await app.close()


def test_a_fleet_survives_the_failover_of_its_database(primary: Cluster, standby: Standby, tmp_path: Path) -> None:
    """Nothing acknowledged is lost, nothing is settled twice, workers and listeners go on; the old primary is left."""
    url = f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres"
    gate = tmp_path / "gate"
    ledger = PostgresLedger(f"{url}?target_session_attrs=read-write")
    caller = Caller(url)
    with Fleet(ledger, tmp_path, lease=f"{LEASE_S}s") as fleet:
        workers = fleet.start(WORKERS)
        holds = fleet.enqueue_holds_for_all(gate, WORKERS)
        caller.start()
        try:
            fleet.until_begun(len(holds) + 30)

            primary.signal(signal.SIGKILL)
            fleet.until(lambda: caller.failures > 0, "the caller notices")
            PostgresLedger(standby.url()).ask("select pg_promote()")
            promoted_at = time.monotonic()

            acknowledged, begun = len(caller.acknowledged), len(fleet.effects())
            fleet.until(lambda: len(caller.acknowledged) > acknowledged + 20, "the caller goes on")
            fleet.until(lambda: len(fleet.effects()) > begun + 20, "the workers go on")
            assert time.monotonic() - promoted_at < GOES_ON_S

            primary.stop()
            primary.set(default_transaction_read_only="on")
            primary.start()
            PostgresLedger(standby.url()).cut_connections()
            acknowledged = len(caller.acknowledged)
            fleet.until(lambda: len(caller.acknowledged) > acknowledged + 20, "the caller stays with the new primary")
        finally:
            caller.over.set()
            caller.join()
        gate.touch()
        fleet.until(lambda: not ledger.live(), "all tasks have ended")
        assert all(one.said("connected to Postgres at") for one in workers)
        # A call that failed may have been committed: such a task is there as well, and ends once like the others.
        known = [row.id for row in ledger.history()]
        assert set(caller.acknowledged) | set(holds) <= set(known), "nothing acknowledged is lost"
        fleet.ids = known
        prove(fleet)
