"""`everpoll services incidents` and `ack`: outages, open and past, and that an operator knows of one."""

import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cli.health_answers import CONTROLS, ESCAPES
from cli.monitored import Monitored, services_of
from cli.shell import Shell
from everpoll.monitors.alerting import Alert, Notice
from everpoll.monitors.alerts import mailbox
from everpoll.monitors.alerts.incident_row import INCIDENT, KIND, IncidentState
from everpoll.monitors.alerts.incident_row import write as write_row
from everpoll.monitors.checks.assignment import QUEUE
from everpoll.monitors.incident import Incident
from everpoll.monitors.options import define
from everpoll.stores.contract import NewTask, Store, encode

NOW = time.time()
OPEN = Incident(
    id="billing:abc:2",
    service="billing",
    opened_at=NOW - 60,
    since=NOW - 120,
    error="HTTP 503, db: no route",
    alert=Alert(to=["ops"]),
    sent={"ops": NOW - 30},
    noticed_at=NOW - 30,
)
OF_DEPENDENCY = Incident(
    id="shop:abc:1:ffff",
    service="shop",
    dependency="redis",
    opened_at=NOW - 50,
    since=NOW - 50,
    alert=Alert(),
)
PAST = Incident(
    id="billing:abc:1",
    service="billing",
    opened_at=NOW - 7000,
    since=NOW - 7200,
    closed_at=NOW - 3600,
    closed_why="recovered",
    alert=Alert(),
)


LATE = "127.0.0.1:1 refused the connection"


def leave_undelivered(database: Monitored) -> None:
    """Leave the mailbox as a worker leaves it that could not deliver the alert of `OPEN`."""
    notice = Notice(id="n1", incident=OPEN.id, channel="ops", kind="alert", at=NOW - 30, service="billing", since=NOW)

    async def write(store: Store) -> None:
        args = encode(mailbox.append(None, [notice]).args)
        memory = mailbox.write(mailbox.Mail(failures=1, error=LATE, retry_at=NOW + 3600)).decode()
        task = NewTask(name=mailbox.MAILBOX, kind=mailbox.KIND, queue=QUEUE, key="ops", args=args, memory=memory)
        await store.enqueue([task])

    database.use(write)


@pytest.fixture
def database(tmp_path: Path) -> Monitored:
    monitored = Monitored(f"sqlite:///{tmp_path}/tasks.db")
    monitored.publish(define("billing", "https://h/", {}))
    monitored.close_incident(PAST)
    monitored.open_incident(OPEN)
    monitored.open_incident(OF_DEPENDENCY)
    return monitored


def ids(shell: Shell, database: Monitored, *more: str) -> list[str]:
    return [one["id"] for one in shell.json("services", "incidents", *more, "--url", database.url)]


def test_open_ones_are_listed_unless_past_ones_are_asked_for(shell: Shell, database: Monitored) -> None:
    assert ids(shell, database) == [OF_DEPENDENCY.id, OPEN.id]
    assert ids(shell, database, "--past") == [PAST.id]
    assert ids(shell, database, "--all") == [OF_DEPENDENCY.id, OPEN.id, PAST.id]
    assert ids(shell, database, "--service", "billing") == [OPEN.id]
    assert ids(shell, database, "--all", "--limit", "1") == [OF_DEPENDENCY.id]
    assert shell("services", "incidents", "--service", "nix", "--url", database.url).out == "No incident is open.\n"


@pytest.mark.parametrize("columns", [40, 100])
def test_the_table_says_what_failed_and_what_was_sent(shell: Shell, database: Monitored, columns: int) -> None:
    shell.columns(columns)
    ended = shell("services", "incidents", "--all", "--url", database.url)
    assert max(map(len, ended.out.splitlines())) <= columns
    for words in ("down redis of shop", "down billing: HTTP 503", "over billing", "recovered"):
        assert words in ended.words
    assert OF_DEPENDENCY.id in "".join(ended.out.split())
    if columns == 100:
        assert f"{OPEN.id} · sent to ops" in ended.words
        assert f"{OF_DEPENDENCY.id} · waits for its delay" in ended.words


def test_json_has_every_field(shell: Shell, database: Monitored) -> None:
    [printed] = shell.json("services", "incidents", "--service", "billing", "--url", database.url)
    assert (printed["is_open"], printed["status"], printed["error"]) == (True, "down", "HTTP 503, db: no route")
    assert (printed["alerted"], printed["waits"]) == ({"ops": NOW - 30}, "delay")


