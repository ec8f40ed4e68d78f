"""`everpoll`: lists all commands, and prints errors as one readable line.

A command is imported when it is called: the help of `everpoll` and short commands load neither a client nor a driver
that they do not use. The same holds when a shell completes a command (`--show-completion`).
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer

from everpoll.errors import EverpollError
from everpoll.version import __version__


class Command(NamedTuple):
    """The module of a command or a group, and its help in the list of commands."""

    place: str
    """Module and name."""
    help: str
    is_group: bool = False


COMMANDS = {
    "demo": Command(
        "demo:demo",
        "Show jobs, watches, services, loops and a table at work, with failures. Ctrl-C ends it with a summary.",
    ),
    "run": Command(
        "run:run", "Run a worker for an app, a configuration file, or the stored services, until SIGTERM or Ctrl-C."
    ),
    "serve": Command("serve:serve", "Serve the HTTP API and the dashboard without a worker."),
    "token": Command("serve:token", "Print a new random token for the HTTP API."),
    "migrate": Command("run:migrate", "Create or update the database schema. Safe while workers run."),
    "doctor": Command(
        "doctor:doctor",
        "Check the database and the workers. Exit code 0: all is well, 1: warnings, 2: problems.",
    ),
    "check": Command("check:check", "Check a health endpoint once. Exit code 0: up, 1: not up, 2: no answer."),
    "jobs": Command("jobs:jobs", "List, show, cancel, retry and delete jobs.", is_group=True),
    "runs": Command("runs:runs", "List, show, cancel, extend, pause and follow the runs of watches.", is_group=True),
    "loops": Command("loops:loops", "List and show the loops of all processes.", is_group=True),
    "queues": Command("queues:queues", "List, pause and resume queues.", is_group=True),
    "schedules": Command("schedules:schedules", "List schedules.", is_group=True),
    "services": Command("services:services", "List, show, add, remove, check, mute and pause services.", is_group=True),
    "maintenance": Command(
        "maintenance:maintenance",
        "Plan, list and remove maintenance windows, in which incidents send no alerts.",
        is_group=True,
    ),
    "tables": Command("tables:tables", "List and check adopted tables, and print their DDL.", is_group=True),
    "workers": Command(
        "jobs:workers",
        "List the workers that are alive or silent, and those that ended within a day.",
    ),
    "why": Command("why:explain", "Explain why a job, a run, a service or a row of an adopted table is in its state."),
    "until": Command(
        "until:until",
        "Wait for a remote operation. Exit code 0: ready, 1: failed, 2: timed out.",
    ),
}


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"everpoll {__version__}")
        raise typer.Exit


def everpoll(
    _version: Annotated[bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)] = (
        False
    ),
) -> None:
    """Durable polling for Python: jobs, watches, services, loops, and tables of your own as queues."""


COMPLETING = "_EVERPOLL_COMPLETE"
"""A shell that completes a line sets this variable, and one of the next two: the line so far."""
LINES = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")


def commands(*wanted: str, completes: bool = False) -> typer.Typer:
    """Return the command line: the wanted commands, and of all others only the name and the help."""
    found = typer.Typer(
        name="everpoll",
        help=everpoll.__doc__,
        no_args_is_help=True,
        add_completion=completes,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    found.callback()(everpoll)
    for name, command in COMMANDS.items():
        if name in wanted:
            _add(found, name, command)
        elif command.is_group:
            group = typer.Typer(name=name, help=command.help)
            group.callback()(_nothing)
            found.add_typer(group, help=command.help)
        else:
            found.command(name, help=command.help)(_nothing)
    return found


def _add(found: typer.Typer, name: str, command: Command) -> None:
    module_name, _, function = command.place.partition(":")
    module = import_module(f"everpoll.cli.{module_name}")
    if command.is_group:
        found.add_typer(getattr(module, function))
    else:
        found.command(name, cls=getattr(module, "COMMAND_CLASS", None))(getattr(module, function))


def _nothing() -> None:
    """Do nothing: the command is listed, and not called."""


def main(
    arguments: Sequence[str] | None = None,
    *,
    program: str | None = None,
    app: str | None = None,
    url: str | None = None,
) -> None:
    """Run the command line; an error that everpoll explains is shown without a traceback.

    A program that has an app and a database passes them, and its commands use them by default.
    """
    given = sys.argv[1:] if arguments is None else arguments
    is_completing = COMPLETING in os.environ
    line = _line_so_far() if is_completing else given
    called = next((argument for argument in line if not argument.startswith("-")), "")
    # Completion is loaded only for the options of `everpoll` itself, and to complete a line.
    completes = program is None and (is_completing or not called)
    command = typer.main.get_command(commands(called, completes=completes))
    _hide_types_of_flags(command)
    try:
        # Completion scripts are about the program that a shell finds by this name, also if it is called by another.
        name = "everpoll" if completes else program
        command(given, prog_name=name, default_map=_defaults(command, {"app": app, "url": url}))
    except EverpollError as error:
        from everpoll.policy.visible_texts import visible  # noqa: PLC0415 - only for errors

        typer.echo(f"everpoll: {visible(str(error))}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _hide_types_of_flags(command: Any) -> None:
    """Show no type beside flags in the help: `--json <bool>` would look as if it took a value."""
    for parameter in command.params:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    for below in getattr(command, "commands", {}).values():
        _hide_types_of_flags(below)


def _line_so_far() -> list[str]:
    """Return the words after `everpoll` of the line that a shell completes."""
    line = next((os.environ[name] for name in LINES if name in os.environ), "")
    return line.split()[1:]


def _defaults(command: Any, given: dict[str, str | None]) -> dict[str, Any]:
    """Return the default of each command: the app; for a command without that parameter, the database address."""
    if hasattr(command, "commands"):
        return {name: _defaults(below, given) for name, below in command.commands.items()}
    names = [parameter.name for parameter in command.params]
    wanted = next((name for name in given if name in names), None)
    return {} if wanted is None or given[wanted] is None else {wanted: given[wanted]}
