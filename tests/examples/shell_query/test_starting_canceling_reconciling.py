"""Starting, canceling and repairing on the document's own system: effects happen once, whatever got lost on the way."""

import asyncio

import pytest

from examples.shell_query.fates import ANSWER_LOST, LOST, SILENT, Fate, Trouble, late, status
from examples.shell_query.runs import ShellQuery
from shell_query.stage import STATUS, Stage, key_of

START_STEPS = ["Create DataExtension", "Create QueryDefinition", "Perform Start"]


@pytest.mark.parametrize("trouble", [LOST, ANSWER_LOST, SILENT, late(20), status(500), status(429, 40)], ids=repr)
@pytest.mark.parametrize("step", START_STEPS)
def test_whatever_happens_to_a_step_of_the_start_it_is_started_once(stage: Stage, step: str, trouble: Trouble) -> None:
    stage.cloud.faults.script(step, trouble, key=key_of("r"))

    async def scene() -> None:
        assert (await stage.life_of(Fate(runs_s=30))).outcome == "ready"

    stage.play(scene)
    stage.assert_once("r")


def test_beginning_twice_is_one_run(stage: Stage) -> None:
    async def scene() -> None:
        run = await stage.begin()
        again = await stage.begin()
        assert not again.is_new
        await stage.ended(run)
        assert not (await stage.begin()).is_new

    stage.play(scene)
    stage.assert_once("r")


def test_a_query_that_cannot_run_fails_before_anything_is_made(stage: Stage) -> None:
    async def scene() -> None:
        info = await stage.ended(await stage.begin(sql="DROP TABLE _Subscribers"))
        assert info.outcome == "failed"
        assert info.reason is not None
        assert "must begin with SELECT or WITH" in info.reason
        assert (await stage.runs.all())["r"]["status"] == "failed"

    stage.play(scene)
    assert not stage.records.creates
    assert not stage.records.starts


def test_cancel_stops_the_query_in_the_cloud_waits_for_it_and_cleans_up(stage: Stage) -> None:
    async def scene() -> None:
        run = await stage.begin(fate=Fate(runs_s=600))
        await asyncio.sleep(100)
        assert await run.cancel()
        info = await stage.ended(run, within_s=10)
        assert info.outcome == "canceled"
        assert (await stage.runs.all())["r"]["status"] == "canceled"

    stage.play(scene)
    assert stage.records.stops[key_of("r")] == 1
    stage.assert_once("r")


def test_cancel_before_the_start_touches_no_cloud(stage: Stage) -> None:
    async def scene() -> None:
        op = ShellQuery(run_id="r", sql_text="SELECT 1")
        await stage.runs.add(op)
        run = await stage.queries.watch.begin(op, id="r", delay="1h")
        await run.cancel()
        assert (await stage.ended(run)).outcome == "canceled"
        # No clean-up ran, because there was nothing to clean up: the reconciler tells the row.
        await asyncio.sleep(180)
        assert (await stage.runs.all())["r"]["status"] == "canceled"

    stage.play(scene)
    assert stage.records.requests == []


@pytest.mark.parametrize("trouble", [LOST, ANSWER_LOST, SILENT, late(20), status(500), status(429, 40)], ids=repr)
def test_a_status_call_that_fails_is_a_delay_and_counts_as_a_look(stage: Stage, trouble: Trouble) -> None:
    stage.cloud.faults.script(STATUS, trouble, trouble)

    async def scene() -> None:
        info = await stage.life_of(Fate(runs_s=50))
        assert info.outcome == "ready"
        assert info.errors == info.counters["look failed"] == 2
        assert info.counters["looks"] == len(stage.asked(STATUS))

    stage.play(scene)
    stage.assert_once("r")


@pytest.mark.parametrize("trouble", [LOST, SILENT, status(500), status(429, 40)], ids=repr)
def test_a_secondary_call_that_fails_is_gone_without(stage: Stage, trouble: Trouble) -> None:
    stage.cloud.faults.script("isrunning", trouble)
    stage.cloud.faults.script("rowset", trouble)

    async def scene() -> None:
        info = await stage.life_of(Fate(runs_s=50, completed_date_after_s=0))
        assert (info.outcome, info.errors) == ("ready", 0)
        assert info.counters["attempt failed:is_running"] == info.counters["attempt failed:probe"] == 1

    stage.play(scene)
    stage.assert_once("r")


