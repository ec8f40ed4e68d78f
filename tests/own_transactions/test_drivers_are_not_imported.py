"""Drivers and frameworks that a program does not use are not imported, whatever connections everpoll accepts."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sqlite3, sys
from everpoll import Everpoll

app = Everpoll(f"sqlite:///{sys.argv[1]}")

@app.job()
def f(number: int) -> None: ...

assert "everpoll.drivers.callers.sqlite" not in sys.modules
f.sync.enqueue(1)
connection = sqlite3.connect(sys.argv[1])
task = f.sync.enqueue(2, connection=connection)
connection.commit()
assert task.info().state == "queued"
app.sync.close()
print(sorted(name for name in ("asyncpg", "psycopg", "sqlalchemy", "django", "aiosqlite") if name in sys.modules))
"""


def test_a_program_of_sqlite3_imports_no_other_driver(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "tasks.db")], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
