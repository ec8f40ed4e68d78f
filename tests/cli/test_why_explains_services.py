"""`everpoll why NAME`: why a service is down, since when, and what the next look waits for."""

import re
import time
from pathlib import Path

import pytest

from cli.monitored import Monitored
from cli.shell import Shell
from everpoll.monitors.options import define


@pytest.fixture
def database(tmp_path: Path) -> Monitored:
    monitored = Monitored(f"sqlite:///{tmp_path}/tasks.db")
    monitored.publish(define("billing", "https://billing.internal/health", {}), define("a:b", "https://h/", {}))
    return monitored


def test_a_service_that_was_not_looked_at_yet(shell: Shell, database: Monitored) -> None:
    printed = shell.json("why", "billing", "--url", database.url)
    assert printed["verdict"] == "billing has not been looked at yet."
    assert printed["advice"].startswith("no worker is running: start one with everpoll run")


def test_a_service_that_is_down(shell: Shell, database: Monitored) -> None:
    now = time.time()
    definition = define("billing", "https://billing.internal/health", {})
    database.remember(
        "billing",
        status="down",
        error="10.0.0.7:443 refused the connection",
        failures=12,
        failed_at=now - 60,
        opened_at=now - 60,
        waits="breaker",
        due_at=now + 240,
        looked_at=now - 60,
        judged_at=now - 60,
        changed_at=now - 3600,
        origin_at=now - 60,
        fetch=definition.fetch,
        every_s=30.0,
        warnings=["its certificate expires in 3d"],
    )
    ended = shell("why", "billing", "--url", database.url)
    assert ended.code == 0
    first, *evidence = ended.out.splitlines()
    assert re.fullmatch(r"billing has been down for 1h\w*: 10\.0\.0\.7:443 refused the connection\.", first)
    assert "12 looks in a row got no answer" in evidence[0]
    assert "the breaker is open after 12 failures in a row, and lets one probe through then" in evidence[1]
    assert evidence[2] == "  warning: its certificate expires in 3d"


def test_a_muted_service_says_so(shell: Shell, database: Monitored) -> None:
    shell("services", "mute", "billing", "2h", "--url", database.url)
    assert any(
        line.startswith("muted for another ")
        for line in shell.json("why", "billing", "--url", database.url)["evidence"]
    )


def test_a_number_is_a_task_and_a_name_with_a_colon_may_be_a_service(shell: Shell, database: Monitored) -> None:
    database.remember("billing")  # due again in an hour: a first look is due within seconds
    task = database.use(lambda store: store.find("check", "billing"))
    assert task is not None
    verdict = shell.json("why", str(task.id), "--url", database.url)["verdict"]
    assert verdict.startswith("It has run before, and is due again")
    assert shell.json("why", "a:b", "--url", database.url)["verdict"] == "a:b has not been looked at yet."


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("nix", "no service is called 'nix': `everpoll services list` lists services"),
        ("w:1", "no run w:1 here"),
        ("99", "no task 99 here"),
    ],
)
def test_a_name_that_means_nothing_is_one_line(shell: Shell, database: Monitored, name: str, complaint: str) -> None:
    ended = shell("why", name, "--url", database.url)
    assert (ended.code, ended.out) == (2, "")
    assert complaint in ended.err
