"""mypy and pyright flag wrong calls of `enqueue` and wrong uses of results, and nothing that is right."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CALLS = HERE / "typed_calls.py"
SOURCE = HERE.parents[1] / "src"
LIMIT_S = 300


def wrong_lines() -> list[int]:
    lines = CALLS.read_text().splitlines()
    return [number for number, line in enumerate(lines, 1) if line.endswith("# wrong")]


def run(*command: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ended.returncode == 1, f"{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def by_mypy() -> list[int]:
    said = run("mypy", "--no-error-summary", "--no-pretty", "--config-file=", "--strict", str(CALLS))
    return sorted({int(one[1]) for one in re.finditer(r"^\S*typed_calls\.py:(\d+): error:", said, re.MULTILINE)})


def by_pyright(folder: Path) -> list[int]:
    """In strict mode, which looks at the source of everpoll as that of any library that has its types inside."""
    project = {
        "include": [CALLS.name],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "venvPath": str(Path(sys.prefix).parent),
        "venv": Path(sys.prefix).name,
        "extraPaths": [str(SOURCE)],
    }
    (folder / CALLS.name).write_text(CALLS.read_text())
    config = folder / "pyrightconfig.json"
    config.write_text(json.dumps(project))
    found = json.loads(run("pyright", "--outputjson", "--project", str(config)))["generalDiagnostics"]
    return sorted({one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"})


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_wrong_calls_are_flagged_and_right_ones_are_not(checker: str, tmp_path: Path) -> None:
    flagged = by_mypy() if checker == "mypy" else by_pyright(tmp_path)
    assert flagged == wrong_lines()
