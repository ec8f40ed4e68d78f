"""`everpoll services` with a worker: what is added is looked at, shown, muted, checked at once and removed."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.health_answers import DOWN, paths
from cli.monitored import Monitored
from cli.shell import Ended, Shell
from warm_processes import PIPE, WarmProcess
from watches.adapters.fake_server import FakeServer, serving

APP = """
from everpoll import Everpoll

app = Everpoll("sqlite:///tasks.db")

@app.job
def nothing() -> None: ...
"""
Run = Callable[..., Ended]


@pytest.fixture
def remote() -> Iterator[FakeServer]:
    with serving(paths) as fake:
        yield fake


@pytest.fixture
def database(tmp_path: Path) -> Monitored:
    monitored = Monitored(f"sqlite:///{tmp_path}/tasks.db")
    monitored.publish()
    return monitored


@pytest.fixture
def worker(tmp_path: Path, database: Monitored) -> Iterator[None]:
    """A worker that has jobs and no services of its own: it takes up those that commands add."""
    (tmp_path / "shop.py").write_text(APP)
    command = ["-m", "everpoll", "run", "shop:app", "--grace", "0s"]
    env = {**os.environ, "EVERPOLL_LOG": "json"}
    with WarmProcess(command, cwd=tmp_path, env=env, stderr=PIPE) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "signed on" in json.loads(line)["message"]:
                break
        yield
        process.kill()


@pytest.fixture
def run(shell: Shell, database: Monitored) -> Run:
    def services(*arguments: str) -> Ended:
        return shell("services", *arguments, "--url", database.url)

    return services


def answer(ended: Ended) -> Any:
    return json.loads(ended.out)


@pytest.mark.usefixtures("worker")
def test_a_service_lives_from_add_to_remove(run: Run, remote: FakeServer) -> None:
    added = run("add", "billing", f"{remote.url}/degraded", "--every", "1h", "--depends-on", "redis")
    assert (added.code, added.out, added.err) == (0, "billing is added\n", "")
    checked = run("check", "billing", "--json")
    assert checked.code == 1
    assert [one["name"] for one in answer(checked)["dependencies"]] == ["PostgreSQL main", "ldap", "redis"]
    assert "● degraded  billing" in run("check", "billing").out
    shown = answer(run("show", "billing", "--json"))
    assert (shown["status"], shown["healthy"], shown["http_status"]) == ("degraded", True, 200)
    assert shown["definition"]["depends_on"] == ["redis"]
    [listed] = answer(run("list", "--json"))
    assert (listed["name"], listed["status"]) == ("billing", "degraded")
    remote.answer = lambda _: DOWN
    assert answer(run("check", "billing", "--json"))["error"] == "HTTP 503, db: no route"
    removed = run("remove", "billing")
    assert (removed.code, removed.err) == (0, "")
    assert removed.out.startswith("billing is removed, with its history")


@pytest.mark.usefixtures("worker")
def test_another_definition_needs_replace_and_is_looked_at_at_once(run: Run, remote: FakeServer) -> None:
    run("add", "shop", f"{remote.url}/down", "--every", "1h")
    assert run("check", "shop").code == 1
    refused = run("add", "shop", f"{remote.url}/up", "--every", "1h")
    assert (refused.code, refused.out) == (2, "")
    assert "service 'shop' exists already, with other options; --replace" in refused.err
    assert run("add", "shop", f"{remote.url}/up", "--every", "1h", "--replace").out == "shop is replaced\n"
    assert run("check", "shop").code == 0
    assert run("add", "shop", f"{remote.url}/up", "--every", "1h").out == "shop exists already, with the same options\n"


@pytest.mark.usefixtures("worker")
def test_a_service_that_was_just_removed_is_added_anew(run: Run, remote: FakeServer) -> None:
    run("add", "shop", f"{remote.url}/down", "--every", "1h")
    for path in ("up", "down", "up"):
        run("remove", "shop")
        added = run("add", "shop", f"{remote.url}/{path}", "--every", "1h")
        assert (added.code, added.out, added.err) == (0, "shop is added\n", "")
    assert run("check", "shop").code == 0


@pytest.mark.usefixtures("worker")
def test_check_of_a_heartbeat_says_at_once_that_nothing_is_asked(run: Run) -> None:
    run("add", "backup", "beat:", "--every", "1d", "--timeout", "6h")
    ended = run("check", "backup")
    assert (ended.code, ended.out) == (2, "")
    assert "is a heartbeat, and cannot be asked: it calls everpoll" in ended.err


@pytest.mark.usefixtures("worker")
def test_check_of_a_service_that_is_not_reached_is_2(run: Run) -> None:
    run("add", "gone", "http://127.0.0.1:1/", "--every", "1h")
    ended = run("check", "gone")
    assert ended.code == 2
    assert ended.out.startswith("● down  gone\n127.0.0.1:1 refused the connection\n")


def test_without_a_worker_changes_wait_and_are_told(run: Run, remote: FakeServer) -> None:
    added = run("add", "billing", f"{remote.url}/up")
    assert (added.code, added.out) == (0, "billing is added\n")
    assert "No worker is running" in added.err
    listed = run("list")
    assert "No worker is running: nothing is looked at." in listed.out
    [info] = answer(run("list", "--json"))
    assert (info["name"], info["status"], info["looks"], info["uptime_24h"]["percent"]) == (
        "billing",
        "unknown",
        [],
        None,
    )
    checked = run("check", "billing")
    assert (checked.code, checked.out) == (2, "")
    assert "no worker is running to look at it; `everpoll check URL` needs none" in checked.err
    assert remote.asked == []
    run("remove", "billing")
    assert "(removed)" in run("list").out
    assert "waits for a worker that removes it" in run("add", "billing", f"{remote.url}/up").err


def test_mute_and_unmute(run: Run, remote: FakeServer) -> None:
    run("add", "billing", f"{remote.url}/up")
    assert run("mute", "billing", "2h").out == "billing is muted for 2h\n"
    assert answer(run("show", "billing", "--json"))["muted_until"] is not None
    assert "(muted)" in run("list").out
    assert "muted" in run("show", "billing").out
    assert run("unmute", "billing").out == "billing is not muted any more\n"
    assert answer(run("show", "billing", "--json"))["muted_until"] is None


def test_pause_and_resume(run: Run, remote: FakeServer) -> None:
    run("add", "billing", f"{remote.url}/up")
    assert run("pause", "billing", "--reason", "it moves").out == "billing is paused\n"
    shown = answer(run("show", "billing", "--json"))
    assert (shown["status"], shown["due_at"], shown["paused"]["reason"]) == ("paused", None, "it moves")
    assert shown["paused"]["by"]
    assert "paused" in run("list", "--status", "paused").out
    assert ": it moves" in run("show", "billing").out
    checked = run("check", "billing")
    assert checked.code == 2
    assert run("resume", "billing").out == "billing is looked at again\n"
    assert run("resume", "billing").out == "billing was not paused\n"
    assert answer(run("show", "billing", "--json"))["paused"] is None


@pytest.mark.usefixtures("worker")
def test_a_heartbeat_is_told_by_its_name(run: Run) -> None:
    added = run("add", "backup", "beat:", "--every", "1d", "--timeout", "1h")
    record = "record its heartbeats with: everpoll services beat backup, or over HTTP: POST /api/beat/"
    assert added.out.startswith(f"backup is added; {record}")
    path = answer(run("show", "backup", "--json"))["beat_path"]
    assert added.out.endswith(f" POST {path}\n")
    assert path in run("show", "backup").out
    again = run("add", "backup", "beat:", "--every", "1d", "--timeout", "1h")
    assert again.out == "backup exists already, with the same options\n"
    assert "breaker" not in run("show", "backup").out
    assert run("beat", "backup", "--status", "degraded").out == "heartbeat recorded: backup is degraded\n"
    refused = run("beat", "backup", "--status", "tired")
    assert (refused.code, "write up, degraded or down" in refused.err) == (2, True)


def test_only_references_to_secrets_are_stored(run: Run, database: Monitored, remote: FakeServer) -> None:
    for wrong in (["--header", "X-Api-Key: s3cret-key"], ["--header", "Cookie: s3cret-key"]):
        ended = run("add", "billing", remote.url, *wrong)
        assert ended.code == 2
        assert "is written out, and is stored with the service" in ended.err
    assert "must not have a user or a password" in run("add", "billing", "https://bob:s3cret-key@h/").err
    run(
        "add",
        "billing",
        f"{remote.url}/?token=s3cret-key",
        "--header",
        "X-Api-Key: ${KEY}",
        "--header",
        "X-Shop: s3cret-key",
    )
    shown = run("show", "billing")
    assert "X-Api-Key: ${KEY}, X-Shop: ***" in shown.words
    for command in (["list"], ["list", "--json"], ["show", "billing"], ["show", "billing", "--json"]):
        ended = run(*command)
        assert "s3cret-key" not in ended.out + ended.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["show", "nix"], "no service is called 'nix': `everpoll services list` shows all services"),
        (["remove", "nix"], "no service is called 'nix'"),
        (["check", "nix"], "no service is called 'nix'"),
        (["mute", "nix", "1h"], "no service is called 'nix'"),
        (["pause", "nix"], "no service is called 'nix'"),
        (["resume", "nix"], "no service is called 'nix'"),
        (["mute", "nix", "soon"], "DURATION='soon'"),
        (["beat", "nix"], "no service is called 'nix'"),
        (["list", "--status", "odd"], "--status 'odd': write one of up, degraded, down"),
        (["add", "x", "https://h/", "--every", "1s"], "service 'x': every='1s': must be from 5s to 1h"),
        (["add", "x", "ftp://h/"], "service 'x': target='ftp://h/': has no known scheme"),
        (["add", "x", "https://h/", "--alert-after", "0"], "after=0: too small"),
        (["add", "x", "https://h/", "--mapping", "none.json"], "--mapping none.json: No such file"),
    ],
)
def test_mistakes_are_one_line(run: Run, arguments: list[str], complaint: str) -> None:
    ended = run(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert complaint in ended.err
    assert len(ended.err.splitlines()) == 1


def test_looking_never_changes_a_database(shell: Shell, tmp_path: Path) -> None:
    where = ("--url", f"sqlite:///{tmp_path}/none.db")
    for command in (["list"], ["show", "x"], ["check", "x"]):
        ended = shell("services", *command, *where)
        assert (ended.code, "everpoll migrate" in ended.err) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_adding_the_first_service_makes_the_database(shell: Shell, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    ended = shell("services", "add", "shop", "https://h.example/health", "--url", url)
    assert (ended.code, ended.out) == (0, "shop is added\n")
    assert ended.err.splitlines()[0] == f"Created the database {url}."
    again = shell("services", "add", "blog", "https://h.example/blog", "--url", url)
    assert "Created" not in again.err
    assert [one["name"] for one in shell.json("services", "list", "--url", url)] == ["blog", "shop"]


def test_commands_that_add_nothing_make_no_database(shell: Shell, tmp_path: Path) -> None:
    for command in (["list"], ["remove", "shop"], ["mute", "shop", "2h"], ["beat", "shop"]):
        ended = shell("services", *command, "--url", f"sqlite:///{tmp_path}/new.db")
        assert (ended.code, ended.out) == (2, "")
        assert "no everpoll tables in" in ended.err
    assert list(tmp_path.iterdir()) == []
