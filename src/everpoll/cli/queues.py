"""`everpoll queues`: list queues, and pause one for all workers."""

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from everpoll.cli.completion import queue_names
from everpoll.cli.session import AsJson, Url, actor, ago, console, plain, print_json, with_store
from everpoll.engine.queues import Queue
from everpoll.policy.visible_texts import visible
from everpoll.stores.contract import COUNT_LIMIT, QueueInfo, Store

RARE = frozenset({"limited", "blocked"})
"""Columns that are left out where no queue has such tasks."""

queues = typer.Typer(name="queues", help="List, pause and resume queues.", no_args_is_help=True)

QueueName = Annotated[str, typer.Argument(help="The queue's name.", metavar="QUEUE", autocompletion=queue_names)]


@queues.command("list")
def list_queues(url: Url = None, as_json: AsJson = False) -> None:
    """List the queues that have tasks or are paused."""
    found: list[QueueInfo] = with_store(url, lambda store: store.queues())
    if as_json:
        print_json(found)
        return
    console().print(_table(found) if found else "No queue has tasks.")


def _table(found: list[QueueInfo]) -> Table:
    rows = [_counts(one) for one in found]
    # Most fleets have neither limits nor chains: on a narrow terminal, names need the room.
    shown = [name for name in rows[0] if name not in RARE or any(row[name] != "0" for row in rows)]
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("queue", style="bold", overflow="fold")
    for column in (*shown, "oldest"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("state", overflow="fold")
    for one, row in zip(found, rows, strict=True):
        table.add_row(plain(one.queue), *(row[name] for name in shown), ago(one.oldest_due_at), _state(one))
    return table


def _counts(queue: QueueInfo) -> dict[str, str]:
    return {
        "ready": _count(queue.ready),
        "running": f"{queue.running:,}+" if queue.has_more_running else _count(queue.running),
        "limited": _count(queue.limited),
        "waiting": _count(queue.waiting),
        "blocked": _count(queue.blocked),
    }


def _count(number: int) -> str:
    return f"{COUNT_LIMIT:,}+" if number >= COUNT_LIMIT else f"{number:,}"


def _state(queue: QueueInfo) -> str:
    pause = queue.paused
    if pause is None:
        return "open"
    by = f" by {pause.by}" if pause.by else ""
    reason = f": {pause.reason}" if pause.reason else ""
    return f"[bold yellow]paused[/]{plain(f'{by}, {ago(pause.at)}{reason}')}"


@queues.command("pause")
def pause(
    queue: QueueName,
    reason: Annotated[str, typer.Option(help="The reason, shown by `everpoll why` and in the log.")] = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Pause a queue for all workers, until it is resumed. Running tasks continue."""
    info = with_store(url, lambda store: _operated(store, queue, lambda one: one.pause(reason, by=actor())))
    if as_json:
        print_json(info)
        return
    running = f"; {info.running} of its tasks still run" if info.running else ""
    typer.echo(visible(f"queue {queue} is paused{running}"))


@queues.command("resume")
def resume(queue: QueueName, url: Url = None, as_json: AsJson = False) -> None:
    """Resume a paused queue."""
    was_paused = False

    async def operate(one: Queue) -> None:
        nonlocal was_paused
        was_paused = await one.resume(by=actor())

    info = with_store(url, lambda store: _operated(store, queue, operate))
    if as_json:
        print_json(info)
        return
    typer.echo(visible(f"queue {queue} is open" + ("" if was_paused else "; it was not paused")))


async def _operated(store: Store, name: str, operate: Callable[[Queue], Awaitable[None]]) -> QueueInfo:
    async def store_of() -> Store:
        return store

    queue = Queue(name, store_of)
    await operate(queue)
    return await queue.info()
