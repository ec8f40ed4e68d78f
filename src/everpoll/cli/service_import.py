"""`everpoll services import FILE`: services from a Depsera manifest (JSON) or a Gatus configuration (YAML).

The file is recognized by its content. Promises: what could not be carried over is reported in words. An existing
service is kept, unless `--replace` is given. A file costs a bounded amount of memory, whatever it refers to.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from msgspec import Struct
from rich import box
from rich.console import Console
from rich.table import Table

from everpoll.cli.given_files import text_of
from everpoll.cli.health_display import one_line
from everpoll.cli.service_access import NO_WORKER, definition_of, publish, with_services
from everpoll.cli.session import AsJson, Url, actor, console, print_json
from everpoll.engine.actors import action
from everpoll.engine.live_workers import is_any_alive
from everpoll.errors import BadInput
from everpoll.monitors.alerting import Alert
from everpoll.monitors.definition import Definition
from everpoll.monitors.importing import Imported, from_depsera, from_gatus
from everpoll.monitors.options import define
from everpoll.monitors.services import Services
from everpoll.monitors.targets import shown_target
from everpoll.policy import human
from everpoll.stores.contract import Store
from everpoll.stores.operations import LogEntry

MAX_VALUES = 1_000_000
"""How many values a file may have. YAML references count with their contents: a short file can become huge."""
RESULT_STYLE = {"added": "green", "replaced": "yellow", "unchanged": "dim", "kept": "bold yellow", "": ""}


class Outcome(Struct, frozen=True):
    """The result of importing one service of the file."""

    name: str
    target: str
    every_s: float
    result: str
    """added, replaced, unchanged, kept (another one of that name is there); empty: a dry run."""


def import_services(
    file: Annotated[Path, typer.Argument(help="A Depsera manifest, or a Gatus configuration.", metavar="FILE")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report; needs no database.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace existing services that differ.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Add the services of a Gatus or Depsera file, and report what could not be carried over."""
    imported = translated(text_of(file, str(file)), str(file))
    definitions = [_definition(one) for one in imported.services]
    is_taken_up = True
    if dry_run:
        outcomes = [_outcome(one, "") for one in definitions]
    else:

        async def use(services: Services, store: Store) -> tuple[list[Outcome], bool]:
            return await _published(services, store, definitions, imported, replace), is_any_alive(
                await store.workers()
            )

        outcomes, is_taken_up = with_services(url, use, may_create=True)
    if as_json:
        print_json({"services": outcomes, "aliases": imported.aliases, "notes": imported.notes})
    else:
        _print(console(), outcomes, imported, dry_run)
    if not is_taken_up:
        typer.echo(NO_WORKER, err=True)


def translated(text: str, file: str) -> Imported:
    """Recognise and translate the text of a file."""
    content = _parsed(text, file)
    if _values(content) > MAX_VALUES:
        raise BadInput(f"{file}: must have at most {MAX_VALUES:,} values, those that it refers to included")
    try:
        if isinstance(content, dict) and ("endpoints" in content or "external-endpoints" in content):
            return from_gatus(content)
        if isinstance(content, dict) and isinstance(content.get("services"), list):
            # Gatus called its endpoints services, and never had a version.
            return from_depsera(content) if "version" in content else from_gatus(content)
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from None
    raise BadInput(f"{file}: is neither a manifest of Depsera (version, services) nor one of Gatus (endpoints)")


def _parsed(text: str, file: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise BadInput(f"{file}: is nested too deep") from None
    except msgspec.DecodeError as error:
        if text.lstrip().startswith("{"):
            raise BadInput(f"{file}: must be JSON: {error}") from None
    try:
        import yaml  # noqa: PLC0415 - only this command needs it, and only for YAML
    except ModuleNotFoundError:
        raise BadInput(f"{file}: reading YAML needs PyYAML; install it with: pip install pyyaml") from None
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else " ".join(str(error).split())[:300]
        raise BadInput(f"{file}: cannot be read as YAML: {why}") from None


def _values(content: Any) -> int:
    """Count the values, at most MAX_VALUES and one; a circle of references counts as endless."""
    count, waiting = 0, [content]
    while waiting and count <= MAX_VALUES:
        one = waiting.pop()
        count += 1
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list | tuple):
            waiting += one
    return count


def _definition(arguments: dict[str, Any]) -> Definition:
    options = {key: value for key, value in arguments.items() if key not in {"name", "target"}}
    if "alert" in options:
        options["alert"] = Alert(**options["alert"])
    return define(arguments["name"], arguments["target"], options)  # type: ignore[arg-type]  # checked there


async def _published(
    services: Services, store: Store, definitions: list[Definition], imported: Imported, replace: bool
) -> list[Outcome]:
    outcomes, wanted = [], []
    there = {row.key for row in await services.rows()}
    for one in definitions:
        before = await definition_of(services, one.name) if one.name in there else None
        if before is None or (before != one and replace):
            wanted.append(one)
            outcomes.append(_outcome(one, "added" if before is None else "replaced"))
        else:
            outcomes.append(_outcome(one, "unchanged" if before == one else "kept"))
    await publish(services, wanted, by=actor())
    for alias, canonical in imported.aliases.items():
        entry = LogEntry("service", alias, action("alias", actor(), f"it counts as {canonical}"))
        await store.health.set_alias(alias, canonical, entry)
    return outcomes


def _outcome(definition: Definition, result: str) -> Outcome:
    return Outcome(definition.name, shown_target(definition.target), definition.every_s, result)


def _print(out: Console, outcomes: list[Outcome], imported: Imported, dry_run: bool) -> None:
    if outcomes:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        table.add_column("service", style="bold", overflow="fold", min_width=8)
        table.add_column("target", overflow="fold")
        table.add_column("every", justify="right", no_wrap=True)
        if not dry_run:
            table.add_column("", no_wrap=True)
        for one in outcomes:
            cells = [one_line(one.name), one_line(one.target), human(one.every_s)]
            table.add_row(*cells, *([] if dry_run else [f"[{RESULT_STYLE[one.result]}]{one.result}[/]"]))
        out.print(table)
    for alias, canonical in imported.aliases.items():
        out.print(f"alias {one_line(alias)} → {one_line(canonical)}")
    if imported.notes:
        out.print("\n[bold]not carried over, or works differently[/]")
    for note in imported.notes:
        out.print(f"• {one_line(note)}")
    out.print(f"\n{_summary(outcomes, len(imported.notes), dry_run)}")


def _summary(outcomes: list[Outcome], notes: int, dry_run: bool) -> str:
    results = [one.result for one in outcomes]
    words = f"{len(outcomes):,} service{'s' if len(outcomes) != 1 else ''}"
    if dry_run:
        words += " would be imported"
    elif outcomes:
        words += ": " + ", ".join(f"{results.count(word)} {word}" for word in RESULT_STYLE if word in results)
        if "kept" in results:
            words += " as they were; --replace replaces them"
    return f"{words}; {notes:,} note{'s' if notes != 1 else ''}"
