"""What the commands share: where the tasks live, how an app is found, and how answers are printed."""

import asyncio
import importlib
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.console import Console

from everpoll.app import Everpoll
from everpoll.drivers.addresses import masked
from everpoll.errors import BadInput, SchemaOutdated
from everpoll.policy import human, seconds
from everpoll.stores.contract import Store
from everpoll.stores.urls import default_url, store_for

T = TypeVar("T")

Url = Annotated[
    str | None,
    typer.Option("--url", help="Where tasks live; default: $EVERPOLL_URL, then ./everpoll.db.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def with_store(url: str | None, use: Callable[[Store], Awaitable[T]]) -> T:
    """Open the store, use it, and let go of it. The schema is never changed by a command that only looks."""

    async def main() -> T:
        address = url or default_url()
        store = store_for(address)
        if address.startswith("memory:"):
            raise BadInput(f"{address} lives in the process of its app alone: no command can look into it")
        try:
            try:
                await store.open(migrate=False)
            except SchemaOutdated as error:
                raise SchemaOutdated(
                    f"{error} (looked at {masked(address)}; --url or EVERPOLL_URL says where the app keeps its tasks)"
                ) from None
            return await use(store)
        finally:
            await store.close()

    return asyncio.run(main())


def found_app(path: str) -> Everpoll:
    """The app that `module:name` stands for, looked for from the working directory on."""
    module_name, _, name = path.partition(":")
    if not module_name:
        raise BadInput(f"{path!r}: write module:app, such as shop.tasks:app")
    if module_name.endswith(".py") or "/" in module_name:
        meant = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise BadInput(f"{path!r} is a file, and a module is meant: write {meant}:{name or 'app'}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise BadInput(f"{path!r}: no module {error.name!r} here; run it from the folder that holds it") from None
    app = getattr(module, name or "app", None)
    if not isinstance(app, Everpoll):
        apps = ", ".join(key for key, value in vars(module).items() if isinstance(value, Everpoll)) or "none"
        raise BadInput(f"{path!r}: {name or 'app'} is no Everpoll app; apps in {module_name}: {apps}")
    return app


def duration_s(option: str, text: str) -> float:
    """A duration from the shell: "10s", "5m", or a plain number of seconds."""
    number = text.strip().removesuffix(".0")
    return seconds(int(number) if number.isascii() and number.isdigit() else text, name=option, positive=True)


def print_json(value: Any) -> None:
    """Any answer as JSON."""
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def console() -> Console:
    """Where tables go."""
    return Console(highlight=False)


def ago(instant: datetime | None) -> str:
    """How long ago, or in how long."""
    if instant is None:
        return ""
    seconds = (datetime.now(UTC) - instant).total_seconds()
    return f"{human(round(seconds))} ago" if seconds >= 0 else f"in {human(round(-seconds))}"
