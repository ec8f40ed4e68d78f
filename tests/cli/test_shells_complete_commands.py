"""bash, zsh and fish complete commands, options and names of the database; a database that is away costs no prompt."""

import asyncio
import logging
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.shell import Shell
from everpoll import Everpoll

EVERPOLL = f"#!{sys.executable}\nfrom everpoll.cli import main\nmain()\n"
LIMIT_S = 60.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder and home, with `everpoll` on the path; zsh and fish are bash by other names."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "everpoll"
    command.write_text(EVERPOLL)
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    for shell in ("zsh", "fish"):
        (tmp_path / "bin" / shell).symlink_to("/bin/bash")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    for variable in ("EVERPOLL_URL", "_EVERPOLL_COMPLETE"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.fixture
def database(folder: Path) -> str:
    async def fill() -> None:
        app = Everpoll(url)

        @app.job(queue="mail")
        async def send() -> None: ...

        @app.job(queue="web")
        async def scrape() -> None: ...

        await send.enqueue()
        await scrape.enqueue()
        await app.close()

    url = f"sqlite:///{folder / 'tasks.db'}"
    asyncio.run(fill())
    return url


def run(script: str, *, name: str = "bash") -> str:
    """Run a script; return what it printed. `true` keeps the shell from being replaced by its last command."""
    command = [name, "-c", f"{script}\ntrue"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    assert ended.stderr == ""
    return ended.stdout


class Completion:
    """`completion("everpoll jobs re")` asks as bash does, inside the test's own process."""

    def __init__(self, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        self._shell = shell
        self._monkeypatch = monkeypatch

    def __call__(self, line: str) -> list[str]:
        with self._monkeypatch.context() as patch:
            patch.setenv("_EVERPOLL_COMPLETE", "complete_bash")
            patch.setenv("COMP_WORDS", line)
            patch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
            ended = self._shell()
        assert (ended.code, ended.err) == (0, "")
        return ended.out.split()


@pytest.fixture
def completion(folder: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Completion]:
    yield Completion(shell, monkeypatch)
    logging.disable(logging.NOTSET)


def test_bash_completes_by_the_script_that_is_printed_for_it(folder: Path) -> None:
    script = """eval "$(_EVERPOLL_COMPLETE=source_bash everpoll)"
COMP_WORDS=(everpoll jobs re) COMP_CWORD=2
_everpoll_completion everpoll
printf '%s\\n' "${COMPREPLY[@]}"
"""
    assert run(script).split() == ["retry", "redrive"]


def test_commands_options_and_states_are_completed(completion: Completion) -> None:
    assert completion("everpoll ma") == ["maintenance"]
    assert completion("everpoll jobs red") == ["redrive"]
    assert completion("everpoll jobs redrive --dr") == ["--dry-run"]
    assert completion("everpoll jobs list --state ca") == ["canceled"]


def test_names_come_from_the_database(
    database: str, completion: Completion, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert completion(f"everpoll jobs list --url {database} --name se") == ["send"]
    assert shell("services", "add", "billing", "https://billing.example.com/health", "--url", database).code == 0
    monkeypatch.setenv("EVERPOLL_URL", database)
    assert completion("everpoll jobs redrive --name ") == ["scrape", "send"]
    assert completion("everpoll queues pause m") == ["mail"]
    assert completion("everpoll services show b") == ["billing"]


def test_zsh_and_fish_are_answered_in_their_own_way(
    folder: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "everpoll jobs red")
    monkeypatch.setenv("_EVERPOLL_COMPLETE", "complete_zsh")
    assert '"redrive":' in shell().out
    monkeypatch.setenv("_EVERPOLL_COMPLETE", "complete_fish")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    assert shell().out.startswith("redrive")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("bash", ".bash_completions/everpoll.sh"),
        ("zsh", ".zfunc/_everpoll"),
        ("fish", ".config/fish/completions/everpoll.fish"),
    ],
)
def test_completion_is_shown_and_installed_for_the_shell_that_asks(folder: Path, name: str, file: str) -> None:
    script = run("everpoll --show-completion", name=name).strip()
    assert "_EVERPOLL_COMPLETE" in script
    assert file in run("everpoll --install-completion", name=name).replace("\n", "")
    assert (folder / file).read_text().strip() == script


def test_without_a_database_nothing_is_offered_and_none_is_made(
    folder: Path, completion: Completion, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert completion("everpoll jobs list --name ") == []
    monkeypatch.setenv("EVERPOLL_URL", "nonsense://x")
    assert completion("everpoll jobs list --name ") == []
    assert sorted(one.name for one in folder.iterdir()) == ["bin"]


def test_a_database_that_does_not_answer_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket takes the connection, and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("EVERPOLL_URL", f"postgresql://u:p@127.0.0.1:{silent.getsockname()[1]}/db")
        began = time.monotonic()
        line = "COMP_WORDS='everpoll jobs list --name x' COMP_CWORD=4"
        assert run(f"{line} _EVERPOLL_COMPLETE=complete_bash everpoll").strip() == ""
        assert time.monotonic() - began < LIMIT_S / 3
