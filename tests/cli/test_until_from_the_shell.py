"""`everpoll until` waits for operations of real servers: exit codes, what it prints, and what it never prints."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import warm_processes
from servers.ports import reserved_port
from warm_processes import PIPE, WarmProcess
from watches.adapters.fake_server import Answer, Asked, FakeServer, Paths, by_path, scripted, serving
from watches.adapters.test_fetch_is_bounded import certificate  # noqa: F401 - a fixture

UNTIL = ("-m", "everpoll", "until")
QUICK = ("--every", "20ms")
SECRET = "s3cr3t-t0ken-of-mine"  # noqa: S105 - made up
RUNNING = Answer(202, {"status": "running", "percentComplete": 40})
DONE = Answer(200, {"rows": 3})


def environment(**more: str) -> dict[str, str]:
    unset = {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "SSL_CERT_FILE"}
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return {**kept, "COLUMNS": "80", **more}


def until(*arguments: str, **env: str) -> warm_processes.Completed[str]:
    return warm_processes.run([*UNTIL, *arguments], env=environment(**env))


def until_anew(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """The same in a new interpreter, which reads its `sitecustomize`."""
    command = [sys.executable, *UNTIL, *arguments]
    return subprocess.run(command, env=environment(**env), capture_output=True, text=True, check=False, timeout=120)


def answer_of(*arguments: str, code: int = 0, **env: str) -> dict[str, Any]:
    ended = until(*arguments, "--json", **env)
    assert ended.returncode == code, ended.stdout + ended.stderr
    output = json.loads(ended.stdout)
    assert isinstance(output, dict)
    return output


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[WarmProcess]:
    process = WarmProcess([*UNTIL, *arguments], env=environment(PYTHONUNBUFFERED="1"), stdout=PIPE, stderr=PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_until(process: WarmProcess, wanted: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if wanted in line:
            return
    raise AssertionError(f"it ended without saying {wanted!r}")


# ── exit codes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ready_is_0_and_every_look_is_a_line() -> None:
    with serving(scripted(RUNNING, RUNNING, DONE)) as fake:
        ended = until(f"{fake.url}/ops/7", *QUICK)
    assert (ended.returncode, ended.stderr) == (0, "")
    [title, first, second, last] = ended.stdout.splitlines()
    assert title == f"    0s  GET {fake.url}/ops/7"
    assert re.fullmatch(r" +0s  look 1: running, 40 %; next look in [\d.]+ms", first)
    assert "look 2: running, 40 %" in second
    assert re.fullmatch(r"ready after 3 looks in [\d.]+m?s", last)
    assert max(map(len, ended.stdout.splitlines())) <= 80


def test_failed_is_1_with_the_remotes_reason_in_one_line() -> None:
    body = {"status": "failed", "error": {"code": "Quota", "message": "no room\nleft"}}
    with serving(scripted(RUNNING, Answer(200, body))) as fake:
        ended = until(fake.url, *QUICK)
    assert ended.returncode == 1
    assert re.fullmatch(
        r"everpoll: failed after 2 looks in [\d.]+m?s: the remote says 'failed': Quota: no room left\n", ended.stderr
    )


def test_canceled_by_another_caller_is_1() -> None:
    with serving(scripted(Answer(200, {"status": "Canceled"}))) as fake:
        output = answer_of(fake.url, code=1)
    assert (output["outcome"], output["looks"]) == ("canceled", 1)


def test_timed_out_is_2_and_says_what_was_last_seen() -> None:
    with serving(scripted(RUNNING)) as fake:
        ended = until(fake.url, "--timeout", "300ms", "--every", "100ms")
    assert ended.returncode == 2
    assert ended.stderr.startswith("everpoll: timed out after ")
    assert "time budget of 300ms is spent" in ended.stderr
    assert "last seen: running, 40 %" in ended.stderr


def test_a_server_that_never_answers_does_not_outlive_the_budget() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        output = answer_of(f"http://127.0.0.1:{deaf.getsockname()[1]}/x", "--timeout", "1s", code=2)
    # The fetch alone would have had 30 seconds.
    assert (output["outcome"], output["elapsed_s"] < 20) == ("timed_out", True)
    assert "no answer in time" in output["reason"]


def test_a_server_that_is_away_is_asked_again() -> None:
    ended = until(f"http://127.0.0.1:{reserved_port()}/x", "--timeout", "200ms", "--every", "50ms")
    assert ended.returncode == 2
    assert "look 1: 127.0.0.1 refused the connection; next look in" in ended.stdout
    assert "last seen: 127.0.0.1 refused the connection" in ended.stderr


def test_ctrl_c_is_130_and_leaves_the_operation_alone() -> None:
    with (
        serving(scripted(RUNNING)) as fake,
        started(f"{fake.url}/ops/7", "--every", "1h", "--timeout", "2h") as process,
    ):
        read_until(process, "look 1")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130
        assert said == "everpoll: interrupted after 1 look: the operation goes on at the remote\n"
        assert {one.method for one in fake.asked} == {"GET"}


def test_ctrl_c_during_a_look_that_hangs_ends_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        with started(f"http://127.0.0.1:{deaf.getsockname()[1]}/x") as process:
            connection, _ = deaf.accept()
            with connection:
                assert connection.recv(4) == b"GET "
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=60)
        assert process.returncode == 130


def test_ctrl_c_with_cancel_asks_the_remote_and_waits_for_it() -> None:
    ends: list[Asked] = []

    def answer(asked: Asked) -> Answer:
        if asked.method == "DELETE":
            ends.append(asked)
            return Answer(204)
        return Answer(200, {"status": "canceled"}) if ends else RUNNING

    with (
        serving(answer) as fake,
        started(f"{fake.url}/ops/7", "--every", "1h", "--timeout", "2h", "--cancel") as process,
    ):
        read_until(process, "look 1")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130
        assert said.endswith("canceled: interrupted; the remote has ended\n")
        assert fake.paths() == ["GET /ops/7", "DELETE /ops/7", "GET /ops/7"]


# ── what is begun ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_operation_is_begun_once_and_then_looked_at() -> None:
    paths: Paths = {
        "POST /reports": Answer(202, None, {"Location": "/ops/7"}),
        "GET /ops/7": scripted(RUNNING, DONE),
    }
    with serving(by_path(paths)) as fake:
        output = answer_of(f"{fake.url}/reports", "--data", '{"year": 2026}', *QUICK)
        assert fake.paths() == ["POST /reports", "GET /ops/7", "GET /ops/7"]
        assert fake.asked[0].body == {"year": 2026}
        assert fake.asked[0].headers["prefer"] == "respond-async"
        assert fake.asked[0].headers["idempotency-key"].startswith("until:")
    assert (output["outcome"], output["value"], output["looks"]) == ("ready", {"rows": 3}, 2)


def test_an_answer_that_comes_with_the_start_needs_no_wait(tmp_path: Path) -> None:
    (tmp_path / "body.json").write_text("[1, 2]")
    with serving(scripted(Answer(200, {"ok": True}))) as fake:
        output = answer_of(fake.url, "--data", f"@{tmp_path / 'body.json'}", "--method", "put", "--every", "1h")
        assert [(one.method, one.body) for one in fake.asked] == [("PUT", [1, 2])]
    assert output["value"] == {"ok": True}


def test_a_start_that_is_busy_is_repeated_with_the_same_key() -> None:
    paths: Paths = {
        "POST /": scripted(Answer(503, None, {"Retry-After": "0"}), Answer(202, None, {"Location": "/ops/7"})),
        "GET /ops/7": DONE,
    }
    with serving(by_path(paths)) as fake:
        assert answer_of(f"{fake.url}/", "--method", "POST", *QUICK)["errors"] == 1
        keys = [one.headers["idempotency-key"] for one in fake.asked if one.method == "POST"]
    assert (len(keys), len(set(keys))) == (2, 1)


def test_a_start_that_is_refused_is_1() -> None:
    with serving(scripted(Answer(401, {"error": {"message": "who are you?"}}))) as fake:
        ended = until(fake.url, "--method", "POST")
        assert len(fake.asked) == 1
    assert ended.returncode == 1
    assert ended.stderr == f"everpoll: failed: {fake.url} answered 401 Unauthorized: who are you?\n"


def test_a_start_that_is_pending_and_says_not_where_is_refused() -> None:
    with serving(scripted(Answer(200, {"status": "queued"}))) as fake:
        ended = until(fake.url, "--method", "POST")
    assert ended.returncode == 1
    assert "'queued', and does not say where to look" in ended.stderr


def test_retry_after_of_the_start_and_of_a_look_is_kept_to() -> None:
    paths: Paths = {
        "POST /": Answer(202, None, {"Location": "/ops/7", "Retry-After": "1"}),
        "GET /ops/7": scripted(Answer(202, None, {"Retry-After": "1"}), DONE),
    }
    with serving(by_path(paths)) as fake:
        ended = until(f"{fake.url}/", "--method", "POST", *QUICK)
    assert ended.returncode == 0
    assert re.search(r"started; next look in 1(\.\d)?s", ended.stdout)
    assert re.search(r"look 1: 202; next look in 1(\.\d)?s: the (look|remote) asked for 1s", ended.stdout)


# ── protocols ────────────────────────────────────────────────────────────────────────────────────────────────────────


def google(name: str) -> Callable[[Asked], Answer]:
    running = Answer(200, {"name": name, "metadata": {"progressPercent": 50}})
    return scripted(running, Answer(200, {"name": name, "done": True, "response": {"text": "hello"}}))


@pytest.mark.parametrize("adapter", ["auto", "google"])
def test_google(adapter: str) -> None:
    with serving(by_path({"GET /v1/operations/7": google("operations/7")})) as fake:
        output = answer_of(f"{fake.url}/v1/operations/7", "--adapter", adapter, *QUICK)
    assert (output["value"], output["looks"]) == ({"text": "hello"}, 2)
    assert (output["status"], output["progress"]) == ("done", None), "of the end, not of the look before"


@pytest.mark.parametrize("adapter", ["auto", "google"])
def test_google_begun_here(adapter: str) -> None:
    paths: Paths = {
        "POST /v1/speech:recognize": Answer(200, {"name": "operations/7"}),
        "GET /v1/operations/7": google("operations/7"),
    }
    with serving(by_path(paths)) as fake:
        output = answer_of(f"{fake.url}/v1/speech:recognize", "--data", "{}", "--adapter", adapter, *QUICK)
    assert output["value"] == {"text": "hello"}


@pytest.mark.parametrize("adapter", ["auto", "azure"])
def test_azure_fetches_the_result_after_the_operation(adapter: str) -> None:
    paths: Paths = {
        "PUT /vm": Answer(201, {"properties": {}}, {"Azure-AsyncOperation": "{url}/ops/7"}),
        "GET /ops/7": scripted(Answer(200, {"status": "InProgress"}), Answer(200, {"status": "Succeeded"})),
        "GET /vm": Answer(200, {"name": "vm-1"}),
    }
    with serving(by_path(paths)) as fake:
        output = answer_of(f"{fake.url}/vm", "--method", "PUT", "--data", "{}", "--adapter", adapter, *QUICK)
        assert fake.paths() == ["PUT /vm", "GET /ops/7", "GET /ops/7", "GET /vm"]
    assert output["value"] == {"name": "vm-1"}


OPENAI = {"object": "batch", "id": "batch_1", "request_counts": {"total": 2, "completed": 1, "failed": 0}}
ANTHROPIC = {"type": "message_batch", "id": "msgbatch_1", "results_url": "https://x.example/results"}


@pytest.mark.parametrize("adapter", ["auto", "openai"])
def test_openai(adapter: str) -> None:
    states = scripted(
        Answer(200, OPENAI | {"status": "in_progress"}),
        Answer(200, OPENAI | {"status": "completed", "output_file_id": "file-1"}),
    )
    with serving(states) as fake:
        output = answer_of(
            f"{fake.url}/v1/batches/batch_1", "--adapter", adapter, *QUICK, OPENAI_API_KEY=f"sk-{SECRET}"
        )
        sent = {one.headers.get("authorization") for one in fake.asked}
    assert (output["value"]["output_file_id"], output["status"]) == ("file-1", "completed")
    # A key of the environment goes to a host only where its protocol was asked for.
    assert sent == ({f"Bearer sk-{SECRET}"} if adapter == "openai" else {None})


@pytest.mark.parametrize("adapter", ["auto", "anthropic"])
def test_anthropic(adapter: str) -> None:
    counts = {"processing": 1, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
    states = scripted(
        Answer(200, ANTHROPIC | {"processing_status": "in_progress", "request_counts": counts}),
        Answer(
            200,
            ANTHROPIC | {"processing_status": "ended", "request_counts": counts | {"processing": 0, "succeeded": 1}},
        ),
    )
    with serving(states) as fake:
        url = f"{fake.url}/v1/messages/batches/msgbatch_1"
        output = answer_of(url, "--adapter", adapter, "--header", f"x-api-key: {SECRET}", *QUICK)
        assert {one.path for one in fake.asked} == {"/v1/messages/batches/msgbatch_1"}
        assert {one.headers["x-api-key"] for one in fake.asked} == {SECRET}
    assert output["value"]["request_counts"]["succeeded"] == 1


def test_a_waiters_model(tmp_path: Path) -> None:
    acceptors = [
        {"state": "success", "matcher": "path", "argument": "Table.TableStatus", "expected": "ACTIVE"},
        {"state": "retry", "matcher": "error", "expected": "ResourceNotFoundException"},
    ]
    waiter = {"operation": "DescribeTable", "delay": 0, "maxAttempts": 10, "acceptors": acceptors}
    model = tmp_path / "waiters.json"
    model.write_text(json.dumps({"version": 2, "waiters": {"TableExists": waiter}}))
    missing = Answer(400, {"__type": "com.amazonaws#ResourceNotFoundException"})
    creating = Answer(200, {"Table": {"TableStatus": "CREATING"}})
    active = Answer(200, {"Table": {"TableStatus": "ACTIVE"}})
    arguments = ("--model", str(model), "--waiter", "table_exists", "--timeout", "1m", *QUICK)
    with serving(scripted(missing, creating, active)) as fake:
        output = answer_of(fake.url, *arguments)
        assert (output["outcome"], output["looks"], output["adapter"]) == ("ready", 3, "waiter")
    with serving(scripted(Answer(403, {"__type": "AccessDeniedException"}))) as fake:
        output = answer_of(fake.url, *arguments, code=1)
        assert "error AccessDeniedException, which no acceptor matches" in output["reason"]
    said = until(fake.url, "--model", str(model), "--waiter", "TableGone")
    assert (said.returncode, "known waiters: TableExists" in said.stderr) == (1, True)


# ── what is printed, and what is not ─────────────────────────────────────────────────────────────────────────────────


def echo(asked: Asked) -> Answer:
    """A remote that repeats everything it was sent."""
    said = {"status": "done", "headers": dict(asked.headers), "path": asked.path}
    return Answer(int(asked.path.strip("/").partition("?")[0] or 200), said | {"error": {"message": json.dumps(said)}})


@pytest.mark.parametrize("path", ["/200", "/401", "/503"])
@pytest.mark.parametrize("more", [["--json"], ["--method", "POST"], []])
def test_secrets_are_never_printed_whatever_the_remote_repeats(path: str, more: list[str]) -> None:
    headers = ["--header", f"Authorization: Bearer {SECRET}", "--header", "X-Api-Key:k3y-of-mine", "--header", "X-A: b"]
    with serving(echo) as fake:
        ended = until(
            f"{fake.url}{path}?sig=qu3ry-s3cret", *headers, *more, "--timeout", "200ms", OPENAI_API_KEY="sk-env-secret"
        )
        assert fake.asked[0].headers["authorization"] == f"Bearer {SECRET}"
        assert fake.asked[0].headers["x-api-key"] == "k3y-of-mine"
    printed = ended.stdout + ended.stderr
    for secret in (SECRET, "k3y-of-mine", "qu3ry-s3cret", "sk-env-secret"):
        assert secret not in printed
    assert "Traceback" not in printed


def test_a_basic_password_is_not_printed_in_clear_either() -> None:
    with serving(
        scripted(Answer(200, {"status": "failed", "error": {"message": "user bob:hunter22 is blocked"}}))
    ) as fake:
        ended = until(fake.url, "--header", "Authorization: Basic Ym9iOmh1bnRlcjIy")
    assert ended.returncode == 1
    assert "hunter22" not in ended.stderr
    assert "user *** is blocked" in ended.stderr


def test_a_key_of_the_environment_is_masked() -> None:
    said = Answer(200, OPENAI | {"status": "failed", "errors": {"data": [{"message": f"bad key sk-{SECRET}"}]}})
    with serving(scripted(said)) as fake:
        ended = until(f"{fake.url}/v1/batches/batch_1", "--adapter", "openai", OPENAI_API_KEY=f"sk-{SECRET}")
    assert ended.returncode == 1
    assert "the batch was refused: bad key ***" in ended.stderr


def test_quiet_prints_errors_only() -> None:
    with serving(scripted(RUNNING, DONE)) as fake:
        ended = until(fake.url, "--quiet", *QUICK)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    with serving(scripted(Answer(410))) as fake:
        ended = until(fake.url, "-q")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "410 Gone" in ended.stderr


def test_json_has_everything_and_standard_output_nothing_else() -> None:
    with serving(scripted(Answer(200, {"status": "failed"}))) as fake:
        ended = until(fake.url, "--json")
    assert (ended.returncode, ended.stderr) == (1, "")
    output = json.loads(ended.stdout)
    assert output["evidence"] == {"status": 200, "url": fake.url, "body": {"status": "failed"}}
    assert (output["outcome"], output["interrupted"], output["reason"]) == ("failed", False, "the remote says 'failed'")


def test_a_terminal_of_eighty_columns_shows_looks_elapsed_next_look_and_status() -> None:
    seen = bytearray()

    def answer(_: Asked) -> Answer:
        return DONE if b"next look in" in seen else RUNNING

    with serving(answer) as fake:
        process, terminal = pty.fork()
        if process == 0:
            os.execve(sys.executable, [sys.executable, *UNTIL, f"{fake.url}/ops/7"], environment(TERM="xterm"))  # noqa: S606 - no shell
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        with contextlib.suppress(OSError):
            while piece := os.read(terminal, 65_536):
                seen += piece
        os.close(terminal)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", shown)]
    assert any(re.fullmatch(r"\S GET http://127.0.0.1:\d+/ops/7", line) for line in lines)
    assert any(line.endswith("running, 40 %") and "━" in line for line in lines)
    assert any(re.fullmatch(r"\d looks? · \d+s of 29m · next look in \d+s", line) for line in lines)
    assert any(line.startswith("ready after") for line in lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["example.com/ops/7"], "'example.com/ops/7' is not a URL: write https://example.com/ops/7"),
        (["ftp://example.com/x"], "ftp://example.com/x must be an http or https URL with a host"),
        (["http://[::1/x"], "cannot be read as a URL"),
        (["https://bob:hunter22@example.com/x"], "has a user or password in it; send credentials with"),
        (["http://example.com", "--data", "{year"], "--data is not JSON"),
        (["http://example.com", "--data", "@nowhere.json"], "--data @nowhere.json: No such file or directory"),
        (["http://example.com", "--header", "hunter22"], "--header, number 1, cannot be read: write --header"),
        (["http://example.com", "--header", "A: b\nC: hunter22"], "--header, number 1, cannot be read"),
        (["http://example.com", "--adapter", "soap"], "--adapter 'soap': write one of auto, http202"),
        (["http://example.com", "--method", "BREW"], "--method 'BREW': write one of GET, POST"),
        (["http://example.com", "--timeout", "soon"], "--timeout"),
        (["http://example.com", "--waiter", "TableExists"], "write --model waiters.json --waiter TableExists"),
        (["http://example.com", "--model", "nowhere.json", "--waiter", "A"], "--model nowhere.json: No such file"),
        (["http://example.com/x", "--adapter", "google"], "write https://HOST/v1/operations/NAME"),
        (["http://example.com/x", "--adapter", "azure", "--cancel"], "--cancel: Azure's services have no common way"),
        (["batch_1"], "no key for the service: set OPENAI_API_KEY, or write --header 'Authorization: …'"),
        (["msgbatch_1"], "no key for the service: set ANTHROPIC_API_KEY, or write --header 'x-api-key: …'"),
    ],
)
def test_mistakes_are_one_clear_line_and_1(arguments: list[str], complaint: str, tmp_path: Path) -> None:
    ended = warm_processes.run([*UNTIL, *arguments], cwd=tmp_path, env=environment())
    assert ended.returncode == 1, "2 would say that the time was over"
    assert complaint in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert "hunter22" not in ended.stdout + ended.stderr


NO_NAMES = """
import socket
def getaddrinfo(*args, **kwargs):
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
socket.getaddrinfo = getaddrinfo
"""


def test_a_host_that_does_not_exist_is_one_line_and_1(tmp_path: Path) -> None:
    # What a resolver says to such a name differs from machine to machine.
    (tmp_path / "sitecustomize.py").write_text(NO_NAMES)
    ended = until_anew("https://missing.example/x", PYTHONPATH=str(tmp_path))
    assert ended.returncode == 1
    assert re.fullmatch(
        r"everpoll: failed after 1 look in [\d.]+m?s: missing.example: there is no host of that name\n", ended.stderr
    )


def test_a_header_without_quotes_is_not_repeated() -> None:
    ended = until("http://example.com", "--header", "Authorization:", "Bearer", SECRET)
    assert ended.returncode == 1
    assert "write a header in quotes" in ended.stderr
    assert SECRET not in ended.stderr


def test_certificates_are_checked(certificate: Path) -> None:  # noqa: F811 - the fixture
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with serving(scripted(DONE), tls=tls) as fake:
        ended = until(fake.url)
        assert (ended.returncode, fake.asked) == (1, [])
        assert "its certificate is self-signed, and not trusted" in ended.stderr
        assert answer_of(fake.url, SSL_CERT_FILE=str(certificate))["outcome"] == "ready"


def test_https_of_a_server_without_it_is_one_line() -> None:
    with serving(scripted(DONE)) as fake:
        ended = until(fake.url.replace("http:", "https:"))
    assert ended.returncode == 1
    assert "does not speak TLS" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_credentials_stay_with_the_host_that_was_named() -> None:
    with serving(scripted(DONE)) as other:

        def answer(_: Asked) -> Answer:
            return Answer(202, None, {"Location": f"{other.url}/ops/7"})

        with serving(answer) as fake:
            assert answer_of(fake.url, "--header", f"Authorization: Bearer {SECRET}", *QUICK)["outcome"] == "ready"
            assert _sent(fake) == {f"Bearer {SECRET}"}
        assert _sent(other) == {None}


def _sent(fake: FakeServer) -> set[str | None]:
    return {one.headers.get("authorization") for one in fake.asked}
