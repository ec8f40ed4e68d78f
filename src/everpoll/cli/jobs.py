"""`everpoll jobs`, `everpoll workers`: what is there, and what became of it."""

from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer
from rich import box
from rich.table import Table
from rich.text import Text

from everpoll.cli.session import AsJson, Url, ago, console, numbered, plain, print_json, tell_more, with_store
from everpoll.engine.why import recorded
from everpoll.errors import BadInput, TaskNotFound
from everpoll.jobs.task import refuse_to_retry_a_run
from everpoll.stores.contract import END_STATES, LIVE_STATES, Store, TaskFilter, TaskInfo, TaskPage, WorkerInfo, encode

STATE_STYLE = {"queued": "cyan", "running": "bold cyan", "done": "green", "failed": "bold red", "canceled": "yellow"}
STATES = (*LIVE_STATES, *END_STATES)
COLUMNS = (
    ("id", True),
    ("name", False),
    ("queue", False),
    ("state", False),
    ("attempt", True),
    ("priority", True),
    ("when", True),
)

NOTHING = {2: "default", 5: "0"}
"""Of these columns, what most jobs have."""

jobs = typer.Typer(name="jobs", help="List, show, cancel and retry jobs.", no_args_is_help=True)

TaskId = Annotated[int, typer.Argument(help="The task's id.", metavar="ID")]


