"""Each example, started as a person starts it: one command, then its table holds what it promised and it says so."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from example_runs import needs_chromium, run_example

CLAIM_COLUMNS = ("processing_started_at", "processing_worker_id", "last_heartbeat")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    kept: str = (
        f"sqlite:///{tmp_path}/example.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    )
    return kept


async def stored(url: str, table: str) -> list[dict[str, Any]]:
    """Every row, with JSON decoded."""
    statement = f"select * from {table} order by id"  # noqa: S608 - our own names
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.row_factory = sqlite3.Row
            rows = [dict(row) for row in connection.execute(statement)]
    else:
        server = await asyncpg.connect(url)
        rows = [dict(row) for row in await server.fetch(statement)]
        await server.close()
    for row in rows:
        row |= {name: json.loads(row[name]) for name in ("results", "report", "recording") if row.get(name)}
    return rows


# What a row goes through is the same on both, and is tested on both in tests/tables; a browser takes long.
@pytest.mark.parametrize("url", ["sqlite", pytest.param("postgres", marks=pytest.mark.prove)], indirect=True)
@needs_chromium
async def test_the_test_runner_replays_every_row_and_stores_how_it_went(url: str, tmp_path: Path) -> None:
    ended = run_example("test_runner", "--url", url, SCREENSHOTS=str(tmp_path / "pictures"))
    assert ended.returncode == 0, ended.stderr + ended.stdout
    sign_up, validation, prices, broken = await stored(url, "execution_jobs")

    for job in (sign_up, validation):
        assert job["status"] == "completed"
        assert (job["results"]["passed"], job["results"]["failed"]) == (3, 0)
        assert [row["row"] for row in job["results"]["rows"]] == [1, 2, 3]
        assert (job["error"], job["retry_count"]) == (None, 0)
        assert job["worker_id"]
        assert job["started_at"] <= job["finished_at"]

    # An expectation that is not met is a result: the job has done its work.
    assert prices["status"] == "completed"
    assert [row["passed"] for row in prices["results"]["rows"]] == [True, False, True]
    failed = prices["results"]["rows"][1]
    assert failed["message"] == "step 5, expect #price: says '96 € a month', not '108 € a month'"
    assert failed["duration_ms"] > 0
    picture = tmp_path / "pictures" / f"job-{prices['id']}-row-2.png"
    assert failed["screenshot"] == str(picture)
    assert picture.read_bytes().startswith(b"\x89PNG")

    # A recording that cannot be replayed is an error: three attempts, then failed.
    assert (broken["status"], broken["retry_count"], broken["results"]) == ("failed", 3, None)
    assert "step 5: Invalid value 'hover'" in broken["error"]

    assert ended.stdout.count("passed") == 8
    assert "completed  Prices" in ended.stdout
    assert "Invalid value 'hover'" in ended.stdout
    assert ended.stderr == ""


async def test_the_website_audit_scores_every_site_and_gives_up_on_the_one_that_is_down(url: str) -> None:
    ended = run_example("website_audit", "--url", url)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    rows = await stored(url, "audits")
    by_site = {row["url"].rpartition("/")[2] or "ftp": row for row in rows}
    assert list(by_site) == ["exemplary", "heavy", "decent", "careless", "gone", "down", "ftp"]

    for site in ("exemplary", "heavy", "decent", "careless", "gone"):
        row = by_site[site]
        assert (row["status"], row["error"], row["retry_count"]) == ("completed", None, 0)
        assert row["score"] == row["report"]["score"] == sum(check["points"] for check in row["report"]["checks"])
        assert all(row[column] for column in CLAIM_COLUMNS)
        assert row["finished_at"]
    findings = {
        site: [check["finding"] for check in row["report"]["checks"]] for site, row in by_site.items() if row["report"]
    }
    # How fast this machine answers is not the subject: everything but the timing is exact.
    points = {
        site: {check["name"]: check["points"] for check in row["report"]["checks"]}
        for site, row in by_site.items()
        if row["report"]
    }
    assert sum(points["exemplary"].values()) - points["exemplary"]["timing"] == 85
    assert points["heavy"]["size"] == 0
    assert points["heavy"]["timing"] < 15
    assert "no meta description" in findings["decent"]
    assert {"no title", "no h1", "no lang", "3 of 3 images without alt"} <= set(findings["careless"])
    assert by_site["gone"]["score"] == 0

    down = by_site["down"]
    assert (down["status"], down["retry_count"], down["score"]) == ("failed", 3, None)
    assert down["error"].startswith("SiteDown: ")
    assert "refused" in down["error"]
    assert down["next_attempt_at"], "there was a backoff between the attempts"
    # What can never be fetched is not tried again.
    assert (by_site["ftp"]["status"], by_site["ftp"]["retry_count"]) == ("failed", 0)
    assert "not a web address" in by_site["ftp"]["error"]

    assert "pending" in ended.stdout
    assert "tried 3x" in ended.stdout
    assert "answers 404" in ended.stdout
    assert ended.stderr == ""


@pytest.mark.parametrize("columns", [80, 120])
def test_an_example_needs_no_argument_leaves_no_file_and_fits_the_screen(columns: int, tmp_path: Path) -> None:
    ended = run_example("website_audit", folder=tmp_path, columns=columns, TMPDIR=str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert max(map(len, ended.stdout.splitlines())) <= columns
    assert list(tmp_path.iterdir()) == []


def test_without_a_browser_the_test_runner_says_what_to_install(tmp_path: Path) -> None:
    ended = run_example("test_runner", CHROMIUM="/nowhere/chromium", TMPDIR=str(tmp_path))
    assert ended.returncode == 1
    assert ended.stderr.startswith("no Chromium: $CHROMIUM is '/nowhere/chromium'")
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("example", ["test_runner", "website_audit"])
@pytest.mark.parametrize(
    "address", ["mysql://localhost/jobs", "sqlite:////nowhere/jobs.db", "postgresql://127.0.0.1:1/x"]
)
def test_an_address_that_cannot_be_used_is_one_line(example: str, address: str) -> None:
    ended = run_example(example, "--url", address, CHROMIUM="sh")
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "Traceback" not in ended.stderr
