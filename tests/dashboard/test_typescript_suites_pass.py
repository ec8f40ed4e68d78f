"""The loop in TypeScript: its own suites, run by Node's test runner."""

import subprocess

import pytest

from build_dashboard import ROOT
from dashboard.built import node

FOLDER = ROOT / "dashboard" / "src"
SUITES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.test.ts"))
LIMIT_S = 300.0


@pytest.mark.parametrize("suite", SUITES)
def test_suite(suite: str) -> None:
    """Every test of the suite passes."""
    options = ["--disable-warning=ExperimentalWarning", "--test", "--test-reporter=spec"]
    command = [str(node().program), *options, suite]
    ended = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr
    assert "tests 0\n" not in ended.stdout, "the suite is empty"


def test_there_are_suites() -> None:
    """The vectors, the mutants and the shell are among them."""
    assert {f"loop/tests/{name}.test.ts" for name in ("conformance", "mutants", "shell", "page")} <= set(SUITES)
