"""`everpoll check` looks once at real endpoints, without a database: exit codes, the table, --json."""

import json
import os
import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import warm_processes
from cli.health_answers import paths
from cli.shell import Shell
from servers.ports import reserved_port
from watches.adapters.fake_server import Answer, Asked, FakeServer, by_path, serving
from watches.adapters.test_fetch_is_bounded import certificate  # noqa: F401 - a fixture

MAPPING = {"root": "parts", "fields": {"name": "$key", "healthy": {"field": "state", "equals": "fine"}}}


@pytest.fixture
def remote() -> Iterator[FakeServer]:
    with serving(paths) as fake:
        yield fake


@pytest.mark.parametrize(("path", "code"), [("up", 0), ("degraded", 1), ("down", 1), ("missing", 1)])
def test_the_exit_code_says_how_it_is(shell: Shell, remote: FakeServer, path: str, code: int) -> None:
    assert shell("check", f"{remote.url}/{path}").code == code
    assert shell("check", f"{remote.url}/{path}", "--json").code == code


def test_not_reached_is_2_and_told_in_words(shell: Shell) -> None:
    port = reserved_port()
    ended = shell("check", f"http://127.0.0.1:{port}/health")
    assert (ended.code, ended.err) == (2, "")
    assert ended.out == f"● down  http://127.0.0.1:{port}/health\n127.0.0.1:{port} refused the connection\n"


