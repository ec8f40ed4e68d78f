"""`everpoll runs`: lists and shows the runs of watches with their decisions, and changes them."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from everpoll.cli.session import (
    AsJson,
    Url,
    actor,
    ago,
    console,
    duration_s,
    numbered,
    plain,
    print_continuation,
    print_json,
    with_store,
)
from everpoll.cli.why import found_task
from everpoll.engine.actors import action
from everpoll.engine.why import recorded
from everpoll.engine.work import WorkRegistry
from everpoll.errors import BadInput
from everpoll.http.stored_secrets import without_secrets
from everpoll.policy import human
from everpoll.policy.visible_texts import escaped, visible
from everpoll.stores.contract import END_STATES, LIVE_STATES, Store, TaskFilter, TaskInfo, TaskPage, encode
from everpoll.watches import RunEvent, RunInfo, Watches, WatchRun
from everpoll.watches.memory import Decision
from everpoll.watches.run_info import memory_of, run_info

STATES = (*LIVE_STATES, *END_STATES)
OUTCOME_STYLE = {"ready": "green", "failed": "bold red", "timed_out": "bold red", "canceled": "yellow"}
PHASE_STYLE = {"needs_code": "bold red", "paused": "yellow", "canceling": "yellow", "cleaning": "dim", "ended": "dim"}
SHOWN = ("watch", "id", "task_id", "phase", "outcome", "reason", "status", "progress", "looks", "errors")

runs = typer.Typer(
    name="runs", help="List, show, cancel, extend, pause and follow the runs of watches.", no_args_is_help=True
)

RunName = Annotated[str, typer.Argument(help="WATCH:RUN, or the run's task id.", metavar="ID")]


@runs.command("list")
def list_runs(
    state: Annotated[str | None, typer.Option(help=f"Only this state: {', '.join(STATES)}.")] = None,
    watch: Annotated[str | None, typer.Option(help="Only this watch.")] = None,
    limit: Annotated[int, typer.Option(help="How many at most.", min=1, max=1000)] = 20,
    after: Annotated[int | None, typer.Option(help="Continue after this task id.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""
    if state is not None and state not in STATES:
        raise BadInput(f"--state {state!r}: write one of {', '.join(STATES)}")
    after = None if after is None else numbered(after, "the last line of a page says which")
    wanted = msgspec.convert({"state": state, "name": watch, "kind": "watch", "indexed": True}, TaskFilter)
    page: TaskPage = with_store(url, lambda store: store.tasks(wanted, limit, after))
    found = tuple(run_info(task) for task in page.tasks)
    if as_json:
        print_json(_printable(found))
        return
    out = console()
    out.print(_table(found) if found else "No runs.")
    print_continuation(page.after, page.searched_back_to)


def _table(found: Sequence[RunInfo]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False)
    table.add_column("task", justify="right", no_wrap=True)
    # Wrap names instead of cutting them, so that they can be copied.
    table.add_column("run", style="bold", overflow="fold", min_width=12)
    table.add_column("phase", no_wrap=True)
    table.add_column("status", overflow="ellipsis", no_wrap=True, max_width=16)
    table.add_column("looks", justify="right", no_wrap=True)
    table.add_column("next look", justify="right", no_wrap=True)
    table.add_column("outcome", overflow="fold", ratio=1, min_width=9)
    for one in found:
        table.add_row(
            str(one.task_id),
            plain(f"{one.watch}:{one.id}"),
            _styled(one.phase, PHASE_STYLE),
            plain(one.status or ""),
            str(one.looks),
            _next_look(one),
            "" if one.outcome is None else _styled(one.outcome, OUTCOME_STYLE),
        )
    return table


def _next_look(run: RunInfo) -> str:
    """Return when the next look is due; "now" if it should have come already."""
    if run.next_look_at is None:
        return ""
    return ago(run.next_look_at) if run.next_look_at > datetime.now(UTC) else "now"


@runs.command("show")
def show(run: RunName, url: Url = None, as_json: AsJson = False) -> None:
    """Show one run: its facts, its counters, and each decision with the rule that made it."""
    task = with_store(url, lambda store: _found(store, run))
    info = run_info(task)
    if as_json:
        print_json(_printable(msgspec.structs.asdict(info) | {"trail": task.trail}))
        return
    out = console()
    out.print(_card(task, info))
    _print_named(out, "facts", {name: _fact(value) for name, value in info.facts.items()})
    _print_named(out, "counters", info.counters)
    _print_timeline(out, info)
    if task.trail:
        out.print("\n[bold]trail of its task[/]")
    for entry in task.trail:
        out.print(plain(recorded(entry)), soft_wrap=True)


def _card(task: TaskInfo, info: RunInfo) -> Table:
    card = Table(box=None, show_header=False, pad_edge=False)
    card.add_column(style="dim", no_wrap=True)
    card.add_column(overflow="fold")
    styles = {"phase": PHASE_STYLE, "outcome": OUTCOME_STYLE}
    for name in SHOWN:
        value = getattr(info, name)
        if value is not None:
            card.add_row(name, _styled(str(value), styles.get(name, {})))
    elapsed_s = (
        info.elapsed_s if info.elapsed_s is not None else memory_of(task).elapsed_s(datetime.now(UTC).timestamp())
    )
    of = "" if info.budget_s is None else f" of {human(info.budget_s)}"
    card.add_row("elapsed", f"{human(round(elapsed_s, 1))}{of}")
    for name, instant in (("created", info.created_at), ("next look", info.next_look_at), ("ended", info.ended_at)):
        if instant is not None:
            card.add_row(name, f"{instant:%Y-%m-%d %H:%M:%S} UTC ({ago(instant)})")
    for name in ("handle", "op", "value", "evidence", "memory"):
        value = getattr(info, name)
        if value is not None and value != {}:
            safe = without_secrets(value)
            card.add_row(name, plain(safe if isinstance(safe, str) else encode(safe)))
    if info.cleaned is not None:
        card.add_row("cleaned", "yes" if info.cleaned else "[bold red]no: given up, tried again within the hour[/]")
    if task.cancel_requested:
        card.add_row("cancel", plain(task.cancel_reason))
    return card


def _print_named(out: Console, title: str, values: dict[str, Any]) -> None:
    if not values:
        return
    out.print(f"\n[bold]{title}[/]")
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in values.items():
        table.add_row(plain(name), plain(str(value)))
    out.print(table)


def _print_timeline(out: Console, info: RunInfo) -> None:
    if not info.log:
        return
    out.print("\n[bold]timeline[/]")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("when", no_wrap=True)
    table.add_column("rule", no_wrap=True, style="bold")
    table.add_column("why", overflow="fold")
    table.add_column("next", justify="right", no_wrap=True)
    for decision in info.log:
        table.add_row(_at(decision), plain(decision.rule), plain(_why(decision)), _next(decision))
    out.print(table)


def _at(decision: Decision) -> str:
    last = datetime.fromtimestamp(decision.at).astimezone()
    if decision.first_at is None:
        return f"{last:%H:%M:%S}"
    return f"{datetime.fromtimestamp(decision.first_at).astimezone():%H:%M:%S} to {last:%H:%M:%S}"


def _why(decision: Decision) -> str:
    status = "" if decision.status is None else f" [{decision.status}]"
    times = f" ({decision.times} times)" if decision.times > 1 else ""
    # The fact `error` of a failed call has the text of `why`.
    shown = {name: value for name, value in decision.facts.items() if name != "error" or str(value) not in decision.why}
    facts = "".join(f"\n{name}: {value}" for name, value in shown.items())
    return f"{decision.why}{status}{times}{facts}"


def _next(decision: Decision) -> str:
    return "" if decision.next_s is None else human(round(decision.next_s, 3))


def _fact(value: dict[str, Any]) -> str:
    words = []
    for name, one in value.items():
        if name == "last_at":
            words.append("" if one is None else f"last {ago(datetime.fromtimestamp(one, UTC))}")
        else:
            words.append(f"{name} {one}")
    return ", ".join(word for word in words if word)


@runs.command("cancel")
def cancel(run: RunName, url: Url = None, as_json: AsJson = False) -> None:
    """Cancel a run: a worker cancels the operation at the remote, waits for its end, and cleans up."""

    async def use(store: Store) -> RunInfo:
        task = await _found(store, run)
        info = run_info(task)
        if info.outcome is not None:
            raise BadInput(f"{_name(info)} has its outcome already: it is {info.outcome}")
        await store.cancel(task.id, action("cancel", actor(), "on the command line"))
        return run_info(await _found(store, str(task.id)))

    info = with_store(url, use)
    if as_json:
        print_json(_printable(info))
        return
    typer.echo(f"{_name(info)} is being canceled: a worker asks the remote to cancel, and waits for the end")


@runs.command("look-now")
def look_now(run: RunName, url: Url = None, as_json: AsJson = False) -> None:
    """Make the next look of a run due now."""
    info = with_store(url, lambda store: _operated(store, run, lambda one: one.look_now(by=actor())))
    _print_operated(info, "is looked at as soon as a worker is free", as_json=as_json)


@runs.command("extend")
def extend(
    run: RunName,
    time: Annotated[str | None, typer.Option(help="Time to add to its budget, such as 10m.")] = None,
    looks: Annotated[int | None, typer.Option(help="Looks to add to its budget.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Add time, looks or both to the budget of a run."""
    if time is None and looks is None:
        raise BadInput("nothing to add: write --time 10m, --looks 20, or both")
    time_s = None if time is None else duration_s("--time", time)
    info = with_store(url, lambda store: _operated(store, run, lambda one: one.extend(time_s, looks, by=actor())))
    allowed = "" if info.budget_looks is None else f" and {info.budget_looks} looks"
    _print_operated(info, f"may take {human(info.budget_s or 0.0)}{allowed} in all", as_json=as_json)


