"""The tutorial of jobs works as typed: its files, its commands, and their output."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import ROOT, blocks

EVERPOLL = (sys.executable, "-m", "everpoll")


class Reader:
    """Saves the files and types the commands, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for block in blocks(ROOT / "docs/tutorial/first-job.md"):
            if block.file is not None:
                (folder / block.file).write_text(block.code, encoding="utf-8")
        unset = {"EVERPOLL_URL", "WORKER_ID"}
        self._environment = {name: value for name, value in os.environ.items() if name not in unset}
        self._environment |= {"COLUMNS": "140", "WORKER_ID": "till-1"}

    def types(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=self._folder, env=self._environment, capture_output=True, text=True, check=False, timeout=6000
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def runs(self, *command: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            command, cwd=self._folder, env=self._environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def waits_for(self, task_id: int) -> None:
        script = (
            "import asyncio, shop\n"
            "async def main():\n"
            f"    try: await shop.app.task({task_id}).result(timeout='30s')\n"
            "    except Exception as error: print(error)\n"
            "    await shop.app.close()\n"
            "asyncio.run(main())"
        )
        assert "has not ended" not in self.types(sys.executable, "-c", script)


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


def test_a_reader_gets_what_the_tutorial_shows(reader: Reader) -> None:
    assert reader.types(sys.executable, "both.py") == "1 invoice-7.pdf\n"
    assert reader.types(sys.executable, "order.py", "9") == "order 9 is task 2\n"
    assert reader.types(*EVERPOLL, "why", "2").startswith("No worker is alive.\n  it has been due for ")
    worker = reader.runs(*EVERPOLL, "run", "shop:app")
    try:
        reader.waits_for(2)
        reader.types(sys.executable, "order.py", "13")
        reader.waits_for(3)
        listed = reader.types(*EVERPOLL, "jobs", "list")
        assert "ConnectionError: the mail server does not answer" in listed
        assert [line.split()[:4] for line in listed.splitlines() if "send_invoice" in line] == [
            ["3", "send_invoice", "failed", "3"],
            ["2", "send_invoice", "done", "1"],
            ["1", "send_invoice", "done", "1"],
        ]
        answer = reader.types(*EVERPOLL, "why", "3")
        assert answer.startswith("It failed after 3 attempts: ConnectionError: the mail server does not answer.")
        assert "failed by till-1: attempt 3 of 3 failed (ConnectionError: the mail server does not answer)" in answer
        assert "mend the cause, then run `everpoll jobs retry 3`: it gets fresh attempts" in answer
        assert "Traceback" in reader.types(*EVERPOLL, "jobs", "show", "3")
        worker.terminate()
        assert worker.wait(timeout=600) == 0
    finally:
        worker.kill()
        worker.communicate()


def test_the_tutorials_own_test_passes(reader: Reader) -> None:
    done = reader.types(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py")
    assert "1 passed" in done
