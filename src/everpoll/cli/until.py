"""`everpoll until URL`: wait in a shell for an operation that runs elsewhere.

Promises: the rules are those of any watch, for it is one, in memory: budget, Retry-After, backoff, errors in passing.
Exit codes: 0 ready, 1 failed or not to be used, 2 timed out, 130 after Ctrl-C. The remote is asked to cancel only with
`--cancel`. Secrets in headers, in the address or in the environment are never printed.
"""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand

from everpoll.app import Everpoll
from everpoll.cli.given_headers import headers_from
from everpoll.cli.session import AsJson, duration_s, print_json
from everpoll.cli.until_display import Progress, show_live
from everpoll.cli.until_operation import (
    ADAPTERS,
    METHODS,
    ExplainingClient,
    Operation,
    OperationOptions,
    data_from,
    operation_for,
)
from everpoll.errors import BadInput, EverpollError
from everpoll.http.secrets import Secrets
from everpoll.http.urls import shown
from everpoll.policy import Backoff, Budget, human
from everpoll.policy.visible_texts import visible
from everpoll.watches import Cadence, Done, LookContext, RunInfo, Started, Verdict, Watch, WatchRun
from everpoll.watches.adapters import Refused
from everpoll.watches.cadence import Growing

GROWING = Backoff("2s", factor=1.5, cap="30s", jitter=0.1)
TIMEOUT = "29m"
NO_ANSWER = "no answer in time"
CANCEL_BUDGET_S = 30.0
# A cancel reaches the remote within a third of this lease, even during a look.
LEASE = "3s"
CODES = {"ready": 0, "failed": 1, "canceled": 1, "timed_out": 2}
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}


class UntilCommand(TyperCommand):
    """A command whose usage errors exit with 1: 2 means timed out."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the arguments."""
        try:
            return super().make_context(*args, **kwargs)
        except Exception as error:
            if getattr(error, "exit_code", 0) != 2:
                raise
            error.exit_code = 1  # type: ignore[attr-defined]  # it has one: see above
            if "extra argument" in str(getattr(error, "message", "")):
                # The rest of a header without quotes is most likely a secret.
                error.message = "More than one URL: write a header in quotes, --header 'Name: value'."  # type: ignore[attr-defined]
            raise


COMMAND_CLASS = UntilCommand


