"""`everpoll jobs`, `everpoll workers`: list, show and change jobs, and list workers."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich import box
from rich.table import Table
from rich.text import Text

from everpoll.cli.completion import job_states
from everpoll.cli.jobs_in_bulk import (
    Canceled,
    DryRun,
    Error,
    Name,
    QueueOption,
    Since,
    Yes,
    cancel_many,
    causes,
    redrive,
)
from everpoll.cli.session import (
    AsJson,
    OfApp,
    Url,
    actor,
    ago,
    console,
    numbered,
    plain,
    print_continuation,
    print_json,
    with_store,
)
from everpoll.engine.actors import action
from everpoll.engine.live_workers import ended_here
from everpoll.engine.why import limit_text, recorded
from everpoll.engine.work import WorkRegistry
from everpoll.errors import BadInput, TaskNotFound, WrongState
from everpoll.jobs import Jobs
from everpoll.jobs.causes import instant_of
from everpoll.jobs.groups import GroupInfo, group_info
from everpoll.jobs.task import refuse_to_retry_a_run
from everpoll.stores.contract import (
    END_STATES,
    LIVE_STATES,
    Limit,
    Store,
    TaskFilter,
    TaskInfo,
    TaskPage,
    WorkerInfo,
    encode,
)

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

WIDE = 110
"""The terminal width from which the list of workers has all its columns."""
NOTHING = {2: "default", 5: "0"}
"""The usual values of these columns: a column with only usual values is left out."""
USUALLY_ZERO = frozenset({"priority", "rescues", "cancel_requested", "blockers"})
"""Fields that `show` prints only where they are not zero or false."""
FIRST_VERSION = ("version", 1)
"""The usual version: `show` prints only another one."""

jobs = typer.Typer(name="jobs", help="List, show, cancel, retry and delete jobs.", no_args_is_help=True)

TaskId = Annotated[int, typer.Argument(help="The task's id.", metavar="ID")]


@jobs.command("list")
def list_jobs(  # noqa: PLR0913, PLR0917 - the options of the command
    state: Annotated[
        str | None, typer.Option(help=f"Only this state: {', '.join(STATES)}.", autocompletion=job_states)
    ] = None,
    queue: QueueOption = None,
    name: Name = None,
    error: Error = None,
    ended: Annotated[
        str | None, typer.Option("--ended-within", help="Only jobs that ended within this time, such as 2h.")
    ] = None,
    limit: Annotated[int, typer.Option(help="How many at most.", min=1, max=1000)] = 20,
    after: Annotated[int | None, typer.Option(help="Continue after this id.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    if state is not None and state not in STATES:
        raise BadInput(f"--state {state!r}: write one of {', '.join(STATES)}")
    given = {"state": state, "queue": queue, "name": name, "error": error, "kind": "job"}
    wanted = msgspec.convert(given | {"ended_since": instant_of(ended, "--ended-within")}, TaskFilter)
    after = None if after is None else numbered(after, "the last line of a page says which")
    page: TaskPage = with_store(url, lambda store: store.tasks(wanted, limit, after))
    if as_json:
        print_json(page.tasks)
        return
    console().print(_table(page) if page.tasks else "No jobs.")
    print_continuation(page.after, page.searched_back_to)


def _table(page: TaskPage) -> Table:
    rows = [_row(task) for task in page.tasks]
    # Leave out columns without information, so that errors get their room.
    silent = {column for column, nothing in NOTHING.items() if all(row[column] == nothing for row in rows)}
    has_errors = any(row[-1] for row in rows)
    table = Table(box=box.SIMPLE_HEAD, expand=has_errors)
    # Every column but the last takes the room that it needs; the error gets the rest of the line.
    for number, (column, right) in enumerate(COLUMNS):
        if number in silent:
            continue
        needed = max([len(column), *(len(Text.from_markup(row[number], emoji=False)) for row in rows)])
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
    """Show one job, with its decisions and the error of each attempt."""
    found, group = with_store(url, lambda store: _with_group(store, task_id))
    task = _safe(found)
    if as_json:
        print_json(msgspec.structs.asdict(task) | {"errors": task.errors, "members": group and _members(group)})
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for field in task.__struct_fields__:
        value = getattr(task, field)
        if field == "trail" or value is None or (field in USUALLY_ZERO and not value):
            continue
        if (field, value) == FIRST_VERSION:
            continue
        shown = _shown(field, value)
        table.add_row(field, f"[{STATE_STYLE[task.state]}]{shown}[/]" if field == "state" else plain(shown))
    if group is not None:
        counts = [(state, getattr(group, state)) for state in STATE_STYLE]
        states = ", ".join(f"{count} {state}" for state, count in counts if count)
        table.add_row("members", f"{group.ended} of {group.total} ended" + (f": {states}" if states else ""))
    out = console()
    out.print(table)
    if task.trail:
        out.print("\n[bold]what happened[/]")
    for entry in task.trail:
        out.print(plain(recorded(entry)), style="red" if "error" in entry else "", soft_wrap=True)
        if entry.get("traceback"):
            out.print(plain(str(entry["traceback"]).rstrip()), style="dim", soft_wrap=True)


async def _with_group(store: Store, task_id: int) -> tuple[TaskInfo, GroupInfo | None]:
    task = await _found(store, task_id)
    return task, await group_info(store, task)


def _members(group: GroupInfo) -> dict[str, int]:
    names = ("total", "ended", "queued", "running", "done", "failed", "canceled")
    return {name: getattr(group, name) for name in names}


def _safe(task: TaskInfo) -> TaskInfo:
    """Return the task without secrets: the task of a service holds headers, addresses and tokens."""
    # Imported here: only `show` needs the packages of services and of HTTP, and they take most of the time of a start.
    from everpoll.http.stored_secrets import without_secrets  # noqa: PLC0415
    from everpoll.monitors.checks.assignment import KIND as SERVICE  # noqa: PLC0415
    from everpoll.monitors.safe_definition import safe_arguments  # noqa: PLC0415

    if task.kind != SERVICE:
        return task
    memory = None if task.memory is None else dict(task.memory)
    if memory is not None:
        memory.pop("fetch", None)
    return msgspec.structs.replace(task, args=safe_arguments(task.args), memory=without_secrets(memory))


def _shown(field: str, value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S} UTC ({ago(value)})"
    if field == "incarnation":
        return f"{value:016x}"
    if isinstance(value, str | int):
        return str(value)
    if isinstance(value, Limit):
        return limit_text(value)
    if field == "args" and isinstance(value, dict) and value.keys() == {"args", "kwargs"}:
        named = [f"{name}={encode(one)}" for name, one in value["kwargs"].items()]
        return ", ".join([*map(encode, value["args"]), *named]) or "none"
    return encode(value)


@jobs.command("cancel")
def cancel(  # noqa: PLR0913, PLR0917 - the options of the command
    task_id: Annotated[
        int | None, typer.Argument(help="The id of the task. Without it: at least one filter.", metavar="[ID]")
    ] = None,
    name: Name = None,
    queue: QueueOption = None,
    error: Error = None,
    since: Since = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Cancel one job by its id, or all live jobs that match the filters."""
    filters = (name, queue, error, since)
    if (task_id is None) == all(one is None for one in filters):
        raise BadInput("write the id of a task, or at least one of --name, --queue, --error and --since, not both")
    if task_id is not None:
        _cancel_one(task_id, url, dry_run=dry_run, as_json=as_json)
        return
    since_at = instant_of(since)
    wanted = [
        TaskFilter(state=state, kind="job", name=name, queue=queue, error=error, since=since_at)
        for state in LIVE_STATES
    ]
    cancel_many(wanted, url, dry_run=dry_run, yes=yes, as_json=as_json)


