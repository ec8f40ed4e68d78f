"""The command line inside the test's own process: much quicker than a shell, with the same arguments and exit codes."""

import json
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from everpoll.cli import main


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """What was printed, however it was wrapped."""
        return " ".join(self.out.split())


class Shell:
    """`shell("check", url)` runs a command and returns what it printed, and its exit code."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        for variable in ("FORCE_COLOR", "EVERPOLL_URL", "TTY_COMPATIBLE"):
            monkeypatch.delenv(variable, raising=False)
        self.columns(100)

    def columns(self, number: int) -> None:
        self._monkeypatch.setenv("COLUMNS", str(number))

    def __call__(self, *arguments: str) -> Ended:
        self._monkeypatch.setattr(sys, "argv", ["everpoll", *arguments])
        self._capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        printed = self._capsys.readouterr()
        return Ended(code, printed.out, printed.err)

    def json(self, *arguments: str, code: int = 0) -> Any:
        ended = self(*arguments, "--json")
        assert ended.code == code, ended.out + ended.err
        return json.loads(ended.out)


@pytest.fixture(name="shell")
def shell_fixture(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys)