@runs.command("pause")
def pause(
    run: RunName,
    reason: Annotated[str, typer.Option(help="The reason, shown by `everpoll why` and in the log.")] = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Have no worker look at a run, and stop the clock of its budget, until it is resumed."""
    info = with_store(url, lambda store: _operated(store, run, lambda one: one.pause(reason, by=actor())))
    _print_operated(info, "is paused: its budget stands still until it is resumed", as_json=as_json)


@runs.command("resume")
def resume(run: RunName, url: Url = None, as_json: AsJson = False) -> None:
    """Resume a paused run: its next look is due now."""
    was_paused = False

    async def operate(one: WatchRun) -> None:
        nonlocal was_paused
        was_paused = await one.resume(by=actor())

    info = with_store(url, lambda store: _operated(store, run, operate))
    _print_operated(info, "is looked at again" if was_paused else "was not paused", as_json=as_json)


async def _operated(store: Store, name: str, operate: Callable[[WatchRun], Awaitable[None]]) -> RunInfo:
    """Call a method of a run, and return the run as it is afterwards."""
    task = await _found(store, name)

    async def store_of() -> Store:
        return store

    watches = Watches(WorkRegistry(), store_of)
    try:
        await operate(WatchRun(watches, task.name, run_info(task).id, task.id))
    finally:
        await watches.close()
    return run_info(await _found(store, str(task.id)))


def _print_operated(info: RunInfo, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json(_printable(info))
        return
    typer.echo(visible(f"{_name(info)} {what}"))


@runs.command("events")
def events(
    run: RunName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new changes until the run has ended.")] = False,
    after: Annotated[int, typer.Option(help="Only changes after this number.")] = 0,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Print the changes of a run, one line each; with --json, one object per line."""
    number = numbered(after, "the number of the last change that you have seen")

    async def use(store: Store) -> None:
        task = await _found(store, run)
        if not follow:
            seen = number
            while page := await store.task_events(task.id, seen):
                for one in page:
                    _print_event({"seq": one.seq, "kind": "change", "at": one.at, **one.body}, as_json=as_json)
                seen = page[-1].seq
            return

        async def store_of() -> Store:
            return store

        watches = Watches(WorkRegistry(), store_of)
        try:
            async for event in WatchRun(watches, task.name, run_info(task).id, task.id).events(number):
                _print_event(msgspec.structs.asdict(event), as_json=as_json)
        finally:
            await watches.close()

    with_store(url, use)


def _print_event(fields: dict[str, Any], *, as_json: bool) -> None:
    event = msgspec.convert(fields, RunEvent)
    if as_json:
        typer.echo(escaped(msgspec.json.encode(_printable(event)).decode()))
        return
    words = [f"{event.seq:>4}", f"{event.at.astimezone():%H:%M:%S}", f"{event.phase:<10}"]
    words += [word for word in (event.outcome, event.status, event.progress) if word]
    looks = f"({event.looks} {'look' if event.looks == 1 else 'looks'})" if event.looks else ""
    reason = f": {event.reason}" if event.reason else ""
    mark = " (now)" if event.kind == "snapshot" else ""
    console().print(plain(f"{' '.join([*words, looks]).rstrip()}{reason}{mark}"), soft_wrap=True)


def _printable(answer: Any) -> Any:
    """Return an answer for scripts without secrets: scripts write logs."""
    return without_secrets(msgspec.to_builtins(answer))


async def _found(store: Store, name: str) -> TaskInfo:
    task = await found_task(store, name)
    if task.kind != "watch":
        raise BadInput(f"task {name} is a {task.kind}, not a run of a watch: everpoll jobs show {name}")
    return task


def _name(info: RunInfo) -> str:
    return f"{info.watch}:{info.id}"


def _styled(text: str, styles: dict[str, str]) -> str:
    style = styles.get(text)
    return plain(text) if style is None else f"[{style}]{plain(text)}[/]"
