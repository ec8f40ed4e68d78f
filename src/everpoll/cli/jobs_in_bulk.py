"""`everpoll jobs causes`, `everpoll jobs redrive`: group failed jobs by error, and put jobs back by filter."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, cast

import typer
from rich import box
from rich.table import Table

from everpoll.cli.completion import end_states, job_names, queue_names
from everpoll.cli.session import AsJson, Url, actor, ago, console, plain, print_json, with_store
from everpoll.engine.bulk import BulkAnswer, BulkOrder
from everpoll.errors import BadInput
from everpoll.jobs.causes import Causes, RedriveFilter, Redriven, causes_of, instant_of, redriven
from everpoll.stores.contract import Store, TaskFilter, TaskState

Canceled = Redriven
"""The same counts."""
Name = Annotated[str | None, typer.Option(help="Only this job.", autocompletion=job_names)]
QueueOption = Annotated[str | None, typer.Option("--queue", help="Only this queue.", autocompletion=queue_names)]
Error = Annotated[str | None, typer.Option(help="Only jobs whose last error is of this class, such as KeyError.")]
Since = Annotated[str | None, typer.Option(help="Only jobs that were enqueued within this time, such as 2h.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count; change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def causes(name: Name = None, queue: QueueOption = None, url: Url = None, as_json: AsJson = False) -> None:
    """Group failed jobs by their error, the most frequent first."""
    found: Causes = with_store(url, lambda store: causes_of(store, name, queue))
    if as_json:
        print_json(found.causes)
        return
    table = Table(box=box.SIMPLE_HEAD, expand=True)
    table.add_column("jobs", justify="right", no_wrap=True)
    table.add_column("name", style="bold", overflow="fold")
    table.add_column("error", overflow="fold", ratio=1)
    table.add_column("last", justify="right", no_wrap=True)
    table.add_column("example", justify="right", no_wrap=True)
    for one in found.causes:
        error = f"{one.type}: {one.error}" if one.type else one.error
        table.add_row(f"{one.count:,}", plain(one.name), plain(error), ago(one.last_at), str(one.examples[0]))
    out = console()
    out.print(table if found.causes else "No job has failed.")
    if found.is_capped:
        out.print(f"Only the newest {found.searched:,} failed jobs were looked at.", style="dim")


def redrive(  # noqa: PLR0913, PLR0917 - the options of the command
    name: Name = None,
    queue: QueueOption = None,
    error: Error = None,
    since: Since = None,
    state: Annotated[
        str, typer.Option(help="Which ended jobs: failed, canceled or done.", autocompletion=end_states)
    ] = "failed",
    everything: Annotated[bool, typer.Option("--everything", help="All jobs of that state, without a filter.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Put all ended jobs that match the filters back in the queue, with fresh attempts."""
    wanted = RedriveFilter(
        name=name,
        queue=queue,
        error=error,
        since=instant_of(since),
        state=cast("TaskState", state),
        everything=everything,
    )
    wanted.checked()
    counted: Redriven = with_store(url, lambda store: redriven(store, wanted, dry_run=True))
    if dry_run or not counted.moved:
        _tell(counted, "would be put back", as_json=as_json)
        return
    _ask(f"Put {_jobs(counted.moved)} back in the queue?", yes=yes)
    _tell(with_store(url, lambda store: redriven(store, wanted, by=actor())), "put back in the queue", as_json=as_json)


def cancel_many(wanted: Sequence[TaskFilter], url: str | None, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Cancel the live jobs that match these filters."""

    async def ordered(store: Store, *, counts: bool) -> Canceled:
        answers: list[BulkAnswer] = []
        for one in wanted:
            order = BulkOrder("cancel", one, (), as_of=datetime.max.replace(tzinfo=UTC), by=actor())
            await (order.count(store) if counts else order.carry_out(store))
            answers.append(order.answer(dry_run=counts))
        reasons = sum((Counter(one.reasons) for one in answers), Counter[str]())
        return Canceled(
            matched=sum(one.matched for one in answers),
            moved=sum(one.eligible if counts else one.moved for one in answers),
            skipped=reasons.total(),
            reasons=dict(reasons),
            dry_run=counts,
        )

    counted: Canceled = with_store(url, lambda store: ordered(store, counts=True))
    if dry_run or not counted.moved:
        _tell(counted, "would be canceled", as_json=as_json)
        return
    _ask(f"Cancel {_jobs(counted.moved)}?", yes=yes)
    _tell(with_store(url, lambda store: ordered(store, counts=False)), "canceled", as_json=as_json)


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number:,} jobs"


def _ask(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not console().is_terminal:
        raise BadInput(f"{question} Say --yes, or --dry-run to see what would be done")
    if not typer.confirm(question):
        raise typer.Exit(1)


def _tell(answer: Redriven, verb: str, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    typer.echo(f"{answer.moved:,} of {_jobs(answer.matched)} {verb}")
    for reason, count in sorted(answer.reasons.items()):
        typer.echo(f"  {count:,} skipped: {reason}")