def test_a_task_that_the_cloud_forgets_for_a_while_is_waited_for(stage: Stage) -> None:
    async def scene() -> None:
        info = await stage.life_of(Fate(runs_s=80, forgotten=(0, 95)))
        assert info.outcome == "ready"

    stage.play(scene)
    stage.assert_once("r")


def test_a_restart_of_the_cloud_costs_nothing_but_time(stage: Stage) -> None:
    stage.cloud.faults.script(STATUS, None, SILENT, key=key_of("a"))

    async def scene() -> None:
        runs = [await stage.begin(name, Fate(runs_s=60)) for name in ("a", "b", "c")]
        await asyncio.sleep(6.5)  # a waits for an answer that will not come
        stage.cloud.restart(down_s=20)
        assert [(await stage.ended(run)).outcome for run in runs] == ["ready"] * 3

    stage.play(scene)
    stage.assert_once("a", "b", "c")


def test_a_row_without_a_run_gets_one(stage: Stage) -> None:
    async def scene() -> None:
        await stage.runs.add(ShellQuery(run_id="r", sql_text="SELECT 1"))
        await asyncio.sleep(300)
        assert (await stage.runs.all())["r"]["status"] == "ready"
        assert stage.queries.watch.counters["repairs"] == 1

    stage.play(scene)
    stage.assert_once("r")


def test_a_row_that_was_started_already_is_only_looked_at(stage: Stage) -> None:
    """The document's orphan: its ids are stored, and the process died before it could schedule a look."""

    async def scene() -> None:
        op = ShellQuery(run_id="r", sql_text="SELECT 1")
        await stage.runs.add(op)
        assert await stage.queries.start(op, f"shell_query:{op.run_id}") is not None
        await asyncio.sleep(300)
        assert (await stage.runs.all())["r"]["status"] == "ready"

    stage.play(scene)
    stage.assert_once("r")


def test_an_object_id_that_an_older_release_did_not_store_is_found_by_its_key(stage: Stage) -> None:
    stage.cloud.fates[key_of("r")] = Fate(runs_s=50, completed_date_after_s=0)

    async def scene() -> None:
        op = ShellQuery(run_id="r", sql_text="SELECT 1")
        await stage.runs.add(op)
        handle = await stage.queries.start(op, "shell_query:r")
        assert handle is not None
        run = await stage.queries.watch.begin(op, id="r", handle={"task_id": handle["task_id"]})
        info = await stage.ended(run)
        assert info.outcome == "ready"
        assert info.memory == {"query_definition_id": handle["query_definition_id"]}
        assert len(stage.asked("Retrieve QueryDefinition")) == 1

    stage.play(scene)
    stage.assert_once("r")


def test_new_id_0_is_no_id_and_a_missing_object_id_is_found_by_its_key(stage: Stage) -> None:
    async def scene() -> None:
        run = await stage.begin(fate=Fate(runs_s=30, object_id_missing=True))
        info = await stage.ended(run)
        assert len(info.handle["query_definition_id"]) == 36
        assert stage.asked("Retrieve QueryDefinition") == [0.0]

    stage.play(scene)
    stage.assert_once("r")


def test_what_leaked_is_swept_and_what_runs_is_left_alone(stage: Stage) -> None:
    async def scene() -> None:
        await stage.life_of(Fate(runs_s=30))
        await stage.client.create_data_extension(key_of("r"))
        await stage.client.create_query(key_of("r"), "SELECT 1")
        await stage.client.create_data_extension("sq-of-another-owner")
        run = await stage.begin("running", Fate(runs_s=1700))
        await asyncio.sleep(5)
        assert await stage.queries.sweep() == 1
        assert stage.cloud.leaked == [
            ("DataExtension", key_of("running")),
            ("DataExtension", "sq-of-another-owner"),
            ("QueryDefinition", key_of("running")),
        ]
        assert (await stage.ended(run)).outcome == "ready"

    stage.play(scene)


@pytest.mark.parametrize("trouble", [LOST, ANSWER_LOST, SILENT, status(500), status(429, 40)], ids=repr)
def test_a_clean_up_that_fails_is_tried_again_and_changes_no_outcome(stage: Stage, trouble: Trouble) -> None:
    stage.cloud.faults.script("Delete QueryDefinition", trouble, trouble)
    stage.cloud.faults.script("Delete DataExtension", trouble)

    async def scene() -> None:
        info = await stage.life_of(Fate(runs_s=30))
        assert (info.outcome, info.cleaned) == ("ready", True)

    stage.play(scene)
    stage.assert_once("r")
