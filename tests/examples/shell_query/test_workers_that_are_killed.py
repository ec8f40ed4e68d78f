"""Real processes, a real file, real sockets: a worker is killed in the middle, and another one ends what it began."""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from everpoll import Everpoll
from examples.shell_query.app import ShellQueries
from examples.shell_query.client import CloudClient
from examples.shell_query.demo import SystemClock
from examples.shell_query.fates import Fate
from examples.shell_query.figures import Figures
from examples.shell_query.http_server import served
from examples.shell_query.marketing_cloud import TOKEN, MarketingCloud
from examples.shell_query.runs import Runs, ShellQuery
from shell_query.stage import key_of

ROOT = Path(__file__).resolve().parents[3]
SPEED = 20.0
NAMES = [f"r{number}" for number in range(12)]
PATIENCE_S = 60.0


async def worker(folder: Path, url: str, until: AsyncExitStack) -> asyncio.subprocess.Process:
    command = ("-c", "from everpoll.cli import main; main()", "run", "examples.shell_query.worker:app")
    environment = os.environ | {
        "EVERPOLL_URL": f"sqlite:///{folder}/everpoll.db",
        "MARKETING_CLOUD_URL": url,
        "MARKETING_CLOUD_TOKEN": TOKEN,
        "SHELL_QUERY_RUNS": str(folder / "business.db"),
        "SHELL_QUERY_SPEED": str(SPEED),
    }
    null = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=ROOT, env=environment, stdout=null, stderr=null
    )

    async def ended() -> None:
        if process.returncode is None:
            process.kill()
        await process.wait()

    until.push_async_callback(ended)
    return process


async def test_what_a_killed_worker_began_is_ended_by_another_and_started_once(tmp_path: Path) -> None:
    cloud = MarketingCloud(SystemClock(), speed=SPEED)
    runs = Runs(tmp_path / "business.db")
    app = Everpoll(f"sqlite:///{tmp_path}/everpoll.db")
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as until:
        url = await until.enter_async_context(served(cloud))
        queries = ShellQueries(app, CloudClient(url, TOKEN), runs, Figures.at_speed(SPEED))
        until.push_async_callback(app.close)
        begun = []
        for name in NAMES:
            cloud.fates[key_of(name)] = Fate(runs_s=60)
            op = ShellQuery(run_id=name, sql_text="SELECT 1")
            await runs.add(op)
            begun.append(await queries.watch.begin(op, id=name))
        doomed = await worker(tmp_path, url, until)
        while sum(cloud.records.starts.values()) < len(NAMES) // 2:
            assert doomed.returncode is None, "the worker ended before it was killed"
            await asyncio.sleep(0.01)
        doomed.kill()
        heir = await worker(tmp_path, url, until)
        while cloud.leaked or sum(cloud.records.deletes.values()) < 2 * len(NAMES):
            assert heir.returncode is None, "the second worker ended too"
            await asyncio.sleep(0.05)
        for run in begun:
            await run.result()
    assert {key: cloud.records.starts[key] for key in map(key_of, NAMES)} == {key_of(name): 1 for name in NAMES}
    assert cloud.records.deleted_while_running == []
