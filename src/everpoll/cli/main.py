"""`everpoll`: where the commands come together, and where errors become one readable line."""

import sys
from typing import Annotated

import typer

from everpoll.cli.demo import demo
from everpoll.cli.jobs import jobs, workers
from everpoll.cli.run import migrate, run
from everpoll.cli.runs import runs
from everpoll.cli.session import visible
from everpoll.cli.tables import tables
from everpoll.cli.until import UntilCommand, until
from everpoll.cli.why import explain
from everpoll.errors import EverpollError
from everpoll.version import __version__

commands = typer.Typer(
    name="everpoll",
    help="Durable polling for Python: look, judge, decide when to look again.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
commands.command()(demo)
commands.command()(run)
commands.command()(migrate)
commands.add_typer(jobs)
commands.add_typer(runs)
commands.add_typer(tables)
commands.command()(workers)
commands.command("why")(explain)
commands.command("until", cls=UntilCommand)(until)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"everpoll {__version__}")
        raise typer.Exit


@commands.callback()
def everpoll(
    _version: Annotated[bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)] = (
        False
    ),
) -> None:
    """Durable polling for Python: look, judge, decide when to look again."""


def main() -> None:
    """Run the command line; an error that everpoll explains is shown without a traceback."""
    try:
        commands()
    except EverpollError as error:
        typer.echo(f"everpoll: {visible(str(error))}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
