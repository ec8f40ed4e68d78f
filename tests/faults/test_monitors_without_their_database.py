"""The database is away: no service turns down because of it, none ends, and what was seen is in the history."""

import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from everpoll import Everpoll
from everpoll.stores.health import Look
from faults.endpoint import Endpoint
from faults.ledger import Ledger, PostgresLedger, SqliteLedger
from faults.monitors import MonitorFleet
from faults.shared_outages import Outage, locked, stopped
from servers.databases import Databases

EVERY_S = 0.5


@pytest.fixture
def outage(ledger: Ledger, request: pytest.FixtureRequest) -> Outage:
    """Postgres is stopped and started again; SQLite is locked by another process."""
    if isinstance(ledger, PostgresLedger):
        databases: Databases = request.getfixturevalue("fault_server")
        return stopped(databases.server)
    assert isinstance(ledger, SqliteLedger)
    return locked(ledger)


def be_away(ledger: Ledger, folder: Path, away: AbstractContextManager[None], away_s: float, lease: str) -> None:
    with (
        Endpoint() as endpoint,
        MonitorFleet(ledger.url, folder, endpoint, lease=lease, services=50, every=f"{EVERY_S}s") as fleet,
    ):
        fleet.start(2)
        fleet.until_all_are_asked(0, 3)
        with away:
            time.sleep(away_s)  # the length of the outage
            back_at = time.time()
        fleet.until_all_are_asked(back_at + 1, 3)
        fleet.end()

        async def reading(app: Everpoll) -> dict[str, tuple[list[Look], list[str]]]:
            rows = await app.services.rows()
            assert [row.key for row in rows] == sorted(fleet.names), "no row of a service ends"
            store = await app.store()
            found = {}
            for row in rows:
                kinds = [event.body["kind"] for event in await store.task_events(row.id)]
                looks = await (await app.services.find(row.key or "")).history()
                found[row.key or ""] = (looks, kinds)
            return found

        for name, (looks, kinds) in fleet.read(reading).items():
            assert kinds == ["service:started", "status:change"], f"{name}: it came up once, and that is all"
            assert {look.status for look in looks} == {"up"}, name
            asked = endpoint.asked[name]
            assert len(looks) == len(asked), f"{name}: every look that was made is in the history, once"
            # A look covers the time until the next one is due: on a busy machine that is more than an interval away.
            assert max(look.span_s for look in looks) < away_s, f"{name}: the outage is not covered"
        assert endpoint.letters == []


def test_no_service_is_down_because_the_database_is_away(ledger: Ledger, outage: Outage, tmp_path: Path) -> None:
    """For longer than the lease: workers give up what they hold, and go on when it is back."""
    be_away(ledger, tmp_path, outage(), 5.0, "3s")


@pytest.mark.prove
def test_no_service_is_down_because_the_database_is_away_for_a_minute(
    ledger: Ledger, outage: Outage, tmp_path: Path
) -> None:
    be_away(ledger, tmp_path, outage(), 60.0, "30s")
