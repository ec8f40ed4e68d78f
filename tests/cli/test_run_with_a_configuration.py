"""`everpoll run --config` runs what a file says, alone or beside an app."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import warm_processes
from cli.health_answers import paths
from warm_processes import PIPE, WarmProcess
from watches.adapters.fake_server import FakeServer, serving

EVERPOLL = ("-m", "everpoll")
APP = """
from everpoll import Everpoll

app = Everpoll("sqlite:///own.db")
app.service("from-code", "{url}/up", every="1h")
"""
CONFIG = """
[[services]]
name = "from-file"
target = "{url}/degraded"
every = "1h"

[aliases]
redis = "Redis"
"""


@pytest.fixture
def remote() -> Iterator[FakeServer]:
    with serving(paths) as fake:
        yield fake


@pytest.fixture
def folder(tmp_path: Path, remote: FakeServer) -> Path:
    (tmp_path / "everpoll.toml").write_text(CONFIG.replace("{url}", remote.url))
    (tmp_path / "shop.py").write_text(APP.replace("{url}", remote.url))
    return tmp_path


@contextlib.contextmanager
def running(folder: Path, *arguments: str, until: str = "signed on") -> Iterator[list[str]]:
    """A worker that has logged these words; yields what it has logged until then."""
    logged: list[str] = []
    env = {**os.environ, "EVERPOLL_LOG": "json"}
    command = [*EVERPOLL, "run", *arguments, "--grace", "0s"]
    with WarmProcess(command, cwd=folder, env=env, stderr=PIPE) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                logged.append(json.loads(line)["message"])
                if until in logged[-1]:
                    break
            else:
                raise AssertionError(f"it ended before it logged: {until}")
            yield logged
        finally:
            process.kill()


def everpoll(folder: Path, *arguments: str, codes: tuple[int, ...] = (0,)) -> Any:
    command = [*EVERPOLL, *arguments, "--json"]
    ended = warm_processes.run(command, cwd=folder)
    assert ended.returncode in codes, ended.stderr
    return json.loads(ended.stdout)


def test_a_file_alone_is_enough(folder: Path) -> None:
    where = ("--url", "sqlite:///tasks.db")
    with running(folder, "--config", "everpoll.toml", *where):
        seen = everpoll(folder, "services", "check", "from-file", *where, codes=(1,))
    assert (seen["status"], seen["http_status"]) == ("degraded", 200)
    assert [(one["name"], one["canonical"]) for one in seen["dependencies"]] == [
        ("PostgreSQL main", "PostgreSQL main"),
        ("ldap", "ldap"),
        ("redis", "Redis"),
    ]


def test_a_file_adds_to_an_app(folder: Path) -> None:
    with running(folder, "shop:app", "--config", "everpoll.toml"):
        listed = everpoll(folder, "services", "list", "--url", "sqlite:///own.db")
    assert [one["name"] for one in listed] == ["from-code", "from-file"]


def test_without_app_and_file_the_services_of_the_database_run(folder: Path, remote: FakeServer) -> None:
    where = ("--url", "sqlite:///tasks.db")
    add = [*EVERPOLL, "services", "add", "added", f"{remote.url}/down", "--every", "1h", *where]
    warm_processes.run(add, cwd=folder, check=True)
    with running(folder, *where, until="added is down: HTTP 503, db: no route") as logged:
        seen = everpoll(folder, "services", "check", "added", *where, codes=(1,))
    assert seen["http_status"] == 503
    assert "running the services of the database on sqlite:///tasks.db" in logged


def test_an_empty_file_runs_the_services_of_the_database_too(folder: Path) -> None:
    (folder / "empty.toml").write_text("")
    with running(folder, "--config", "empty.toml", until="no services are configured here") as logged:
        assert not any("is the module that has its jobs imported" in line for line in logged)


def test_what_will_fail_later_is_said_at_the_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLACK_URL", raising=False)
    monkeypatch.setenv("HEALTH_TOKEN", "x")
    lines = """
[[services]]
name = "a"
target = "https://h.example/"
headers = {Authorization = "Bearer ${HEALTH_TOKEN}"}
alert = {to = ["ops", "pager"]}

[channels.ops]
type = "slack"
url = "${SLACK_URL}"
"""
    (folder / "late.toml").write_text(lines)
    with running(folder, "--config", "late.toml", until="alerts the channel") as logged:
        text = "\n".join(logged)
    assert "late.toml refers to ${SLACK_URL}, which the environment does not have" in text
    assert "HEALTH_TOKEN" not in text
    assert "service 'a' alerts the channel 'pager', which this process does not have" in text
    assert "'ops'" not in text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--config", "missing.toml"], "missing.toml: No such file or directory"),
        (["--config", "bad.toml"], "bad.toml: entry 1 of [[services]]: service 'a': target is missing"),
        (["shop:app", "--url", "sqlite:///x.db"], "--url: shop:app has an address of its own"),
    ],
)
def test_mistakes_are_one_line(folder: Path, arguments: list[str], complaint: str) -> None:
    (folder / "bad.toml").write_text('[[services]]\nname = "a"')
    command = [*EVERPOLL, "run", *arguments]
    ended = warm_processes.run(command, cwd=folder)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert complaint in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