def test_a_server_that_never_answers_costs_its_timeout(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        printed = shell.json("check", f"http://127.0.0.1:{deaf.getsockname()[1]}/x", "--timeout", "200ms", code=2)
    assert (printed["reached"], printed["status"]) == (False, "down")
    assert "200ms" in printed["error"]


def test_the_table_has_what_a_person_wants_to_know(shell: Shell, remote: FakeServer) -> None:
    ended = shell("check", f"{remote.url}/degraded")
    head, facts, _, *table = ended.out.splitlines()
    assert head == f"● degraded  {remote.url}/degraded"
    assert facts.startswith("HTTP 200 · ")
    assert facts.endswith(" · 127.0.0.1 · proactive-deps")
    titles, _, first, second, third = (line.split() for line in table)
    assert titles == ["dependency", "status", "latency", "type", "impact", "error"]
    # The failed one first, because it is what one looks for.
    assert first == ["redis", "down", "cache", "connect", "ECONNREFUSED", "10.0.0.7:6379"]
    assert second == ["PostgreSQL", "main", "up", "4.2ms", "database", "critical"]
    assert third == ["ldap", "up", "(skipped)"]


def test_down_says_why(shell: Shell, remote: FakeServer) -> None:
    ended = shell("check", f"{remote.url}/down")
    assert ended.out.splitlines()[:2] == [f"● down  {remote.url}/down", "HTTP 503, db: no route"]
    assert "HTTP 503" not in ended.out.splitlines()[2], "once is enough"


def test_json_has_every_field(shell: Shell, remote: FakeServer) -> None:
    printed = shell.json("check", f"{remote.url}/degraded", code=1)
    assert printed.pop("latency_ms") > 0
    redis = printed.pop("dependencies")[1]
    assert printed == {
        "target": f"{remote.url}/degraded",
        "status": "degraded",
        "healthy": True,
        "reached": True,
        "error": None,
        "http_status": 200,
        "address": "127.0.0.1",
        "format": "proactive-deps",
        "warnings": [],
        "certificate_expires_at": None,
    }
    assert redis == {
        "name": "redis",
        "status": "down",
        "healthy": False,
        "skipped": False,
        "latency_ms": None,
        "type": "cache",
        "impact": None,
        "description": None,
        "contact": None,
        "check_details": None,
        "error": None,
        "error_message": "connect ECONNREFUSED 10.0.0.7:6379",
    }


@pytest.mark.parametrize("columns", [30, 48, 80, 120])
def test_every_width_shows_everything(shell: Shell, remote: FakeServer, columns: int) -> None:
    shell.columns(columns)
    ended = shell("check", f"{remote.url}/degraded")
    assert max(map(len, ended.out.splitlines())) <= columns
    joined = "".join(ended.out.split())
    for word in ("PostgreSQL", "main", "4.2ms", "database", "critical", "ECONNREFUSED", "10.0.0.7:6379", "(skipped)"):
        assert word in joined


def test_a_port_and_a_name_are_looked_at_too(shell: Shell) -> None:
    port = reserved_port()
    with socket.create_server(("127.0.0.1", port)):
        printed = shell.json("check", f"tcp://127.0.0.1:{port}")
    assert (printed["status"], printed["address"], printed["format"], printed["http_status"]) == (
        "up",
        "127.0.0.1",
        None,
        None,
    )
    assert shell("check", f"tcp://127.0.0.1:{port}").code == 2
    assert shell.json("check", "dns://localhost")["status"] == "up"


def test_a_mapping_reads_a_body_of_any_shape(shell: Shell, tmp_path: Path) -> None:
    mapping = tmp_path / "mapping.json"
    mapping.write_text(json.dumps(MAPPING))
    body = {"parts": {"disk": {"state": "fine"}, "queue": {"state": "stuck"}}}
    with serving(lambda _: Answer(200, body)) as remote:
        printed = shell.json("check", remote.url, "--mapping", str(mapping), code=1)
    assert [(one["name"], one["status"]) for one in printed["dependencies"]] == [("disk", "up"), ("queue", "down")]
    assert printed["format"] == "mapping"


def test_a_format_that_cannot_read_the_body_is_unknown_with_a_warning(shell: Shell, remote: FakeServer) -> None:
    ended = shell("check", f"{remote.url}/up", "--format", "proactive-deps")
    assert ended.code == 1
    assert ended.out.startswith("● unknown")
    assert "\nwarning " in ended.out


def test_conditions_that_do_not_hold_are_told_with_what_was_seen(shell: Shell, remote: FakeServer) -> None:
    holds, fails = 'json.status == "UP"', "status == 204"
    assert shell("check", f"{remote.url}/up", "--condition", holds).code == 0
    ended = shell("check", f"{remote.url}/up", "--condition", holds, "--condition", fails)
    assert (ended.code, ended.out.splitlines()[1]) == (1, "status == 204: it is 200")


def test_headers_may_refer_to_the_environment(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def answer(asked: Asked) -> Answer:
        seen.append(asked.headers.get("authorization"))
        return Answer(200, {"status": "UP"})

    monkeypatch.setenv("HEALTH_TOKEN", "t0ken-of-mine")
    with serving(answer) as remote:
        header = ("--header", "Authorization: Bearer ${HEALTH_TOKEN}")
        assert shell("check", remote.url, *header, "--fresh").code == 0
        monkeypatch.delenv("HEALTH_TOKEN")
        ended = shell("check", remote.url, *header)
    assert seen == ["Bearer t0ken-of-mine"]
    assert (ended.code, ended.out) == (2, "")
    assert "${HEALTH_TOKEN}" in ended.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["ftp://host/x"], "has no known scheme"),
        (["billing"], "has no known scheme"),
        (
            ["localhost:8080/health"],
            "target='localhost:8080/health': has no scheme; write 'http://localhost:8080/health'",
        ),
        (["h.example/x?token=s3cret"], "target='h.example/x?…': has no scheme; write 'http://h.example/x?…'"),
        (["bob:s3cret@h.example/x"], "has no known scheme"),
        (["beat:"], "a heartbeat has no address to look at"),
        (["http://h/", "--format", "xml"], "not a known format; write one of auto, proactive-deps"),
        (["http://h/", "--timeout", "soon"], "--timeout='soon'"),
        (["http://h/", "--timeout", "1h"], "must be at most 10m"),
        (["http://h/", "--condition", "status is fine"], "condition='status is fine'"),
        (["http://h/", "--header", "s3cret"], "--header, number 1, cannot be read"),
        (["http://h/", "--mapping", "nowhere.json"], "--mapping nowhere.json: No such file"),
        (["http://h/", "--mapping", "."], "--mapping .: Is a directory"),
    ],
)
def test_mistakes_are_one_line(shell: Shell, arguments: list[str], complaint: str) -> None:
    ended = shell("check", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert complaint in ended.err
    assert len(ended.err.splitlines()) == 1
    assert "service" not in ended.err, "there is none"
    assert "s3cret" not in ended.err


@pytest.mark.parametrize("content", [b"{not json", b"\xff\xfe", b'{"root": 1}'])
def test_a_mapping_that_cannot_be_used_is_one_line(shell: Shell, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mapping.json").write_bytes(content)
    ended = shell("check", "http://h/", "--mapping", str(tmp_path / "mapping.json"))
    assert ended.code == 2
    assert "mapping" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_certificate_is_verified_and_its_expiry_told(certificate: Path) -> None:  # noqa: F811 - see above
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with serving(paths, tls=tls) as remote:
        for target in (f"{remote.url}/up", remote.url.replace("https:", "tls:")):
            trusted = in_a_shell("check", target, SSL_CERT_FILE=str(certificate))
            assert trusted.returncode == 0, trusted.stdout + trusted.stderr
            assert re.search(r"certificate expires in \d+d", trusted.stdout.splitlines()[1])
            assert "warning its certificate expires in " in trusted.stdout
            printed = json.loads(in_a_shell("check", target, "--json", SSL_CERT_FILE=str(certificate)).stdout)
            assert printed["certificate_expires_at"] > time.time()
            unknown = in_a_shell("check", target)
            assert unknown.returncode == 2
            assert "certificate" in unknown.stdout.splitlines()[1]


def in_a_shell(*arguments: str, **env: str) -> warm_processes.Completed[str]:
    kept = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}
    return warm_processes.run(["-m", "everpoll", *arguments], env={**kept, **env})


def test_a_real_shell_needs_no_database(tmp_path: Path, remote: FakeServer) -> None:
    command = [sys.executable, "-m", "everpoll", "check", f"{remote.url}/degraded"]
    env = {**os.environ, "EVERPOLL_URL": "postgresql://user@127.0.0.1:1/nothing"}
    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert ended.stdout.startswith("● degraded")
    assert list(tmp_path.iterdir()) == []


def test_a_body_that_is_not_read_is_called_so(shell: Shell) -> None:
    with serving(by_path({"GET /": Answer(200, {"state": "green", "checks": {}})})) as remote:
        assert "plain (only the HTTP status counts)" in shell("check", f"{remote.url}/").words


def test_a_condition_hides_no_failed_answer(shell: Shell) -> None:
    with serving(paths) as remote:
        ended = shell("check", f"{remote.url}/down", "--condition", "latency > 1h")
    assert "HTTP 503, db: no route; latency > 1h: it is " in ended.words
