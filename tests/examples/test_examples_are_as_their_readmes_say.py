"""The page of each example: what it quotes is what stands in the code, and what it tells to do works."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from example_runs import ROOT

from examples.test_runner.recording import Open, read_config, read_csv, read_recording, steps_for
from examples.website_audit.site import sites

EXAMPLES = [ROOT / "examples" / name for name in ("test_runner", "website_audit")]
PAGE_LINES = 95
PATIENCE_S = 60.0


def blocks(folder: Path, language: str) -> list[str]:
    text = (folder / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def created(folder: Path, file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript((folder / "table.sqlite.sql").read_text(encoding="utf-8"))


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


def test_two_processes_of_everpoll_run_share_the_audits_that_any_program_inserts(tmp_path: Path) -> None:
    folder, file = EXAMPLES[1], tmp_path / "audits.db"
    created(folder, file)
    environment = {
        **os.environ,
        "EVERPOLL_URL": f"sqlite:///{file}",
        "AUDIT_PRIVATE_HOSTS": "1",
        "EVERPOLL_LOG": "json",
    }
    command = [sys.executable, "-c", "from everpoll.cli import main; main()", "run", "examples.website_audit.app:app"]
    workers = [
        subprocess.Popen(command, cwd=ROOT, env=environment | {"WORKER_ID": name}, stderr=subprocess.DEVNULL)
        for name in ("one", "two")
    ]
    try:
        with sites() as (exemplary, *_), closing(sqlite3.connect(file, timeout=10)) as connection:
            (insert,) = blocks(folder, "sql")
            for _ in range(20):
                connection.execute(insert.replace("https://example.com", exemplary))
            connection.commit()
            until = time.monotonic() + PATIENCE_S
            left = "select count(*) from audits where status <> 'completed'"
            while connection.execute(left).fetchone() != (0,):
                assert time.monotonic() < until, "not every audit has ended"
                assert all(worker.poll() is None for worker in workers), "a worker has ended"
                time.sleep(0.05)
            rows = connection.execute("select score >= 85, retry_count, error from audits").fetchall()
            assert rows == [(1, 0, None)] * 20
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        assert [worker.wait(timeout=30) for worker in workers] == [0, 0]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
