"""`everpoll why`: explains the state of a job, a run, a service or a row of an adopted table, with evidence."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from everpoll.cli.session import AsJson, OfApp, Url, console, plain, print_json, with_store
from everpoll.engine.live_workers import ended_here
from everpoll.engine.why import Why
from everpoll.engine.why import why as why_task
from everpoll.engine.why_blocked import predecessors_of, why_blocked
from everpoll.errors import BadInput, TaskNotFound
from everpoll.monitors.checks.assignment import KIND
from everpoll.monitors.service_why import why_service
from everpoll.stores.contract import Store, TaskInfo
from everpoll.watches.why import why as why_run

TaskOrService = Annotated[
    str,
    typer.Argument(help="The id of a task, WATCH:RUN, the name of a service, or TABLE:KEY with --app.", metavar="ID"),
]
ID_DIGITS = 18


def explain(task: TaskOrService, url: Url = None, app: OfApp = None, as_json: AsJson = False) -> None:
    """Explain why a job, a run, a service or a row of an adopted table is in its state."""

    async def use(store: Store) -> Why:
        service = await found_service(store, task)
        if service is not None:
            return await why_service(store, service)
        found = await found_task(store, task)
        if found.blockers and (predecessors := await predecessors_of(store, found)) is not None:
            return why_blocked(found, predecessors)
        losses, workers, queues = await store.losses(found.id), await store.workers(), await store.queues()
        gone, now = ended_here(workers), datetime.now(UTC)
        if found.kind == "watch":
            return why_run(found, workers, queues, losses, now, gone)
        limit = None if found.limit is None else await store.limit(found.limit.key)
        return why_task(found, workers, queues, losses, now, gone, limit)

    answer = _of_row(app, task) or with_store(url, use)
    if as_json:
        print_json(answer)
        return
    out = console()
    out.print(f"[bold]{plain(answer.verdict)}[/]")
    for line in answer.evidence:
        out.print(f"  {plain(line)}", soft_wrap=True)
    if answer.advice:
        out.print(f"[green]→[/] {plain(answer.advice)}")


def _of_row(app: str | None, name: str) -> Why | None:
    """Explain a row of an adopted table; None if the name means something else."""
    if app is None or not {":", "#"}.intersection(name):
        return None
    from everpoll.cli.tables import why_table_row  # noqa: PLC0415 - most answers need no table

    return why_table_row(app, name)


async def found_service(store: Store, name: str) -> TaskInfo | None:
    """Return the task of the service of that name; None if the name means a task or a run."""
    if _is_id(name) and int(name) in await store.info([int(name)]):
        return None
    if ":" in name and await store.find("watch", name) is not None:
        return None
    row = await store.find(KIND, name)
    return row if row is not None and row.ended_at is None else None


async def found_task(store: Store, name: str) -> TaskInfo:
    """Return the task with this number, or of the run WATCH:RUN."""
    if ":" in name:
        run = await store.find("watch", name)
        if run is None:
            raise TaskNotFound(
                f"no run {name} here: it was never begun, or its history was dropped; "
                "for a row of an adopted table add --app MODULE:APP"
            )
        return run
    if not _is_id(name):
        raise BadInput(
            f"no service is called {name!r}: `everpoll services list` lists services. "
            "For a task write its number, for a run WATCH:RUN, as in shell_query:run-42"
        )
    found = await store.info([int(name)])
    if int(name) not in found:
        raise TaskNotFound(f"no task {name} here: it never existed, or its history was dropped")
    return found[int(name)]


def _is_id(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= ID_DIGITS
