"""`everpoll --help` and short commands load neither a client nor a driver that they do not use."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer

from everpoll.cli.main import COMMANDS, commands

HEAVY = ("aiohttp", "asyncpg", "boto3", "httptools", "smtplib", "yaml", "everpoll.app", "everpoll.http")
LOADED = """
import sys
from everpoll.cli import main
sys.argv = ["everpoll", *sys.argv[1:]]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
print("loaded:", *sys.modules)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    loaded(tmp_path, "migrate")
    return tmp_path


def loaded(folder: Path, *arguments: str) -> set[str]:
    """Run a command, and return the modules that are loaded at its end."""
    command = [sys.executable, "-c", LOADED, *arguments]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    return set(ended.stdout.rpartition("loaded: ")[2].split())


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["jobs", "--help"], ["jobs", "list"], ["workers"]], ids=" ".join
)
def test_a_short_command_loads_no_client_and_no_driver(folder: Path, arguments: list[str]) -> None:
    found = loaded(folder, *arguments)
    assert "everpoll.cli.main" in found
    assert sorted(found & set(HEAVY)) == []


@pytest.mark.parametrize(
    "arguments", [["services", "list"], ["services", "incidents"], ["run", "--help"]], ids=" ".join
)
def test_commands_about_services_load_no_http_client(folder: Path, arguments: list[str]) -> None:
    assert sorted(loaded(folder, *arguments) & {"aiohttp", "asyncpg", "yaml"}) == []


def test_the_list_of_commands_says_what_each_command_says() -> None:
    """The list is printed without the commands; their own help must say the same."""
    listed = typer.main.get_command(commands()).commands  # type: ignore[attr-defined]  # typer's own copy of click
    real = typer.main.get_command(commands(*COMMANDS)).commands  # type: ignore[attr-defined]
    assert {name: one.help for name, one in listed.items()} == {name: one.help for name, one in real.items()}
    assert list(listed) == list(real)
