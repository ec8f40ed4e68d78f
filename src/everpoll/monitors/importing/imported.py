"""Imported: the services made from another monitor's configuration, and notes on what could not be translated.

Promises: `app.service` accepts every service in the result, and their names are unique. Everything that is left out has
a note, without the values of headers, tokens or passwords.
"""

from typing import Any

from msgspec import Struct

from everpoll.errors import BadInput
from everpoll.monitors.alerting import Alert
from everpoll.monitors.bounds import quoted
from everpoll.monitors.importing.go_durations import duration_text
from everpoll.monitors.options import define

MAX_SERVICES = 10_000
"""Services of one configuration."""
SHORTEST_S, LONGEST_S = 5.0, 3600.0
"""The bounds of `every=`, unless an app sets others."""


class Imported(Struct, frozen=True):
    """The result of an import."""

    services: tuple[dict[str, Any], ...]
    """The keyword arguments of `app.service`; `alert` has those of `Alert`."""
    aliases: dict[str, str] = {}
    """For `app.services.alias(name, canonical)`."""
    notes: tuple[str, ...] = ()
    """Sentences about what could not be carried over, or works differently."""


class Collecting:
    """The services, aliases and notes so far."""

    def __init__(self) -> None:
        self._services: dict[str, dict[str, Any]] = {}
        self._notes: dict[str, None] = {}
        self.aliases: dict[str, str] = {}

    def note(self, about: str, text: str) -> None:
        """Add a note, unless it was added before."""
        self._notes[f"{about}: {text}"] = None

    def has(self, name: str) -> bool:
        """Tell whether a service has that name."""
        return name in self._services

    def service(self, name: str) -> dict[str, Any]:
        """Return the definition of a service, which the caller may change."""
        return self._services[name]

    def add(self, about: str, definition: dict[str, Any]) -> bool:
        """Add a service; return False, with a note, if its name is taken or if everpoll would refuse it."""
        name = definition.get("name")
        if isinstance(name, str) and name in self._services:
            self.note(about, f"left out: there is a service named {quoted(name)} already")
            return False
        if len(self._services) >= MAX_SERVICES:
            self.note("services", f"more than {MAX_SERVICES:,}; the further ones are left out")
            return False
        try:
            check(definition)
        except BadInput as refused:
            self.note(about, f"left out: {refused}")
            return False
        self._services[str(name)] = definition
        return True

    def result(self) -> Imported:
        """Return the services, aliases and notes."""
        return Imported(tuple(self._services.values()), self.aliases, tuple(self._notes))


def check(definition: dict[str, Any]) -> None:
    """Raise `BadInput` if `app.service` would refuse these arguments."""
    options = {key: value for key, value in definition.items() if key not in {"name", "target"}}
    if "alert" in options:
        options["alert"] = Alert(**options["alert"])
    define(definition.get("name"), definition.get("target"), options)  # type: ignore[arg-type] # checked there


def every(about: str, interval_s: float, into: Collecting) -> str:
    """Return an interval as text, within the bounds of everpoll; add a note if it was changed."""
    kept = min(max(interval_s, SHORTEST_S), LONGEST_S)
    if kept != interval_s:
        into.note(about, f"an interval of {duration_text(interval_s)} becomes {duration_text(kept)}")
    return duration_text(kept)
