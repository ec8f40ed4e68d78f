"""A process that was forked off a worker, as `multiprocessing` does, uses the same app; neither disturbs the other."""

import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_S = 60.0
SCRIPT = """
import asyncio, multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
from everpoll import Everpoll

app = Everpoll(sys.argv[1])


@app.job()
def double(number):
    return number * 2


@app.job()
async def hand_on(number):
    return await asyncio.get_running_loop().run_in_executor(pool, child, number)


def child(number):
    async def main():
        try:
            return await (await double.enqueue(number)).result(timeout="20s")
        finally:
            await app.close()

    return asyncio.run(main())


async def main():
    global pool
    async with app:
        print(await (await double.enqueue(1)).result(timeout="20s"))
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
            for number in (2, 3):
                print(await (await hand_on.enqueue(number)).result(timeout="20s"))
        print(await (await double.enqueue(4)).result(timeout="20s"))


asyncio.run(main())
"""


def run(url: str) -> list[str]:
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, url]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


def test_on_sqlite(tmp_path: Path) -> None:
    assert run(f"sqlite:///{tmp_path / 'fork.db'}") == ["2", "4", "6", "8"]


@pytest.mark.usefixtures("postgres_url")
def test_on_postgres(postgres_url: str) -> None:
    assert run(postgres_url) == ["2", "4", "6", "8"]
