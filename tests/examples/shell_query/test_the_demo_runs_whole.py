"""One command: twenty queries of different fates go through, each as it must, with its timeline."""

import json

from example_runs import run_example

from examples.shell_query.stories import STORIES


def test_everything_ends_as_it_must_and_is_told_as_json() -> None:
    done = run_example("shell_query", "--speed", "150", "--json")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-2000:]
    outcome = json.loads(done.stdout)
    assert outcome["wrong"] == []
    assert {one["name"]: one["outcome"] for one in outcome["queries"]} == {story.name: story.ends for story in STORIES}
    assert len(STORIES) == 20
    for one in outcome["queries"]:
        assert (one["starts"], one["deletes"]) == (1, 1)
        assert one["timeline"][-1]["decision"] == "cleanup"


def test_people_see_what_happens_and_then_the_timeline_of_each() -> None:
    done = run_example("shell_query", "--speed", "150")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-2000:]
    for story in STORIES:
        assert f"\n{story.name}  {story.ends}" in done.stdout
    assert "time budget of 29m is spent" in done.stdout
    # Which rule decided a look is up to the machine's pace here: 15 s of the cloud are 0.1 s. tests/cli asks for that.
    assert "the probe saw rows" in done.stdout
    assert done.stdout.rstrip().endswith("Each ended as it must, was started once and cleaned up once.")


def test_a_speed_that_makes_no_sense_is_refused() -> None:
    assert run_example("shell_query", "--speed", "0").returncode == 2
