"""Without the driver of Postgres, an app and a table say which package is missing, and commands that bring it."""

import subprocess
import sys

import pytest

WITHOUT = """
import sys
sys.modules["asyncpg"] = None
from everpoll import Everpoll
from everpoll.tables import Table
try:
    {made}
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    "made",
    [
        'Everpoll("postgresql://shop@db/shop")',
        'Everpoll("memory://").table(Table("audits"), url="postgresql://shop@db/shop")',
    ],
)
def test_the_package_and_how_to_install_it(made: str) -> None:
    script = WITHOUT.format(made=made)
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.startswith("BadInput ")
    assert "needs the package asyncpg, which is not installed: pip install asyncpg, or" in said
    assert "pip install 'path/to/the/clone[postgres]'" in said
    assert "'everpoll[" not in said, "no package index has it"


def test_the_extra_of_the_http_api_is_named() -> None:
    """It needs several packages, so the extra is what to install, from the clone."""
    script = WITHOUT.format(made='sys.modules["starlette"] = None; Everpoll("memory://").asgi()')
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.startswith("BadInput the HTTP API needs the package starlette")
    assert "pip install 'path/to/the/clone[server]'" in said
