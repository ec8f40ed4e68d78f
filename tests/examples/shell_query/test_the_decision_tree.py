"""The decision tree of the document's own system: every branch, with its figures, in virtual time."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from everpoll import Budget
from examples.shell_query.fates import NEVER, Fate
from examples.shell_query.figures import Figures
from shell_query.stage import EXACT, STATUS, Stage, key_of

DOCUMENT = [2.0, 6.0, 14.0, 30.0, 60.0, 90.0]


def test_start_is_short_persists_the_ids_and_the_first_look_comes_2_s_later(stage: Stage) -> None:
    async def scene() -> None:
        await stage.begin()
        await stage.clock.advance(1)
        row = (await stage.runs.all())["r"]
        activity = stage.cloud.activity(key_of("r"))
        assert activity is not None
        assert (row["status"], row["task_id"]) == ("running", activity.task_id)
        assert len(row["query_definition_id"]) == 36
        assert [one.action for one in stage.records.requests] == [
            "Create DataExtension",
            "Create QueryDefinition",
            "Perform Start",
        ]
        await stage.clock.advance(1.1)
        assert stage.asked(STATUS) == [2.0]

    stage.play(scene)


def test_looks_come_after_2_4_8_16_30_30(stage: Stage) -> None:
    async def scene() -> None:
        info = await stage.life_of(Fate(runs_s=85))
        assert stage.asked(STATUS) == DOCUMENT
        assert info.looks == 6
        assert info.reason == "rowset is verified, at try 1"

    stage.play(scene)


def test_with_20_percent_of_jitter(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Figures())

    async def scene() -> None:
        await stage.life_of(Fate(runs_s=1000))
        waits = stage.timeline.waits("r")
        meant = [2.0, 4.0, 8.0, 16.0] + [30.0] * 50
        assert all(0.8 * m <= wait <= 1.2 * m for wait, m in zip(waits, meant, strict=False))
        assert len(set(waits)) > 10

    stage.play(scene)


def test_after_29_minutes_it_has_timed_out_with_a_last_look_at_the_very_end(stage: Stage) -> None:
    async def scene() -> None:
        info = await stage.life_of(Fate(runs_s=NEVER))
        assert info.outcome == "timed_out"
        assert info.reason is not None
        assert "29m" in info.reason
        assert stage.asked(STATUS)[-1] == pytest.approx(1740, abs=0.2)
        assert info.looks == 61  # 2, 6, 14, and 58 times 30 s, which are 1740
        row = (await stage.runs.all())["r"]
        assert (row["status"], row["error_message"]) == ("failed", info.reason)

    stage.play(scene)
    assert stage.records.stops[key_of("r")] == 1
    stage.assert_once("r")


def test_a_budget_of_looks_says_its_figure(tmp_path: Path) -> None:
    assert Figures().budget == Budget("29m", looks=120)
    stage = Stage(tmp_path, replace(EXACT, budget=Budget("29m", looks=5)))

    async def scene() -> None:
        info = await stage.life_of(Fate(runs_s=NEVER))
        assert (info.outcome, info.looks) == ("timed_out", 5)
        assert info.reason is not None
        assert "5 looks" in info.reason

    stage.play(scene)
    stage.assert_once("r")


@pytest.mark.parametrize("word", ["Complete", "  COMPLETE ", "complete\n"])
def test_complete_however_it_is_written_leads_to_the_rowset(stage: Stage, word: str) -> None:
    async def scene() -> None:
        info = await stage.life_of(Fate(runs_s=1, complete=word))
        assert (info.outcome, info.looks) == ("ready", 1)
        assert info.value == {"count": 3, "rows": [{"row": 1}, {"row": 2}, {"row": 3}]}
        assert (await stage.runs.all())["r"]["status"] == "ready"

    stage.play(scene)
    stage.assert_once("r")


@pytest.mark.parametrize(
    ("fate", "reason"),
    [
        (Fate(runs_s=1, error="Invalid column"), "Invalid column"),
        (Fate(runs_s=1, error="", failed=" error "), "the cloud says Error, and gives no reason"),
        (Fate(runs_s=1, error="Deadlock victim", failed="Complete"), "Deadlock victim"),
        (Fate(runs_s=1, error="Deadlock victim", failed="Queued"), "Deadlock victim"),
    ],
    ids=["both", "the word alone", "a message with Complete", "a message with Queued"],
)
def test_an_error_or_any_message_fails_at_once_whatever_else_was_seen(stage: Stage, fate: Fate, reason: str) -> None:
    async def scene() -> None:
        info = await stage.life_of(fate)
        assert (info.outcome, info.reason, info.looks) == ("failed", reason, 1)
        assert stage.asked("rowset") == []
        row = (await stage.runs.all())["r"]
        assert (row["status"], row["error_message"]) == ("failed", reason)

    stage.play(scene)
    stage.assert_once("r")


def test_a_completion_date_is_no_proof_and_starts_the_checks_after_5_s(stage: Stage) -> None:
    async def scene() -> None:
        info = await stage.life_of(Fate(runs_s=100, completed_date_after_s=0))
        assert stage.asked(STATUS)[:5] == DOCUMENT[:5]
        assert stage.asked("isrunning")[:4] == [6.0, 14.0, 30.0, 60.0]
        assert info.outcome == "ready"
        activity = stage.cloud.activity(key_of("r"))
        assert activity is not None
        assert min(stage.asked("Delete QueryDefinition")) >= 100

    stage.play(scene)
    stage.assert_once("r")


def test_without_any_sign_the_checks_start_after_3_minutes(stage: Stage) -> None:
    async def scene() -> None:
        info = await stage.life_of(Fate(runs_s=20, reported_after_s=NEVER, rows=0))
        assert stage.asked("isrunning") == [180.0, 195.0]
        assert info.outcome == "ready"
        assert info.value == {"count": 0, "rows": []}

    stage.play(scene)
    stage.assert_once("r")


def test_not_running_counts_when_seen_twice_15_s_apart(stage: Stage) -> None:
    async def scene() -> None:
        info = await stage.life_of(Fate(runs_s=50, completed_date_after_s=0, reported_after_s=NEVER, rows=0))
        assert stage.asked("isrunning") == [6.0, 14.0, 30.0, 60.0, 75.0]
        assert info.reason == "rowset is verified, at try 1"
        assert stage.timeline.rules("r")[-3:] == ["hint", "ready", "cleanup"]

    stage.play(scene)
    stage.assert_once("r")


def test_a_running_in_between_starts_over(stage: Stage) -> None:
    async def scene() -> None:
        fate = Fate(runs_s=85, completed_date_after_s=0, reported_after_s=NEVER, rows=0, not_running=((25, 40),))
        await stage.life_of(fate)
        # 30: the first sighting; 45: it runs; 75: runs, by the cadence; 105 and 120: two that count.
        assert stage.asked("isrunning") == [6.0, 14.0, 30.0, 45.0, 75.0, 105.0, 120.0]

    stage.play(scene)
    stage.assert_once("r")


def test_readiness_is_tried_after_1500_ms_growing_to_8_s(stage: Stage) -> None:
    async def scene() -> None:
        info = await stage.life_of(Fate(runs_s=1, rows_after_s=19))
        assert [round(b - a, 1) for a, b in pairwise(stage.asked("rowset"))] == [1.5, 3.0, 6.0, 8.0]
        assert (info.outcome, info.reason) == ("ready", "rowset is verified, at try 5")

    stage.play(scene)
    stage.assert_once("r")


def test_after_6_tries_it_has_failed_and_says_so(stage: Stage) -> None:
    async def scene() -> None:
        info = await stage.life_of(Fate(runs_s=1, rows_after_s=NEVER))
        assert [round(b - a, 1) for a, b in pairwise(stage.asked("rowset"))] == [1.5, 3.0, 6.0, 8.0, 8.0]
        assert (info.outcome, info.reason) == ("failed", "rowset could not be verified in 6 tries")

    stage.play(scene)
    stage.assert_once("r")


def test_the_probe_waits_5_s_comes_every_15_s_and_a_row_is_enough(stage: Stage) -> None:
    async def scene() -> None:
        info = await stage.life_of(Fate(runs_s=80, reported_after_s=NEVER))
        # Of the looks at 2, 6, 14, 30, 60, 90 the one at 2 is too early and the one at 14 too soon after 6.
        # At 90 the page of one row is followed by the page of the result.
        assert stage.asked("rowset") == [6.0, 30.0, 60.0, 90.0, 90.0]
        assert (info.outcome, info.reason) == ("ready", "the probe saw rows")
        assert info.value["count"] == 3

    stage.play(scene)
    stage.assert_once("r")


def test_everything_is_counted(stage: Stage) -> None:
    async def scene() -> None:
        fate = Fate(runs_s=50, completed_date_after_s=0, reported_after_s=NEVER, rows=0, rows_after_s=30)
        counters = (await stage.life_of(fate)).counters
        assert counters["looks"] == 9
        assert counters["due:probe"] == counters["attempt:probe"] == 4
        assert counters["attempt:is_running"] == 8
        assert counters["confirm:not running"] == 2
        assert counters["verify:rowset"] == 4
        assert counters["outcome:ready"] == counters["cleanups"] == 1

    stage.play(scene)
