"""The quickstart works as typed: a job, a watch, a service, and the dashboard that shows them."""

import json
import os
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doc_pages import ROOT, blocks, name_of

import warm_processes
from servers.ports import reserved_port
from warm_processes import PIPE, WarmProcess

PAGE = ROOT / "docs/quickstart.md"
EVERPOLL = ("-m", "everpoll")
INSTALL = """\
## 1. Install

Work in a new, empty folder. everpoll is not on a package index yet: `path/to/the/clone` is your clone of it.

```sh
python3 -m venv venv
. venv/bin/activate
pip install 'path/to/the/clone[server]' pytest
```
"""


class Reader:
    """Saves the files and types the commands, with a port of its own and a shipment that arrives at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = reserved_port()
        for block in blocks(PAGE):
            assert block.file is not None
            code = block.code.replace("8787", str(self.port)).replace("time.time() + 5", "time.time() - 1")
            (folder / block.file).write_text(code, encoding="utf-8")
        kept = {name: value for name, value in os.environ.items() if name not in {"EVERPOLL_URL", "WORKER_ID"}}
        self._environment = {**kept, "COLUMNS": "120", "PYTHONUNBUFFERED": "1"}
        self._running: list[WarmProcess] = []

    def types(self, *command: str) -> str:
        done = warm_processes.run(command, cwd=self._folder, env=self._environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def runs(self, *command: str) -> None:
        self._running.append(WarmProcess(command, cwd=self._folder, env=self._environment, stdout=PIPE))

    def waits_until_the_shipment_is_there(self) -> None:
        while json.loads(self.types(*EVERPOLL, "runs", "show", "shipment:7", "--json"))["outcome"] is None:
            pass

    def waits_until_the_service_is_up(self) -> None:
        services: list[dict[str, Any]] = []
        while [one["status"] for one in services] != ["up"]:
            services = json.loads(self.types(*EVERPOLL, "services", "list", "--json"))

    def opens(self, path: str) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            return int(answer.status)

    def leaves(self) -> None:
        for process in self._running:
            process.kill()
            process.communicate()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.leaves()


def test_a_reader_gets_what_the_quickstart_shows(reader: Reader) -> None:
    assert reader.types("order.py") == "task 1, run shipment:7\n"
    assert reader.types(*EVERPOLL, "why", "1").startswith("No worker is alive.\n  it has been due for ")
    reader.runs(*EVERPOLL, "run", "shop:app", "--serve", "--port", str(reader.port))
    reader.waits_until_the_shipment_is_there()
    reader.waits_until_the_service_is_up()
    assert re.search(r"1 +send_invoice +done +1", reader.types(*EVERPOLL, "jobs", "list"))
    assert re.search(r"value +delivered", reader.types(*EVERPOLL, "runs", "show", "shipment:7"))
    assert re.search(r"dashboard +up", reader.types(*EVERPOLL, "services", "list"))
    assert reader.opens("/") == 200


TUTORIALS = sorted((ROOT / "docs/tutorial").glob("*.md"))


def test_the_quickstart_says_how_to_install() -> None:
    assert INSTALL in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", TUTORIALS, ids=name_of)
def test_every_tutorial_installs_as_the_quickstart_does(page: Path) -> None:
    assert len(TUTORIALS) == 4
    assert "](../quickstart.md#1-install)" in page.read_text(encoding="utf-8")
