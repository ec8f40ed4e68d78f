"""Polls per minute, rows per poll, lease success rate, lease latency, over a window and not the last value."""

import pytest

from engine.engine_stage import EngineStage
from everpoll.engine.meter import SAMPLES, WINDOW_S, Meter


def test_averages_are_over_the_window() -> None:
    meter = Meter()
    meter.polled(0.0, 10, 0.100)
    meter.polled(100.0, 0, 5.000)
    meter.polled(200.0, 20, 0.300)
    assert meter.rows_per_poll(200) == 10
    # Looks that found nothing leased nothing: they say nothing about how long a lease takes.
    assert meter.lease_latency_s(200) == pytest.approx(0.2)
    assert meter.polls_per_minute(200, since=0) == pytest.approx(0.9)
    after = WINDOW_S + 150
    assert meter.rows_per_poll(after) == 20
    assert meter.lease_latency_s(after) == pytest.approx(0.3)
    assert meter.polls_per_minute(after, since=0) == pytest.approx(60 / WINDOW_S)
    assert meter.rows_per_poll(10_000) == 0
    assert meter.lease_latency_s(10_000) is None


def test_lease_success_is_the_share_that_was_still_ours() -> None:
    meter = Meter()
    assert meter.lease_success_rate(0) is None
    meter.settlement(0.0, 8, 0)
    meter.settlement(10.0, 2, 1)
    assert meter.lease_success_rate(10) == pytest.approx(0.9)
    assert meter.lease_success_rate(WINDOW_S + 5) == pytest.approx(0.5)
    assert (meter.settled, meter.lost) == (9, 1)


def test_leases_that_others_won_count_against_it() -> None:
    meter = Meter()
    meter.polled(0.0, 0, 0.1, missed=2)
    assert meter.lease_success_rate(0) == 0.0
    meter.polled(10.0, 6, 0.1)
    assert meter.lease_success_rate(10) == pytest.approx(0.75)
    meter.settlement(20.0, 6, 3)
    assert meter.lease_success_rate(20) == pytest.approx(0.375)
    assert meter.lease_success_rate(WINDOW_S + 5) == pytest.approx(0.5)
    assert meter.missed == 2


def test_polls_per_minute_is_right_when_more_looks_happen_than_samples_are_kept() -> None:
    meter = Meter()
    for look in range(10 * SAMPLES):
        meter.polled(look * 0.01, 1, 0.001)
    assert meter.polls_per_minute(10 * SAMPLES * 0.01, since=0) == pytest.approx(6_000, rel=0.01)


def test_errors_in_a_row_end_with_a_look_that_succeeds() -> None:
    meter = Meter()
    for _ in range(3):
        meter.failed("refused")
    assert (meter.consecutive_errors, meter.last_error) == (3, "refused")
    meter.polled(0, 0, 0)
    assert (meter.consecutive_errors, meter.errors) == (0, 3)


def test_a_worker_reports_what_happened(stage: EngineStage) -> None:
    stage.handler()
    stage.store.takes_s["lease"] = 0.25

    async def scene() -> None:
        await stage.put(6)
        async with stage.working() as worker:
            await stage.clock.advance(60)
            health = worker.health()
            looks = len(stage.store.looks)
            assert looks == 2
            assert health.polls_per_minute == pytest.approx(looks)
            assert health.rows_per_poll == pytest.approx(6 / looks)
            assert health.lease_latency_s == pytest.approx(0.25)
            assert health.lease_success_rate == 1.0

    stage.play(scene)
