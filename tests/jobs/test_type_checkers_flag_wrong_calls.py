"""mypy and pyright flag wrong uses of every front, and nothing that is right."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = ("typed_calls.py", "typed_fronts.py")
SOURCE = HERE.parents[1] / "src"
LIMIT_S = 300


def wrong_lines() -> list[tuple[str, int]]:
    return [
        (name, number)
        for name in FILES
        for number, line in enumerate((HERE / name).read_text().splitlines(), 1)
        if line.endswith("# wrong")
    ]


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


def by_mypy() -> list[tuple[str, int]]:
    files = [str(HERE / name) for name in FILES]
    said = run("mypy", "--no-error-summary", "--no-pretty", "--config-file=", "--strict", *files)
    found = re.finditer(r"^\S*(typed_\w+\.py):(\d+): error:", said, re.MULTILINE)
    return sorted({(one[1], int(one[2])) for one in found})


def by_pyright(folder: Path) -> list[tuple[str, int]]:
    """In strict mode, which looks at the source of everpoll as that of any library that has its types inside."""
    project = {
        "include": list(FILES),
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "venvPath": str(Path(sys.prefix).parent),
        "venv": Path(sys.prefix).name,
        "extraPaths": [str(SOURCE)],
    }
    for name in FILES:
        (folder / name).write_text((HERE / name).read_text())
    config = folder / "pyrightconfig.json"
    config.write_text(json.dumps(project))
    found = json.loads(run("pyright", "--outputjson", "--project", str(config)))["generalDiagnostics"]
    errors = [one for one in found if one["severity"] == "error"]
    return sorted({(Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in errors})


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_wrong_calls_are_flagged_and_right_ones_are_not(checker: str, tmp_path: Path) -> None:
    flagged = by_mypy() if checker == "mypy" else by_pyright(tmp_path)
    assert flagged == wrong_lines()
