"""Workers publish their figures with the heartbeat; charts read them merged, and a repeat changes nothing."""

from typing import Any

import pytest

from everpoll.errors import BadInput
from everpoll.policy import Histogram
from everpoll.policy.histogram import ERROR
from everpoll.stores.figures import DAY_S, FIVE_MINUTES_S, HOUR_S, MINUTE_S, Figure, LoopCard, SeriesPoint
from stores.stage import Stage, json

# Whole hours, so that every step of a test lies in one of them.
NOW = 1_900_800_000
NOTHING = Histogram().encoded()


def figure(began: int = NOW, **fields: Any) -> Figure:
    usual: dict[str, Any] = {"span_s": MINUTE_S, "kind": "job", "name": "", "queue": "", "counts": {"done": 1}}
    usual |= {"waited": NOTHING, "ran": NOTHING}
    return Figure(**{**usual, "began": began, **fields})


def times(*seconds: float) -> bytes:
    return Histogram.of([round(one * 1e6) for one in seconds]).encoded()


async def publish(stage: Stage, worker: int, *figures: Figure, loops: str | None = None) -> None:
    await stage.in_heart(lambda heartbeat: heartbeat.publish(worker, figures, loops))


async def throughput(stage: Stage, **wanted: Any) -> dict[float, dict[str, int]]:
    asked = {"from_at": NOW, "to_at": NOW + HOUR_S, "step_s": MINUTE_S, **wanted}
    return {one.at: one.counts for one in await stage.store.series("throughput", **asked)}


async def test_figures_of_all_workers_are_merged_and_a_repeat_changes_nothing(stage: Stage) -> None:
    first, second = await stage.worker(), await stage.worker()
    for _ in range(3):
        await publish(stage, first, figure(counts={"done": 3, "failed": 1}), figure(NOW + 60, counts={"done": 5}))
        await publish(stage, second, figure(counts={"done": 4, "retried": 2}))
    assert await throughput(stage) == {NOW: {"done": 7, "failed": 1, "retried": 2}, NOW + 60: {"done": 5}}
    await publish(stage, first, figure(counts={"done": 9}))
    assert (await throughput(stage))[NOW] == {"done": 13, "retried": 2}, "absolute figures take the place"


async def test_steps_are_longer_than_minutes_and_aligned_to_the_epoch(stage: Stage) -> None:
    worker = await stage.worker()
    await publish(stage, worker, *(figure(NOW + minute * 60) for minute in range(60)))
    assert await throughput(stage, step_s=720) == {NOW + start: {"done": 12} for start in range(0, 3600, 720)}
    assert await throughput(stage, from_at=NOW + 719, to_at=NOW + 721, step_s=720) == {
        NOW: {"done": 12},
        NOW + 720: {"done": 12},
    }
    assert await throughput(stage, from_at=NOW + 120, to_at=NOW + 180) == {NOW + 120: {"done": 1}}


async def test_a_series_reads_the_longest_figures_that_fit_into_its_steps(stage: Stage) -> None:
    """A month by minutes would be too many rows for a chart."""
    worker = await stage.worker()
    spans = (MINUTE_S, FIVE_MINUTES_S, HOUR_S, DAY_S)
    await publish(stage, worker, *(figure(span_s=span_s, counts={"done": span_s}) for span_s in spans))
    steps = {MINUTE_S: MINUTE_S, 4 * MINUTE_S: MINUTE_S, 600: FIVE_MINUTES_S, HOUR_S: HOUR_S, 36 * HOUR_S: HOUR_S}
    for step_s, span_s in {**steps, DAY_S: DAY_S, 2 * DAY_S: DAY_S}.items():
        [found] = (await throughput(stage, step_s=step_s)).values()
        assert found == {"done": span_s}, step_s


async def test_filters_by_queue_and_by_name(stage: Stage) -> None:
    worker = await stage.worker()
    await publish(
        stage,
        worker,
        figure(counts={"done": 7}),
        figure(queue="mail", counts={"done": 4}),
        figure(queue="other", counts={"done": 3}),
        figure(queue="mail", name="send", counts={"done": 2}),
        figure(queue="other", name="send", counts={"done": 1}),
        figure(queue="mail", name="read", counts={"done": 2}),
    )
    assert await throughput(stage) == {NOW: {"done": 7}}
    assert await throughput(stage, queue="mail") == {NOW: {"done": 4}}
    assert await throughput(stage, name="send") == {NOW: {"done": 3}}
    assert await throughput(stage, name="send", queue="mail") == {NOW: {"done": 2}}
    assert await throughput(stage, name="nothing") == await throughput(stage, queue="nothing") == {}


