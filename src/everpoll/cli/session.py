"""Shared by the commands: the address of the store, importing an app, and printing.

Foreign text (a status, a reason, an error) is printed as text: never as markup or control characters, which a terminal
would interpret.
"""

import asyncio
import getpass
import importlib
import os
import socket
import sys
import traceback
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.markup import escape

from everpoll.engine.actors import ACTOR_LIMIT
from everpoll.errors import BadInput, EverpollError
from everpoll.policy import human, seconds
from everpoll.policy.visible_texts import escaped, visible
from everpoll.stores.contract import Store
from everpoll.stores.urls import default_url, is_missing_file, store_for

if TYPE_CHECKING:
    from everpoll.app import Everpoll

T = TypeVar("T")

Url = Annotated[
    str | None,
    typer.Option("--url", help="The database address; default: $EVERPOLL_URL, then ./everpoll.db.", show_default=False),
]
OfApp = Annotated[
    str | None,
    typer.Option(
        "--app",
        help="The app whose adopted tables are included, as module:variable.",
        metavar="MODULE:APP",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]

_IMPORTERS = {__file__, importlib.__file__, "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"}
LAST_NUMBER = 2**63 - 1  # up to which databases count tasks and events


def with_store(url: str | None, use: Callable[[Store], Awaitable[T]], *, may_create: bool = False) -> T:
    """Open the store, call `use` with it, and close it. The schema is not changed.

    `may_create` creates a missing SQLite file, and prints that it did.
    """

    async def main() -> T:
        address = url or default_url()
        store = store_for(address)
        if address.startswith("memory:"):
            raise BadInput(f"{address} exists only in the process of its app: no command can read it")
        is_new = may_create and is_missing_file(address)
        try:
            await store.open(migrate=is_new)
            if is_new:
                typer.echo(f"Created the database {address}.", err=True)
            return await use(store)
        finally:
            await store.close()

    return asyncio.run(main())


def actor() -> str:
    """Return the user of the command line, for the log: the account's name and the host's."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return visible(f"{user}@{socket.gethostname()}")[:ACTOR_LIMIT]


def found_app(path: str) -> "Everpoll":
    """Import and return the app `module:name`. The working directory comes first on the path."""
    module_name, _, name = path.partition(":")
    if not module_name:
        raise BadInput(f"{path!r}: write module:app, such as shop.tasks:app")
    if module_name.endswith(".py") or "/" in module_name:
        meant = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise BadInput(f"{path!r} is a file, not a module: write {meant}:{name or 'app'}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise _import_failed(path, error) from None
        raise BadInput(f"{path!r}: no module {error.name!r} here; run it from the folder that holds it") from None
    except EverpollError:
        raise
    except Exception as error:  # noqa: BLE001 - the user's module may raise anything
        raise _import_failed(path, error) from None
    from everpoll.app import Everpoll  # noqa: PLC0415 - most commands need no app, and it imports every package

    app = getattr(module, name or "app", None)
    if not isinstance(app, Everpoll):
        apps = ", ".join(key for key, value in vars(module).items() if isinstance(value, Everpoll)) or "none"
        raise BadInput(f"{path!r}: {name or 'app'} is not an Everpoll app; apps in {module_name}: {apps}")
    return app


def _import_failed(path: str, error: Exception) -> BadInput:
    """Print where the user's module failed, without the frames of the command line, and return the error to raise."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in _IMPORTERS:
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames)
    return BadInput(f"{path!r}: {path.partition(':')[0]} cannot be imported: the error above is raised by its own code")


def duration_s(option: str, text: str) -> float:
    """Return the seconds of a duration from the shell: "10s", "5m", or a plain number of seconds."""
    number = text.strip().removesuffix(".0")
    try:
        return seconds(int(number) if number.isascii() and number.isdigit() else text, name=option, positive=True)
    except BadInput as error:
        # A shell passes text only: no numbers, no timedelta.
        raise BadInput(str(error).replace(", a number of seconds or a timedelta", " or a number of seconds")) from None


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    typer.echo(escaped(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()))


def plain(text: str) -> str:
    """Return foreign text with control characters and markup escaped."""
    return escape(visible(text))


def numbered(after: int, accepted: str) -> int:
    """Return the value of `--after`, or raise `BadInput` if no task can have it."""
    if not 0 <= after <= LAST_NUMBER:
        raise BadInput(f"--after {after}: must be between 0 and 2^63-1; {accepted}")
    return after


def console() -> Console:
    """Return the console for tables."""
    # No emoji: ":up:" in a name must be printed as it is.
    return Console(highlight=False, emoji=False)


def print_continuation(after: int | None, searched_back_to: datetime | None) -> None:
    """Print how to get the next page, and how far back a bounded search looked."""
    if searched_back_to is not None:
        console().print(f"Searched back to tasks that were enqueued {ago(searched_back_to)}.")
    if after is not None:
        console().print(f"More: --after {after}")


def ago(instant: datetime | None) -> str:
    """Return the distance of an instant from now, such as "5s ago" or "in 2m"."""
    if instant is None:
        return ""
    seconds = (datetime.now(UTC) - instant).total_seconds()
    return f"{human(round(seconds))} ago" if seconds >= 0 else f"in {human(round(-seconds))}"
