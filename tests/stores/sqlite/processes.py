"""Other processes: a piece of asynchronous code, run by an interpreter of its own on the same file."""

import subprocess
import sys
from textwrap import dedent, indent

OPENING = """
import asyncio, sys
from everpoll.stores.contract import *
from everpoll.stores.sqlite import SqliteStore

def say(*words):
    print(*words, flush=True)

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
{body}
    await store.close()

asyncio.run(main())
"""


def start(url: str, body: str) -> "subprocess.Popen[str]":
    """Start it; `say` writes a line to us, and its standard input is ours to write to."""
    code = OPENING.format(body=indent(dedent(body), "    "))
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code, url], stdin=pipe, stdout=pipe, text=True)


def finish(*processes: "subprocess.Popen[str]") -> list[list[str]]:
    """Wait for them; the lines that each has said."""
    said = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return said
