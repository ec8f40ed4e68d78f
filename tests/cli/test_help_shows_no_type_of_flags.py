"""The help of a command shows the type of an option's value, and none beside a flag: a flag takes no value."""

import re
import subprocess
import sys

import pytest


@pytest.mark.parametrize("command", ["run", "until"])
def test_a_flag_has_no_type(command: str) -> None:
    line = [sys.executable, "-m", "everpoll", command, "--help"]
    help_text = subprocess.run(line, capture_output=True, text=True, check=True, env={"COLUMNS": "120"}).stdout
    lines = {found[1]: rest for rest in help_text.splitlines() if (found := re.search(r"(--[a-z-]+)", rest))}
    flags = {"run": ("--verbose", "--serve"), "until": ("--json", "--quiet", "--cancel")}[command]
    assert [flag for flag in flags if re.search(r"bool", lines[flag], re.IGNORECASE)] == []