def until(  # noqa: PLR0913 - options of a command
    url: Annotated[
        str,
        typer.Argument(help="The URL of the operation, the URL that starts one, or the id of a batch.", metavar="URL"),
    ],
    *,
    timeout: Annotated[
        str | None, typer.Option(help=f"How long to wait; default: {TIMEOUT}.", show_default=False)
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="Look at this interval; default: 2s, growing to 30s.", show_default=False)
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Start the operation with this method; default: POST with --data.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Start the operation with this JSON, or with @file.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="A header, 'Name: value'; repeatable.")] = None,
    adapter: Annotated[str, typer.Option(help=f"The protocol: {', '.join(ADAPTERS)}.")] = "auto",
    model: Annotated[Path | None, typer.Option(help="A file with waiters: waiters-2.json, or a Smithy model.")] = None,
    waiter: Annotated[str | None, typer.Option(help="The name of the waiter in --model.")] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="On Ctrl-C, ask the remote to cancel.")] = False,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Wait for a remote operation. Exit code 0: ready, 1: failed, 2: timed out."""
    # The display shows the looks. Log lines would break it, and might contain secrets.
    logging.getLogger("everpoll").addHandler(logging.NullHandler())
    logging.getLogger("everpoll").propagate = False
    headers: dict[str, str] = {}
    secrets = Secrets({}, url)
    try:
        headers = headers_from(header or [])
        secrets = Secrets(headers, url)
        wanted = OperationOptions(
            url=url,
            method=_one_of("--method", (method or ("GET" if data is None else "POST")).upper(), METHODS),
            data=None if data is None else data_from(data),
            headers=headers,
            adapter=_one_of("--adapter", adapter, ADAPTERS),
            model=model,
            waiter=waiter,
            may_cancel=cancel,
        )
        if wanted.data is not None and wanted.method == "GET" and wanted.adapter != "waiter":
            raise BadInput("--data is not sent with --method GET: leave one of them out")
        operation = operation_for(wanted, ExplainingClient())
        secrets = Secrets(headers, url, operation.secrets)
        limits = _limits(operation, timeout, every)
    except EverpollError as error:
        typer.echo(f"everpoll: {visible(secrets.masked(str(error)))}", err=True)
        raise typer.Exit(1) from None
    title = secrets.masked(f"{wanted.method} {shown(url) if '://' in url else url}")
    sys.exit(Until(operation, limits, secrets, title).wait(as_json=as_json, quiet=quiet))


@dataclass(frozen=True, slots=True)
class WaitLimits:
    """The timeout and the interval."""

    budget: Budget
    cadence: Cadence


def _limits(operation: Operation, timeout: str | None, every: str | None) -> WaitLimits:
    if timeout is None and operation.budget is not None:
        budget = operation.budget
    else:
        budget = Budget(duration_s("--timeout", timeout or TIMEOUT))
    every_s = operation.every_s if every is None else duration_s("--every", every)
    steady = None if every_s is None else Backoff(max(every_s, 0.001), factor=1, jitter=0.1)
    return WaitLimits(budget, Growing(steady or GROWING))


def _one_of(option: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise BadInput(f"{option} {value!r}: write one of {', '.join(known)}")
    return value


class Until:
    """One wait."""

    def __init__(self, operation: Operation, limits: WaitLimits, secrets: Secrets, title: str) -> None:
        self._operation = operation
        self._limits = limits
        self._secrets = secrets
        self._signal: int | None = None
        self._elapsed_s = 0.0
        self._value: Any = None
        self._progress = Progress(
            visible(title), limits.budget.time_s, self._printable, now=lambda: asyncio.get_running_loop().time()
        )

    def wait(self, *, as_json: bool, quiet: bool) -> int:
        """Wait until the operation has ended, and return the exit code."""
        # With --json, standard output has the answer alone.
        console = Console(stderr=as_json, highlight=False, soft_wrap=True)
        is_live = console.is_terminal and not console.is_dumb_terminal and not quiet
        if not is_live and not quiet and not as_json:
            self._progress.on_line.append(lambda line: console.print(line, markup=False))
            console.print(f"{'0s':>6}  {self._progress.title}", markup=False)
        info = asyncio.run(self._run(console if is_live else None))
        if as_json:
            print_json(self._secrets.masked(self._summary(info)))
        else:
            self._print_end(info, console, quiet=quiet)
        return SIGNALS[signal.Signals(self._signal)] if self._signal is not None else CODES[info.outcome or "failed"]

    def _printable(self, text: str) -> str:
        return visible(self._secrets.masked(text))

    async def _run(self, live: Console | None) -> RunInfo:
        app = Everpoll("memory://", lease=LEASE)
        watch = self._watch(app)
        interrupted, over = asyncio.Event(), asyncio.Event()
        self._listen(interrupted)
        self._progress.began_at = asyncio.get_running_loop().time()
        try:
            async with app.working():
                handle = None if self._operation.start is not None else self._operation.handle
                run = await watch.begin(None, handle=handle)
                shown_live = None if live is None else asyncio.ensure_future(show_live(live, self._progress, over))
                try:
                    await self._ended(run, interrupted)
                finally:
                    over.set()
                    if shown_live is not None:
                        await shown_live
                return await run.info()
        finally:
            self._elapsed_s = asyncio.get_running_loop().time() - self._progress.began_at
            await app.close(grace=0)

    def _listen(self, interrupted: asyncio.Event) -> None:
        def received(number: int) -> None:
            self._signal = number
            interrupted.set()

        for wanted in SIGNALS:
            # Outside the main thread, or on other platforms, Ctrl-C ends the program as usual.
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                asyncio.get_running_loop().add_signal_handler(wanted, received, wanted)

    async def _ended(self, run: WatchRun, interrupted: asyncio.Event) -> None:
        """Wait for the outcome, or for an interrupt."""
        if await _first(_outcome(run), interrupted) or self._operation.cancel is None:
            return
        interrupted.clear()
        self._progress.is_canceling = True
        await run.cancel("interrupted")
        await _first(_outcome(run), interrupted)

    def _watch(self, app: Everpoll) -> Watch[Any]:
        operation, progress = self._operation, self._progress

        async def look(_op: Any, w: LookContext) -> Verdict:
            # The budget also limits looks: one that hangs would outlive it. The last look still gets a second.
            left_s = max(1.0, self._limits.budget.time_s - w.elapsed)
            try:
                async with asyncio.timeout(left_s):
                    verdict = await operation.look(w.handle, w.memory)
            except asyncio.CancelledError:
                # The watch ends a look at the budget's end by itself, perhaps a moment before the timeout above.
                if self._signal is None:
                    progress.broke(NO_ANSWER, w.looks)
                raise
            except Exception as error:
                progress.broke(_words(error), w.looks)
                raise
            progress.saw(w.looks, verdict)
            return self._without_value(verdict)

        watch = app.watch(
            every=self._limits.cadence,
            budget=self._limits.budget,
            name="until",
            fatal=(BadInput, Refused),
            cancel_budget=CANCEL_BUDGET_S,
        )(look)
        watch.on_decision.append(progress.decided)
        if operation.start is not None:
            watch.start(self._start)
        if operation.cancel is not None:
            cancel = operation.cancel
            watch.cancel(lambda _op, handle: cancel(handle))
        return watch

    async def _start(self, _op: Any, key: str) -> Any:
        assert self._operation.start is not None, "registered only if there is one"
        try:
            async with asyncio.timeout(max(1.0, self._limits.budget.time_s)):
                begun = await self._operation.start(key)
        except Exception as error:
            self._progress.broke(_words(error))
            raise
        self._progress.error = None
        return Started(begun.handle, self._without_value(begun.verdict)) if isinstance(begun, Started) else begun

    def _without_value(self, verdict: Verdict) -> Verdict:
        """Return the verdict without its value, which is kept here: it may be too large for a row."""
        if not isinstance(verdict, Done):
            return verdict
        self._value = verdict.value
        return replace(verdict, value=None)

    def _print_end(self, info: RunInfo, console: Console, *, quiet: bool) -> None:
        progress = self._progress
        looks = f"after {progress.count} " if progress.looks else ""
        took = f"{looks}in {human(round(self._elapsed_s, 1))}"
        if self._signal is not None:
            line = f"interrupted after {progress.count}: {self._left_behind(info)}"
        elif info.outcome == "ready":
            if not quiet:
                console.print(f"ready {took}", style="green", markup=False)
            return
        else:
            when = f" {took}" if progress.looks else ""
            line = f"{(info.outcome or 'failed').replace('_', ' ')}{when}: {self._reason(info)}"
        # A remote's words may have line breaks; an error is one line.
        typer.echo(f"everpoll: {' '.join(self._printable(line).split())}", err=True)

    def _reason(self, info: RunInfo) -> str:
        progress = self._progress
        if info.outcome == "timed_out":
            last = progress.said if progress.looks or progress.error else "no answer"
            return f"{info.reason}; last seen: {last}"
        # The text of the error that ended the run, without the name of its class.
        return progress.error or info.reason or "no reason was given"

    def _left_behind(self, info: RunInfo) -> str:
        if self._operation.cancel is None:
            return "the operation goes on at the remote"
        return info.reason or "whether the cancel reached the remote is not known"

    def _summary(self, info: RunInfo) -> dict[str, Any]:
        evidence = info.evidence
        if isinstance(evidence, dict):
            # The place in this program where an error was raised does not help the caller.
            evidence = {name: value for name, value in evidence.items() if name != "traceback"}
        return {
            "outcome": info.outcome,
            "reason": info.reason if info.outcome in (None, "ready") else self._reason(info),
            "interrupted": self._signal is not None,
            "adapter": self._operation.adapter,
            "status": info.status,
            "progress": info.progress,
            "value": self._value,
            "evidence": evidence,
            "looks": info.looks,
            "errors": info.errors,
            "elapsed_s": round(self._elapsed_s, 3),
        }


async def _outcome(run: WatchRun) -> None:
    with contextlib.suppress(EverpollError):
        await run.result()


async def _first(waiting: Coroutine[Any, Any, None], interrupted: asyncio.Event) -> bool:
    """Return True if it has ended, False if an interrupt came first."""
    task, signaled = asyncio.ensure_future(waiting), asyncio.ensure_future(interrupted.wait())
    try:
        await asyncio.wait({task, signaled}, return_when=asyncio.FIRST_COMPLETED)
        return task.done()
    finally:
        task.cancel()
        signaled.cancel()
        await asyncio.gather(task, signaled, return_exceptions=True)


def _words(error: Exception) -> str:
    """Return the text of an error for people."""
    if isinstance(error, TimeoutError):
        return str(error) or NO_ANSWER
    if isinstance(error, EverpollError) or type(error) in (ConnectionError, ConnectionRefusedError):
        return str(error)
    return f"{type(error).__name__}: {error}"