async def test_percentiles_of_waiting_running_and_lateness(stage: Stage) -> None:
    worker, other = await stage.worker(), await stage.worker()
    await publish(stage, worker, figure(waited=times(*[0.1] * 50), ran=times(7.0)))
    await publish(stage, other, figure(waited=times(*[0.1] * 44, *[2.0] * 4, 30.0, 30.0)))
    await publish(stage, worker, figure(kind="watch", waited=times(1.0)), figure(kind="check", waited=times(1.0)))

    async def point(of: Any) -> SeriesPoint:
        [one] = await stage.store.series(of, NOW, NOW + 60, MINUTE_S)
        return one

    waiting = await point("waiting")
    assert (waiting.at, waiting.count, waiting.counts) == (NOW, 100, {})
    for found, expected in ((waiting.p50_s, 0.1), (waiting.p95_s, 2.0), (waiting.p99_s, 30.0)):
        assert found == pytest.approx(expected, rel=ERROR * 1.01)
    assert (await point("running")).p95_s == pytest.approx(7.0, rel=ERROR * 1.01)
    assert (await point("lateness")).count == 2


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"of": "nothing"}, "there are throughput, waiting"),
        ({"step_s": 0}, "multiple of 60"),
        ({"step_s": 90}, "multiple of 60"),
        ({"to_at": NOW - 1}, "in this order"),
        ({"from_at": float("nan")}, "in this order"),
        ({"to_at": NOW + 501 * 60}, "501 steps of 60 s are more than 500"),
    ],
)
async def test_what_cannot_be_shown_is_refused(stage: Stage, wanted: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        await stage.store.series(
            **{"of": "throughput", "from_at": NOW, "to_at": NOW + 60, "step_s": MINUTE_S, **wanted}
        )


async def test_minutes_are_kept_for_two_days_and_hours_and_days_for_ninety(stage: Stage) -> None:
    worker = await stage.worker()
    now = int((await stage.show(await stage.put_one())).created_at.timestamp())
    old, young = (now - 2 * DAY_S) // 60 * 60 - 60, (now - DAY_S) // 60 * 60
    ancient, last_month = (now - 91 * DAY_S) // HOUR_S * HOUR_S, (now - 30 * DAY_S) // HOUR_S * HOUR_S
    await publish(stage, worker, figure(old), figure(young))
    await publish(stage, worker, figure(ancient, span_s=HOUR_S), figure(last_month, span_s=HOUR_S))
    await stage.store.prune(30 * DAY_S)
    minutes = [at for day in (old, young) for at in await throughput(stage, from_at=day, to_at=day + 60)]
    assert minutes == [young]
    hours = await throughput(stage, from_at=ancient, to_at=now, step_s=6 * HOUR_S)
    assert sum(counts["done"] for counts in hours.values()) == 1
    long_ago, in_time = now // DAY_S * DAY_S - 91 * DAY_S, now // DAY_S * DAY_S - 30 * DAY_S
    await publish(stage, worker, figure(long_ago, span_s=DAY_S), figure(in_time, span_s=DAY_S))
    await stage.store.prune(30 * DAY_S)
    assert list(await throughput(stage, from_at=long_ago, to_at=now, step_s=DAY_S)) == [in_time]


async def test_loops_are_shown_while_their_process_lives_and_an_hour_longer(stage: Stage) -> None:
    worker, other = await stage.worker("here"), await stage.worker("elsewhere")
    cards = [LoopCard(name="prices", phase="waiting", every_s=30.0, failures=2, last_error="no answer")]
    await publish(stage, worker, loops=json(cards))
    await publish(stage, worker, figure())
    [shown] = await stage.store.published_loops()
    assert (shown.worker, shown.incarnation, shown.is_alive, shown.loops) == ("here", worker, True, tuple(cards))
    await publish(stage, other, loops="[]")
    assert [one.worker for one in await stage.store.published_loops()] == ["here", "elsewhere"]
    await stage.store.sign_off(worker)
    [gone, _] = await stage.store.published_loops()
    assert not gone.is_alive
    await stage.pass_time(HOUR_S + 1)
    assert [one.worker for one in await stage.store.published_loops()] == ["elsewhere"]


async def test_a_lease_tells_how_long_its_tasks_were_due(stage: Stage) -> None:
    """In the order of the leases, whatever order they were enqueued in."""
    worker = await stage.worker()
    await stage.put_one(delay_s=50)
    await stage.put_one(queue="other")
    await stage.pass_time(100)
    await stage.put_one(priority=5)
    leased = await stage.store.lease(worker, {"default": 10, "other": 10}, 10)
    assert len(leased.leases) == len(leased.waited_us) == 3
    waited_s = [round(one / 1e6) for one in leased.waited_us]
    assert waited_s[0] <= 10
    assert [50 <= one <= 60 or 100 <= one <= 110 for one in waited_s[1:]] == [True, True]
    assert (await stage.store.lease(worker, {"default": 10}, 10)).waited_us in ([], ())