def test_ack_names_an_operator_and_the_first_one_stays(shell: Shell, database: Monitored) -> None:
    ended = shell("services", "ack", OPEN.id, "--by", "ann", "--url", database.url)
    assert ended.out.startswith(f"{OPEN.id} is acknowledged by ann, ")
    printed = shell.json("services", "ack", OPEN.id, "--by", "bob", "--url", database.url)
    assert printed["acknowledged_by"] == "ann"
    assert "acknowledged by ann" in shell("services", "incidents", "--url", database.url).words
    assert shell("services", "ack", PAST.id, "--url", database.url).out == f"{PAST.id} is over already: recovered\n"


def test_without_a_name_it_is_the_account(shell: Shell, database: Monitored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "carol")
    printed = shell.json("services", "ack", OPEN.id, "--url", database.url)
    assert printed["acknowledged_by"] == "carol"


def test_show_and_why_tell_of_them(shell: Shell, database: Monitored) -> None:
    shown = shell.json("services", "show", "billing", "--url", database.url)
    assert [one["id"] for one in shown["incidents"]] == [OPEN.id, PAST.id]
    assert "incidents since lasted incident" in shell("services", "show", "billing", "--url", database.url).words
    database.remember("billing", status="down", looked_at=NOW, judged_at=NOW, streak={"incident": OPEN.id})
    evidence = shell.json("why", "billing", "--url", database.url)["evidence"]
    assert any(line.startswith(f"incident {OPEN.id}, open for ") and "sent to ops" in line for line in evidence)


def test_what_remotes_wrote_is_text_without_secrets(shell: Shell, database: Monitored) -> None:
    hostile = f"[red]{ESCAPES} https://bob:hunter22@h/"
    database.open_incident(
        Incident(
            id="odd:abc:1",
            service="odd",
            dependency=hostile,
            opened_at=NOW,
            since=NOW,
            error=hostile,
            alert=Alert(),
            acknowledged_at=NOW,
            acknowledged_by=ESCAPES,
        )
    )
    for more in ([], ["--json"]):
        ended = shell("services", "incidents", *more, "--url", database.url)
        assert ended.code == 0
        assert not set(ended.out) & CONTROLS
        assert "hunter22" not in ended.out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["ack", "nix"], "no incident has the id 'nix': `everpoll services incidents` lists them"),
        (["ack", OPEN.id, "--by", "x" * 201], "must be a name of 1 to 200 characters"),
        (["incidents", "--past", "--all"], "--past and --all: write one of them"),
    ],
)
def test_mistakes_are_one_line(shell: Shell, database: Monitored, arguments: list[str], complaint: str) -> None:
    ended = shell("services", *arguments, "--url", database.url)
    assert (ended.code, ended.out) == (2, "")
    assert complaint in ended.err


def test_an_alert_that_did_not_arrive_is_not_called_sent(shell: Shell, database: Monitored) -> None:
    shell.columns(160)
    leave_undelivered(database)
    database.remember("billing", status="down", streak={"bad": 2, "since": NOW - 120, "incident": OPEN.id})
    late = f"not delivered to ops yet: {LATE}; the next try is in "
    for command in (["services", "incidents"], ["services", "show", "billing"], ["why", "billing"]):
        words = shell(*command, "--url", database.url).words
        assert late in words, command
        assert "sent to ops" not in words, command
    [_, billing] = shell.json("services", "incidents", "--url", database.url)
    assert LATE in billing["undelivered"]["ops"]


def test_the_incidents_of_a_quiet_service_among_thousands_are_found_with_few_questions(database: Monitored) -> None:
    asked: list[int] = []

    async def use(store: Store) -> None:
        services, tasks = services_of(store), store.tasks

        async def counted(*arguments: Any) -> Any:
            asked.append(1)
            return await tasks(*arguments)

        done = replace(OPEN, closed_at=NOW, closed_why="recovered")
        for number in range(300):
            other = replace(done, id=f"shop:abc:{number}", service="shop")
            memory = write_row(IncidentState(incident=other, seen_at=NOW))
            task = NewTask(name=INCIDENT, kind=KIND, queue=QUEUE, key=other.id, memory=memory, args="{}", indexed=True)
            await store.enqueue([task])
        store.tasks = counted  # type: ignore[method-assign, assignment]
        assert [one.id for one in await services.incidents.list(None, "billing", 10)] == [OPEN.id, PAST.id]

    database.use(use)
    assert len(asked) <= 8