def _cancel_one(task_id: int, url: str | None, *, dry_run: bool, as_json: bool) -> None:
    async def use(store: Store) -> str:
        task = await _found(store, task_id)
        if task.ended_at is not None:
            raise BadInput(f"task {task_id} has ended already: it is {task.state}")
        if dry_run:
            return task.state
        return str(await store.cancel(task_id, action("cancel", actor(), "canceled on the command line")))

    state = with_store(url, use)
    if as_json:
        print_json(Canceled(matched=1, moved=1, skipped=0, reasons={}, dry_run=dry_run))
        return
    if dry_run:
        typer.echo(f"task {task_id} would be canceled: it is {state}")
        return
    typer.echo(f"task {task_id} is {state}" + (": its worker was asked to end it" if state == "running" else ""))


@jobs.command("retry")
def retry(task_id: TaskId, url: Url = None) -> None:
    """Put an ended job back in the queue, with fresh attempts."""

    async def use(store: Store) -> None:
        task = await _found(store, task_id)
        refuse_to_retry_a_run(task)
        if not await store.retry(task_id, action("retry", actor(), "retried on the command line")):
            reason = "it has not ended" if task.ended_at is None else f"its key {task.key!r} has a live task"
            raise BadInput(f"task {task_id} cannot be retried: {reason}")

    with_store(url, use)
    typer.echo(f"task {task_id} is queued again")


