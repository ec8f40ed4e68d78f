"""The demo, as a person or a script starts it: a process of its own, ended by itself or by a signal."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

import warm_processes
from everpoll.cli.demo import has_browser
from everpoll.cli.demo_formats import FORMATS

EVERPOLL = ["-c", "from everpoll.cli import main; main()"]
LOOPS = ["prices", "orders", "inbox", "billing", "weather", "countdown", "viewers"]


def everpoll(*arguments: str) -> warm_processes.Completed[str]:
    return warm_processes.run([*EVERPOLL, *arguments])


def test_for_ends_by_itself_and_prints_a_summary() -> None:
    ended = everpoll("demo", "--for", "300ms")
    assert ended.returncode == 0, ended.stderr
    assert "what it shows" in ended.stdout
    assert all(name in ended.stdout for name in LOOPS)
    assert "services: looks: " in ended.stdout
    assert "watches: " in ended.stdout
    assert "rows of a table: " in ended.stdout


def test_json_prints_one_object_for_scripts() -> None:
    ended = everpoll("demo", "--for", "300ms", "--json")
    answer = json.loads(ended.stdout)
    assert [loop["name"] for loop in answer["loops"]] == LOOPS
    # `prices` runs at once, so a demo of any length has shown something.
    assert answer["loops"][0]["runs"] >= 1
    # The first looks are spread over five seconds.
    assert set(answer["looks"]) <= {"archive", "backup", "port", *FORMATS}


def read_until(terminal: int, wanted: str) -> str:
    seen = ""
    while wanted not in seen:
        seen += os.read(terminal, 4096).decode(errors="replace")
    return seen


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_terminal_sees_a_live_table_and_a_signal_ends_it_with_the_summary(sent: signal.Signals) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, *EVERPOLL, "demo", "--no-browser"], stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL
    )
    try:
        table = read_until(ours, "viewers")
        assert "multiplier" in table
        process.send_signal(sent)
        read_until(ours, "what it shows")
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["demo", "--for", "0s"], "--for"),
        (["demo", "--for", "5 parsecs"], "parsecs"),
    ],
)
def test_a_bad_duration_is_explained_in_one_line(arguments: Sequence[str], complaint: str) -> None:
    ended = everpoll(*arguments)
    assert ended.returncode == 2
    assert complaint in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_the_version_is_shown() -> None:
    from everpoll import __version__  # noqa: PLC0415 - next to what it is compared with

    assert everpoll("--version").stdout == f"everpoll {__version__}\n"


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({}, "linux", False),
        ({}, "win32", True),
        ({}, "darwin", True),
        ({"SSH_CONNECTION": "10.0.0.1 2 10.0.0.2 22"}, "darwin", False),
        ({"DISPLAY": ":0", "CI": "true"}, "linux", False),
        ({"CI": "1"}, "win32", False),
    ],
)
def test_a_browser_is_opened_only_where_a_person_sees_it(
    environ: dict[str, str], platform: str, expected: bool
) -> None:
    assert has_browser(environ, platform) is expected
