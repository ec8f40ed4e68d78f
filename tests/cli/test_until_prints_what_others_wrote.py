"""`everpoll until` prints what a remote wrote whole, as text, and without secrets: it never obeys it."""

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from cli.test_until_from_the_shell import QUICK, SECRET, answer_of, started, until, until_anew
from everpoll.policy.visible_texts import escaped, visible
from watches.adapters.fake_server import Answer, Asked, scripted, serving

ESCAPES = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31mred\u202e"
SHOWN = r"\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31mred\u202e"


def test_control_characters_are_shown_and_not_obeyed() -> None:
    running = Answer(202, {"status": ESCAPES, "progress": ESCAPES})
    failed = Answer(200, {"status": "failed", "error": {"message": ESCAPES}})
    with serving(scripted(running, failed)) as fake:
        ended = until(fake.url, *QUICK)
    printed = ended.stdout + ended.stderr
    assert ended.returncode == 1
    assert not set(printed) & set("\x1b\x07\x9b\u202e")
    assert f"look 1: {SHOWN}, {SHOWN}" in ended.stdout
    assert SHOWN in ended.stderr


def test_in_json_they_are_escaped_and_mean_the_same() -> None:
    with serving(scripted(Answer(200, {"said": ESCAPES}))) as fake:
        ended = until(fake.url, "--json")
    assert not set(ended.stdout) & set("\x1b\x07\x9b\u202e")
    assert json.loads(ended.stdout)["value"] == {"said": ESCAPES}


def test_lines_and_tabs_are_no_control_characters() -> None:
    assert visible("a\tb\nc\r\x00ü") == "a\tb\nc\\r\\x00ü"
    assert escaped('"\x7f\u2028"') == '"\\u007f\\u2028"'


def test_a_result_beyond_what_a_row_holds_is_given_whole() -> None:
    with serving(scripted(Answer(202, None), Answer(200, {"rows": "x" * 3_000_000}))) as fake:
        output = answer_of(fake.url, *QUICK)
    assert (output["outcome"], len(output["value"]["rows"])) == ("ready", 3_000_000)
    with serving(scripted(Answer(200, {"rows": "x" * 3_000_000}))) as fake:
        output = answer_of(fake.url, "--method", "POST")
    assert (output["outcome"], len(output["value"]["rows"]), output["looks"]) == ("ready", 3_000_000, 0)


@pytest.mark.parametrize("depth", [300, 600, 850])
def test_json_that_is_nested_deep_is_ready(depth: int) -> None:
    with serving(scripted(Answer(200, b'{"a":' * depth + b"1" + b"}" * depth))) as fake:
        ended = until(fake.url, "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.count('"a":') == depth


def test_what_cannot_be_read_is_waited_for_and_said_so() -> None:
    unreadable = Answer(200, b'{"status": "running", "eta": NaN}')
    with serving(scripted(unreadable, Answer(200, {"rows": 3}))) as fake:
        ended = until(fake.url, *QUICK)
    assert ended.returncode == 0
    assert "look 1: 200, the answer cannot be read as JSON" in ended.stdout


@pytest.mark.parametrize(
    "address", ["user:s3cretpw@host.example/p", "host.example/p#access_token=s3cretpw", "a@b?c=s3cretpw"]
)
def test_an_address_that_is_none_is_shown_without_its_secrets(address: str) -> None:
    ended = until(address)
    assert ended.returncode == 1
    assert "is not a URL: write https://" in ended.stderr
    assert "s3cret" not in ended.stderr
    assert "user" not in ended.stderr


@pytest.mark.parametrize("escape", [SECRET.replace("s", r"\u0073"), SECRET.replace("-", r"\u002D")])
def test_a_secret_in_the_escapes_of_json_is_masked(escape: str) -> None:
    inner = json.dumps({"status": "failed", "error": {"message": f'{{"key": "{escape}"}}'}})
    with serving(scripted(Answer(200, inner.encode()))) as fake:
        ended = until(fake.url, "--header", f"Authorization: Bearer {SECRET}")
    assert '{"key": "***"}' in ended.stderr


def test_cookies_and_names_of_fields_are_masked() -> None:
    said = {"status": "failed", "error": {"message": "no session c00kie-of-mine"}, "c00kie-of-mine": 1}
    with serving(scripted(Answer(200, said))) as fake:
        ended = until(fake.url, "--header", "Cookie: theme=dark; sid=c00kie-of-mine", "--json")
    assert "c00kie-of-mine" not in ended.stdout + ended.stderr
    assert json.loads(ended.stdout)["evidence"]["body"]["***"] == 1


def test_a_duration_of_the_shell_is_no_timedelta() -> None:
    ended = until("http://example.com", "--timeout", "soon")
    assert "or a number of seconds" in ended.stderr
    assert "timedelta" not in ended.stderr


AGAIN = """
import socket
def getaddrinfo(*args, **kwargs):
    raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
socket.getaddrinfo = getaddrinfo
"""


def test_a_resolver_in_trouble_is_waited_out(tmp_path: Path) -> None:
    assert socket.EAI_AGAIN != socket.EAI_NONAME
    (tmp_path / "sitecustomize.py").write_text(AGAIN)
    ended = until_anew("https://unknown.example/x", "--timeout", "200ms", *QUICK, PYTHONPATH=str(tmp_path))
    assert ended.returncode == 2
    assert "unknown.example: its name cannot be looked up now" in ended.stderr


def test_a_waiter_may_wait_for_a_busy_remote(tmp_path: Path) -> None:
    """Its acceptors go first: an answer of 503 is what this one is for."""
    acceptors = [{"state": "success", "matcher": "status", "expected": 503}]
    waiter = {"operation": "Describe", "delay": 0, "maxAttempts": 10, "acceptors": acceptors}
    model = tmp_path / "waiters.json"
    model.write_text(json.dumps({"version": 2, "waiters": {"Down": waiter}}))
    with serving(scripted(Answer(200, {}), Answer(503))) as fake:
        output = answer_of(fake.url, "--model", str(model), "--waiter", "Down", "--timeout", "1m", *QUICK)
    assert (output["outcome"], output["looks"]) == ("ready", 2)


def test_a_cancel_is_not_led_to_another_host() -> None:
    """The start names a place at another port: it may be looked at, and nothing is deleted there."""
    asked_elsewhere: list[Asked] = []

    def elsewhere(asked: Asked) -> Answer:
        asked_elsewhere.append(asked)
        os.kill(process.pid, signal.SIGINT)
        return Answer(202)

    with serving(elsewhere) as other, serving(scripted(Answer(202, None, {"Location": f"{other.url}/x"}))) as fake:
        with started(fake.url, "--method", "POST", "--cancel", *QUICK) as process:
            _, said = process.communicate(timeout=60)
        assert process.returncode == 130
        assert {one.method for one in asked_elsewhere} == {"GET"}
        assert "DELETE is not sent" in said
