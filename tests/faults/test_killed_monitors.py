"""kill -9 to processes that share services: others look on, and an outage is one incident with one alert."""

import random
import time
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from everpoll import Everpoll
from everpoll.monitors.alerts.incidents import IncidentInfo
from faults.endpoint import Endpoint
from faults.ledger import Ledger
from faults.monitors import MonitorFleet

LEASE_S = 2.0
RESCUE_S = 1.0
"""How long after the end of a lease its tasks may wait for their rescue, on a machine that has other work, too."""


LONGEST_GAPS = 3


def share_and_lose_one(ledger: Ledger, folder: Path, services: int, every_s: float, *, rounds: int) -> None:
    with (
        Endpoint() as endpoint,
        MonitorFleet(
            ledger.url, folder, endpoint, lease=f"{LEASE_S}s", services=services, every=f"{every_s}s"
        ) as fleet,
    ):
        fleet.start(2)
        fleet.until_all_are_asked(0, rounds)
        assert all(worker.said("signed on as") == 1 for worker in fleet.workers)
        killed_at = time.time()
        fleet.workers[0].kill()
        fleet.until_all_are_asked(killed_at + LEASE_S + RESCUE_S, rounds)
        assert len(endpoint.asked) == services
        missed = {name: rounds_missed(endpoint.asked, name) for name in fleet.names}
        most = (LEASE_S + RESCUE_S) / every_s + 2
        late = {name: missing for name, missing in missed.items() if missing > most}
        assert late == {}, "one interval beyond the lease is the most that any service misses"
        fleet.end()


def rounds_missed(asked: Mapping[str, Sequence[float]], name: str) -> int:
    """How often another service was asked, at most, between two looks at this one.

    Looks of the others are the clock: where the machine stands still, nothing is asked, and nothing is missed.
    """
    gaps = sorted(pairwise(asked[name]), key=lambda gap: gap[0] - gap[1])
    return max(
        bisect_left(times, later) - bisect_right(times, earlier)
        for earlier, later in gaps[:LONGEST_GAPS]
        for times in asked.values()
    )


def test_no_service_misses_more_than_one_interval_beyond_the_lease(ledger: Ledger, tmp_path: Path) -> None:
    share_and_lose_one(ledger, tmp_path, 200, 1.0, rounds=2)


@pytest.mark.prove
def test_no_service_of_a_thousand_misses_more_than_one_interval_beyond_the_lease(
    ledger: Ledger, tmp_path: Path
) -> None:
    share_and_lose_one(ledger, tmp_path, 1_000, 5.0, rounds=3)


def flap_under_kills(ledger: Ledger, folder: Path, kills: int, seed: int) -> None:
    """Each outage loses one process at a random moment, and has one incident, one alert and one recovery."""
    chance = random.Random(seed)
    with (
        Endpoint() as endpoint,
        MonitorFleet(ledger.url, folder, endpoint, lease=f"{LEASE_S}s", services=1, every="200ms") as fleet,
    ):
        fleet.start(3)
        fleet.until_all_are_asked(0)
        for outage in range(1, kills + 1):
            endpoint.down = {"s0"}
            is_late = chance.random() < 0.5
            if is_late:
                fleet.until(lambda count=outage: endpoint.notice_count("alert") >= count, "an alert")  # type: ignore[misc]
                endpoint.down = set()
            time.sleep(chance.random() * 0.6)
            chance.choice(fleet.running()).kill()
            fleet.start_one_soon()
            fleet.until(lambda count=outage: endpoint.notice_count("alert") >= count, "an alert")  # type: ignore[misc]
            endpoint.down = set()
            fleet.until(lambda count=outage: endpoint.notice_count("recovered") >= count, "its recovery")  # type: ignore[misc]
            fleet.until_all_have_signed_on()
        fleet.end()

        async def incidents(app: Everpoll) -> list[IncidentInfo]:
            return list(await app.services.incidents.list(open=None))

        found = fleet.read(incidents)
        assert len(found) == kills, f"one incident for each outage: {found}"
        assert not any(one.is_open for one in found)
        assert endpoint.notice_count("alert") == endpoint.notice_count("recovered") == kills
        assert endpoint.notices("alert") == endpoint.notices("recovered") == {one.id for one in found}


def test_an_outage_is_one_incident_and_one_alert_over_random_kills(ledger: Ledger, tmp_path: Path) -> None:
    flap_under_kills(ledger, tmp_path, 5, seed=1)


@pytest.mark.prove
def test_an_outage_is_one_incident_and_one_alert_over_fifty_random_kills(ledger: Ledger, tmp_path: Path) -> None:
    flap_under_kills(ledger, tmp_path, 50, seed=2)