@jobs.command("run-now")
def run_now(task_id: TaskId, url: Url = None) -> None:
    """Make a queued job due now; its delay or backoff ends."""

    async def use(store: Store) -> None:
        async def store_of() -> Store:
            return store

        await Jobs(WorkRegistry(), store_of).task(task_id).run_now(by=actor())

    with_store(url, use)
    typer.echo(f"task {task_id} is due now")


@jobs.command("delete")
def delete(task_id: TaskId, url: Url = None) -> None:
    """Delete an ended job. Its events stay for as long as history is kept."""

    async def use(store: Store) -> None:
        await _found(store, task_id)
        [outcome] = await store.delete([(task_id, action("delete", actor()))])
        if outcome == "live":
            raise WrongState(f"task {task_id} has not ended: `everpoll jobs cancel {task_id}` ends it")

    with_store(url, use)
    typer.echo(f"task {task_id} is deleted")


jobs.command("causes")(causes)
jobs.command("redrive")(redrive)


def workers(
    _action: Annotated[
        Literal["list"],
        typer.Argument(help="May be left out: `everpoll workers list` does the same.", metavar="[list]"),
    ] = ("list"),
    url: Url = None,
    app: OfApp = None,
    as_json: AsJson = False,
) -> None:
    """List the workers that are alive or silent, and those that ended within a day."""
    if app is not None:
        from everpoll.cli import tables  # noqa: PLC0415 - most lists need no table

        tables.list_workers(app, url, as_json)
        return
    found: list[WorkerInfo] = with_store(url, lambda store: store.workers())
    if as_json:
        print_json(found)
    else:
        show_workers(found)


def show_workers(found: Sequence[WorkerInfo]) -> None:
    """Print the workers of a store."""
    out = console()
    out.print(_workers(found, ended_here(found), out.width) if found else "No workers.")


def _workers(found: Sequence[WorkerInfo], gone: set[int], columns: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    is_wide = columns >= WIDE
    # Wrap names instead of cutting them, so that they can be copied.
    table.add_column("worker", overflow="fold", min_width=8)
    table.add_column("state", no_wrap=True)
    for column in ("host", "pid") if is_wide else ():
        table.add_column(column, overflow="fold")
    table.add_column("queues", overflow="fold")
    for column in ("running", "heartbeat", "started") if is_wide else ("running", "heartbeat"):
        table.add_column(column, no_wrap=True, justify="right")
    for worker in sorted(found, key=lambda one: (not one.is_alive, one.label)):
        table.add_row(
            plain(worker.label),
            _state_of(worker, worker.incarnation in gone),
            *([plain(worker.host), str(worker.pid)] if is_wide else []),
            plain(", ".join(worker.queues)),
            f"{worker.running}{'+' if worker.has_more_running else ''} of {worker.slots}",
            ago(worker.beat_at),
            *([ago(worker.started_at)] if is_wide else []),
        )
    return table


def _state_of(worker: WorkerInfo, is_gone: bool) -> str:
    if worker.stopped_at:
        return "[dim]ended[/]"
    if is_gone:
        return "[bold red]gone[/]"
    return "[green]alive[/]" if worker.is_alive else "[bold red]silent[/]"


async def _found(store: Store, task_id: int) -> TaskInfo:
    found = await store.info([task_id])
    if task_id not in found:
        raise TaskNotFound(f"no task {task_id} here: it never existed, or its history was dropped")
    return found[task_id]