@jobs.command("list")
def list_jobs(
    state: Annotated[str | None, typer.Option(help=f"Only this state: {', '.join(STATES)}.")] = None,
    queue: Annotated[str | None, typer.Option(help="Only this queue.")] = None,
    name: Annotated[str | None, typer.Option(help="Only this job.")] = None,
    limit: Annotated[int, typer.Option(help="How many.", min=1, max=1000)] = 20,
    after: Annotated[int | None, typer.Option(help="Go on after this id.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    if state is not None and state not in STATES:
        raise BadInput(f"--state {state!r}: write one of {', '.join(STATES)}")
    wanted = msgspec.convert({"state": state, "queue": queue, "name": name, "kind": "job"}, TaskFilter)
    after = None if after is None else numbered(after, "the last line of a page says which")
    page: TaskPage = with_store(url, lambda store: store.tasks(wanted, limit, after))
    if as_json:
        print_json(page)
        return
    console().print(_table(page) if page.tasks else "No jobs.")
    tell_more(page.after, page.searched_back_to)


def _table(page: TaskPage) -> Table:
    rows = [_row(task) for task in page.tasks]
    # A column that says nothing would take the room from the errors.
    silent = {column for column, nothing in NOTHING.items() if all(row[column] == nothing for row in rows)}
    has_errors = any(row[-1] for row in rows)
    table = Table(box=box.SIMPLE_HEAD, expand=has_errors)
    # Every column but the last takes the room that it needs; an error gets what is left of the line.
    for number, (column, right) in enumerate(COLUMNS):
        if number in silent:
            continue
        needed = max([len(column), *(len(Text.from_markup(row[number])) for row in rows)])
        table.add_column(
            column,
            justify="right" if right else "left",
            style="bold" if column == "name" else "",
            no_wrap=True,
            min_width=min(needed, 24),
            overflow="ellipsis",
        )
    if has_errors:
        table.add_column("last error", overflow="ellipsis", no_wrap=True, ratio=1)
    for row in rows:
        table.add_row(*(cell for number, cell in enumerate(row[: None if has_errors else -1]) if number not in silent))
    return table


def _row(task: TaskInfo) -> list[str]:
    error = task.errors[-1] if task.errors and task.state != "done" else {}
    text = f"{error.get('type', 'error')}: {error.get('error')}" if error else ""
    when = task.ended_at or (task.started_at if task.state == "running" else task.due_at)
    return [
        str(task.id),
        plain(task.name),
        plain(task.queue),
        f"[{STATE_STYLE[task.state]}]{task.state}[/]",
        str(task.attempt),
        str(task.priority),
        ago(when),
        plain(text),
    ]


@jobs.command("show")
def show(task_id: TaskId, url: Url = None, as_json: AsJson = False) -> None:
    """Show everything about one job: every decision about it, every attempt's error."""
    task = with_store(url, lambda store: _found(store, task_id))
    if as_json:
        print_json(msgspec.structs.asdict(task) | {"errors": task.errors})
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for field in task.__struct_fields__:
        value = getattr(task, field)
        if field == "trail" or value is None:
            continue
        shown = _shown(field, value)
        table.add_row(field, f"[{STATE_STYLE[task.state]}]{shown}[/]" if field == "state" else plain(shown))
    out = console()
    out.print(table)
    if task.trail:
        out.print("\n[bold]what happened[/]")
    for entry in task.trail:
        out.print(plain(recorded(entry)), style="red" if "error" in entry else "", soft_wrap=True)
        if entry.get("traceback"):
            out.print(plain(str(entry["traceback"]).rstrip()), style="dim", soft_wrap=True)


def _shown(field: str, value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S} UTC ({ago(value)})"
    if field == "incarnation":
        return f"{value:016x}"
    if isinstance(value, str | int):
        return str(value)
    if field == "args" and isinstance(value, dict) and value.keys() == {"args", "kwargs"}:
        named = [f"{name}={encode(one)}" for name, one in value["kwargs"].items()]
        return ", ".join([*map(encode, value["args"]), *named]) or "none"
    return encode(value)


@jobs.command("cancel")
def cancel(task_id: TaskId, url: Url = None) -> None:
    """End a queued job, or ask the worker of a running one to."""

    async def use(store: Store) -> str:
        task = await _found(store, task_id)
        if task.ended_at is not None:
            raise BadInput(f"task {task_id} has ended already: it is {task.state}")
        return str(await store.cancel(task_id, encode({"what": "cancel", "why": "canceled on the command line"})))

    state = with_store(url, use)
    typer.echo(f"task {task_id} is {state}" + (": its worker was asked to end it" if state == "running" else ""))


@jobs.command("retry")
def retry(task_id: TaskId, url: Url = None) -> None:
    """Put an ended job back in the queue, with fresh attempts."""

    async def use(store: Store) -> None:
        task = await _found(store, task_id)
        refuse_to_retry_a_run(task)
        if not await store.retry(task_id, encode({"what": "requeue", "why": "retried on the command line"})):
            reason = "it has not ended" if task.ended_at is None else f"its key {task.key!r} has a live task"
            raise BadInput(f"task {task_id} cannot be retried: {reason}")

    with_store(url, use)
    typer.echo(f"task {task_id} is queued again")


def workers(url: Url = None, as_json: AsJson = False) -> None:
    """List the workers: alive, silent, and those that ended within a day."""
    found: list[WorkerInfo] = with_store(url, lambda store: store.workers())
    if as_json:
        print_json(found)
        return
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("worker", "state", "host", "pid", "queues", "running", "heartbeat", "started"):
        # Names are for copying: rather two lines than three dots.
        table.add_column(column, overflow="fold")
    for worker in sorted(found, key=lambda one: (not one.is_alive, one.label)):
        state = (
            "[green]alive[/]" if worker.is_alive else "[dim]ended[/]" if worker.stopped_at else "[bold red]silent[/]"
        )
        table.add_row(
            plain(worker.label),
            state,
            plain(worker.host),
            str(worker.pid),
            plain(", ".join(worker.queues)),
            f"{worker.running} of {worker.slots}",
            ago(worker.beat_at),
            ago(worker.started_at),
        )
    console().print(table if found else "No workers.")


async def _found(store: Store, task_id: int) -> TaskInfo:
    found = await store.info([task_id])
    if task_id not in found:
        raise TaskNotFound(f"no task {task_id} here: it never existed, or its history was dropped")
    return found[task_id]
