"""Without the extra, whoever adopts a table over HTTPS is told what to install; nobody else notices."""

import subprocess
import sys

WITHOUT = """
import sys
sys.modules["aiohttp"] = None
from everpoll import Everpoll
from everpoll.tables import Table
app = Everpoll("memory://")
app.table(Table("jobs"), url="sqlite:///own.db")
try:
    app.table(Table("audits"), url="https://xyz.supabase.co", token="a key")
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_missing_extra_is_named() -> None:
    said = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "BadInput a table over HTTPS needs the extra: pip install 'everpoll[supabase]'"


def test_nothing_of_it_is_imported_by_others() -> None:
    imports = "import sys, everpoll, everpoll.tables.urls; print('aiohttp' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", imports], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "False"
