"""The page of each example: what it quotes is what stands in the code, and what it tells to do works."""

import json
import os
import re
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from example_runs import ROOT, needs_chromium

from examples.test_runner.recording import Open, read_config, read_csv, read_recording, steps_for
from examples.test_runner.site import shop
from examples.website_audit.site import sites
from warm_processes import PIPE, WarmProcess

EXAMPLES = [ROOT / "examples" / name for name in ("test_runner", "website_audit")]
PAGE_LINES = 95
PATIENCE_S = 60.0


def blocks(folder: Path, language: str) -> list[str]:
    text = (folder / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def created(folder: Path, file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript((folder / "table.sqlite.sql").read_text(encoding="utf-8"))


@contextmanager
def everpoll_run(example: str, file: Path, *options: str) -> Iterator[WarmProcess]:
    """A worker as the page says to start one, once it is at work; it is gone after the block."""
    command = ["-m", "everpoll", "run", *options]
    environment = {key: value for key, value in os.environ.items() if key != "WORKER_ID"}
    environment |= {"EVERPOLL_URL": f"sqlite:///{file}", "AUDIT_PRIVATE_HOSTS": "1", "EVERPOLL_LOG": "json"}
    with WarmProcess([*command, f"examples.{example}.app:app"], cwd=ROOT, env=environment, stderr=PIPE) as worker:
        try:
            assert worker.stderr is not None
            assert any("signed on" in line for line in worker.stderr), "it ended before it began"
            yield worker
        finally:
            worker.kill()


def wait_until(connection: sqlite3.Connection, question: str, *workers: WarmProcess) -> None:
    """Until the answer is yes."""
    until = time.monotonic() + PATIENCE_S
    while connection.execute(question).fetchone() != (1,):
        assert time.monotonic() < until, f"never true: {question}"
        assert all(worker.poll() is None for worker in workers), "a worker has ended"
        time.sleep(0.05)


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_code_in_the_readme_is_the_code_of_the_app(folder: Path) -> None:
    app = (folder / "app.py").read_text(encoding="utf-8")
    quoted = blocks(folder, "python")
    assert quoted
    assert [block for block in quoted if block not in app] == []


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_the_readme_is_one_page_whose_links_lead_somewhere(folder: Path) -> None:
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= PAGE_LINES
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert [link for link in links if not (folder / link).exists()] == []


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_the_commands_in_the_readme_are_those_of_the_makefile(folder: Path) -> None:
    commands = "".join(blocks(folder, "sh"))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (target,) = re.findall(r"make ([\w-]+)", commands)
    assert re.search(rf"^{target}: .*\n\t@\$\(BIN\)/python -m examples\.{folder.name} ", makefile, re.MULTILINE)


def test_the_job_in_the_readme_of_the_test_runner_can_be_replayed(tmp_path: Path) -> None:
    folder, file = EXAMPLES[0], tmp_path / "jobs.db"
    created(folder, file)
    with closing(sqlite3.connect(file)) as connection:
        (insert,) = blocks(folder, "sql")
        connection.execute(insert.replace("chr(", "char("))
        ((status, *row),) = connection.execute("select status, recording, csv_data, config from execution_jobs")
    recording, values, config = read_recording(row[0]), read_csv(row[1]), read_config(row[2])
    assert status == "queued"
    assert [steps_for(recording, one, config)[0] for one in values] == [Open("https://example.com/about")]


@needs_chromium
def test_sigterm_puts_a_job_that_runs_back_without_an_attempt_used(tmp_path: Path) -> None:
    folder, file = EXAMPLES[0], tmp_path / "jobs.db"
    created(folder, file)
    endless = {"name": "Endless", "steps": [{"do": "open", "url": "/"}, {"do": "expect", "selector": "#never"}]}
    with shop() as url, closing(sqlite3.connect(file, timeout=10)) as connection:
        insert = "insert into execution_jobs (recording, config) values (?, ?)"
        connection.execute(insert, (json.dumps(endless), json.dumps({"base_url": url, "timeout_s": 300})))
        connection.commit()
        with everpoll_run("test_runner", file, "--grace", "0s") as worker:
            wait_until(connection, "select status = 'running' from execution_jobs", worker)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(timeout=PATIENCE_S) == 0
        left = connection.execute("select status, retry_count, worker_id, error from execution_jobs").fetchall()
    assert left == [("queued", 0, None, None)]


def test_two_processes_of_everpoll_run_share_the_audits_that_any_program_inserts(tmp_path: Path) -> None:
    folder, file = EXAMPLES[1], tmp_path / "audits.db"
    created(folder, file)
    with (
        sites() as (exemplary, *_),
        closing(sqlite3.connect(file, timeout=10)) as connection,
        everpoll_run("website_audit", file) as one,
        everpoll_run("website_audit", file) as two,
    ):
        (insert,) = blocks(folder, "sql")
        for _ in range(20):
            connection.execute(insert.replace("https://example.com", exemplary))
        connection.commit()
        wait_until(connection, "select count(*) = 20 from audits where status = 'completed'", one, two)
        rows = connection.execute("select score >= 85, retry_count, error from audits").fetchall()
        assert rows == [(1, 0, None)] * 20
        for worker in (one, two):
            worker.send_signal(signal.SIGTERM)
        assert [worker.wait(timeout=PATIENCE_S) for worker in (one, two)] == [0, 0]
