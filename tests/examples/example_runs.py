"""What the tests of the examples share: how one is started as a person starts it, and whether there is a browser."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.test_runner.chromium import NoBrowser, chromium

ROOT = Path(__file__).resolve().parents[2]


def why_no_chromium() -> str:
    """Empty where there is one."""
    try:
        chromium()
    except NoBrowser as error:
        return str(error)
    return ""


needs_chromium = pytest.mark.skipif(bool(why_no_chromium()), reason=why_no_chromium())


def run_example(
    name: str, *arguments: str, folder: Path = ROOT, columns: int = 120, **environment: str
) -> subprocess.CompletedProcess[str]:
    """`python -m examples.name …`, from the top of the repository or from another folder."""
    kept = {key: value for key, value in os.environ.items() if key not in {"EVERPOLL_URL", "WORKER_ID", "SCREENSHOTS"}}
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", f"examples.{name}", *arguments],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), "COLUMNS": str(columns), "NO_COLOR": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
