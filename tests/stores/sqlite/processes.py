"""Other processes: a piece of asynchronous code, run in a process of its own on the same file."""

from textwrap import dedent, indent

from warm_processes import PIPE, WarmProcess

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


def start(url: str, body: str) -> WarmProcess:
    """Start it; `say` writes a line to us, and its standard input is ours to write to."""
    code = OPENING.format(body=indent(dedent(body), "    "))
    return WarmProcess(["-c", code, url], stdin=PIPE, stdout=PIPE)


def finish(*processes: WarmProcess) -> list[list[str]]:
    """Wait for them; the lines that each has said."""
    said = [process.communicate(timeout=120)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return said
