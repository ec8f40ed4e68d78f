"""`everpoll why`: why a job or a run is where it is, with what was recorded when decisions were made."""

import os
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from everpoll.cli.session import AsJson, Url, console, plain, print_json, with_store
from everpoll.engine.why import Why
from everpoll.engine.why import why as why_task
from everpoll.errors import BadInput, TaskNotFound
from everpoll.stores.contract import Store, TaskInfo, WorkerInfo
from everpoll.watches.why import why as why_run

TaskOrRun = Annotated[str, typer.Argument(help="A task's id, or WATCH:RUN for a run of a watch.", metavar="ID")]
ID_DIGITS = 18


def explain(task: TaskOrRun, url: Url = None, as_json: AsJson = False) -> None:
    """Say why a task is where it is, with the evidence."""

    async def use(store: Store) -> Why:
        found = await found_task(store, task)
        answer = why_run if found.kind == "watch" else why_task
        losses, workers = await store.losses(found.id), await store.workers()
        return answer(found, workers, await store.queues(), losses, datetime.now(UTC), gone_here(workers))

    answer = with_store(url, use)
    if as_json:
        print_json(answer)
        return
    out = console()
    out.print(f"[bold]{plain(answer.verdict)}[/]")
    for line in answer.evidence:
        out.print(f"  {plain(line)}", soft_wrap=True)
    if answer.advice:
        out.print(f"[green]→[/] {plain(answer.advice)}")


def gone_here(workers: Sequence[WorkerInfo]) -> set[int]:
    """The incarnations of workers that signed on from this host and whose process does not exist any more."""
    host = socket.gethostname()
    return {one.incarnation for one in workers if one.host == host and not _exists(one.pid)}


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's, or not to be asked: it may well be there
    return True


async def found_task(store: Store, name: str) -> TaskInfo:
    """The task that this means: the number of any task, or the watch and the id of a run."""
    if ":" in name:
        run = await store.find("watch", name)
        if run is None:
            raise TaskNotFound(f"no run {name} here: it was never begun, or its history was dropped")
        return run
    if not (name.isascii() and name.isdigit() and len(name) <= ID_DIGITS):
        raise BadInput(f"{name!r} is no task's id: write its number, or WATCH:RUN, as in shell_query:run-42")
    found = await store.info([int(name)])
    if int(name) not in found:
        raise TaskNotFound(f"no task {name} here: it never existed, or its history was dropped")
    return found[int(name)]
