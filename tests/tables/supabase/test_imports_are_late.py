"""The HTTP library is imported when a table over HTTPS is adopted, and not before."""

import subprocess
import sys


def test_nothing_of_it_is_imported_by_others() -> None:
    imports = "import sys, everpoll, everpoll.tables.urls; print('aiohttp' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", imports], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "False"
