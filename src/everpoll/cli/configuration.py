"""`everpoll.toml`: services, aliases and channels that an operator writes, read and checked whole before anything runs.

    [services_bounds]     shortest, longest, per_host, slots: as in app.services.configure
    [services_defaults]   options of app.service, for entries that do not set them
    [[services]]          name, target, and the options of app.service; alert, breaker and backoff are tables
    [aliases]             the name that services use for a dependency = its canonical name
    [channels.NAME]       a channel for alerts, such as Slack or a webhook

Promises: a mistake is one line that names the file, the entry and the key, and says what to write. Secrets are
references to the environment, `${NAME}`: a password or a token in the file itself is refused, and never repeated in a
message. Nothing runs unless the whole file can be used.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from everpoll.app import Everpoll
from everpoll.cli.given_files import text_of
from everpoll.errors import BadInput
from everpoll.http.environment import references
from everpoll.monitors.written_options import OPTIONS, check_known, refuse_password, written_options
from everpoll.policy import shown

MAX_SERVICES = 10_000
BOUNDS = ("shortest", "longest", "per_host", "slots")
TABLES = ("services_bounds", "services_defaults", "services", "aliases", "channels")
AddChannels = Callable[[Everpoll, dict[str, Any]], None]
"""Makes a channel of each table; raises `BadInput`, with the channel and the key, for a mistake."""


class Entry(Struct, frozen=True, kw_only=True):
    """One service of the file."""

    place: str
    """The place in the file, for messages."""
    name: str
    target: str
    options: dict[str, Any]


class Configuration(Struct, frozen=True, kw_only=True):
    """The contents of a file, checked."""

    file: str
    services: tuple[Entry, ...] = ()
    bounds: dict[str, Any] = {}
    aliases: dict[str, str] = {}
    channels: dict[str, Any] = {}
    """The tables of channels by name, unchecked: the alerts package checks them."""


def load(path: Path) -> Configuration:
    """Read a file; raise `BadInput` if it is not valid."""
    return read(text_of(path, str(path)), str(path))


def read(text: str, file: str) -> Configuration:
    """Read the text of a file; `file` is its name, for messages."""
    with located(file):
        try:
            tables = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            why = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "nested too deep"
            raise BadInput(f"cannot be read as TOML: {why}") from None
        check_known(tables, TABLES, "table")
        with located("[services_defaults]"):
            defaults = written_options(_table(tables.get("services_defaults", {})), OPTIONS)
        with located("[services_bounds]"):
            bounds = _table(tables.get("services_bounds", {}))
            check_known(bounds, BOUNDS, "key")
        with located("[aliases]"):
            aliases = _aliases(tables.get("aliases", {}))
        with located("[channels]"):
            channels = _table(tables.get("channels", {}))
    services = _entries(tables.get("services", []), defaults, file)
    return Configuration(file=file, services=services, bounds=bounds, aliases=aliases, channels=channels)


def configure(app: Everpoll, configuration: Configuration, add_channels: AddChannels) -> None:
    """Register the services, aliases and channels of a file in an app; `add_channels` makes the channels."""
    file = configuration.file
    with located(f"{file}: [services_bounds]"):
        app.services.configure(**configuration.bounds)
    with located(file):
        add_channels(app, configuration.channels)
    for entry in configuration.services:
        with located(entry.place):
            app.service(entry.name, entry.target, **entry.options)
    for name, canonical in configuration.aliases.items():
        app.services.alias(name, canonical)


@contextmanager
def located(place: str) -> Iterator[None]:
    """Return the message of a mistake with its place in the file, in the words of the file."""
    try:
        yield
    except BadInput as error:
        words = str(error).replace("app.services.configure(shortest=, longest=) changes", "[services_bounds] changes")
        words = words.replace(", a number of seconds or a timedelta", " or a number of seconds")
        raise BadInput(f"{place}: {words}") from None


def _entries(value: Any, defaults: Mapping[str, Any], file: str) -> tuple[Entry, ...]:
    with located(file):
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise BadInput("services: must be entries; write [[services]], with two brackets, before each of them")
        if len(value) > MAX_SERVICES:
            raise BadInput(f"[[services]]: must be at most {MAX_SERVICES:,} entries, not {len(value):,}")
    entries: dict[str, Entry] = {}
    for number, table in enumerate(value, 1):
        place = f"{file}: entry {number} of [[services]]"
        with located(place):
            entry = _entry(table, defaults, place)
            if entry.name in entries:
                raise BadInput(f"name={shown(entry.name)}: an entry before it has that name")
            entries[entry.name] = entry
    return tuple(entries.values())


def _entry(table: dict[str, Any], defaults: Mapping[str, Any], place: str) -> Entry:
    name = _text(table, "name", "billing")
    with located(f"service {shown(name)}"):
        options = written_options(table, OPTIONS | {"name", "target"})
        target = _text(table, "target", "https://billing.internal/health")
        refuse_password(target)
    return Entry(place=place, name=name, target=target, options={**defaults, **options})


def _text(table: dict[str, Any], key: str, example: str) -> str:
    if key not in table:
        raise BadInput(f'{key} is missing; write {key} = "{example}"')
    value = table[key]
    if not isinstance(value, str):
        raise BadInput(f'{key}={shown(value)}: must be text; write {key} = "{example}"')
    return value


def missing_variables(configuration: Configuration, environment: Mapping[str, str]) -> list[str]:
    """Return the variables that services and channels refer to, but that are not set."""
    texts = list(_texts([[one.options for one in configuration.services], configuration.channels]))
    named = references({str(place): text for place, text in enumerate(texts)})
    return sorted(name for name in named if not environment.get(name))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)


def _aliases(value: Any) -> dict[str, str]:
    aliases = _table(value)
    for name, canonical in aliases.items():
        if not isinstance(canonical, str) or not canonical.strip() or not name.strip():
            raise BadInput(f'{shown(name)[1:-1]}={shown(canonical)}: must be a name; write "pg-main" = "PostgreSQL"')
    return aliases


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput("must be a table of keys and values")
    return value
