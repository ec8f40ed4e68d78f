"""Definition: one service, as its row stores it, and what a new definition changes.

Promises: a definition survives JSON unchanged; fields of later releases are ignored. Header values are stored as the
user wrote them, with `${NAME}` as a reference to the environment, and are in no repr. `options.define` makes a
definition and checks the user's input.
"""

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from everpoll.monitors.alerting import Alert
from everpoll.monitors.targets import shown_target
from everpoll.policy import Backoff, Breaker, human

STALE_INTERVALS = 3
"""A status is stale if no look succeeded for this many intervals."""
DEFAULT_EVERY_S = 30.0
DEFAULT_TIMEOUT_S = 10.0
DEFAULT_BREAKER = Breaker(10, "5m")
DEFAULT_BACKOFF = Backoff("1s", factor=2, cap="5m", jitter=0)
DEFAULT_ALERT = Alert()

FetchKey = tuple[str, str, tuple[tuple[str, str], ...]]


class Definition(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One service, as its row keeps it. Made by `define`."""

    name: str
    target: str
    fetch: str
    """A hash of method, URL and headers: services with the same hash share requests and the phase of their looks."""
    every_s: float = DEFAULT_EVERY_S
    format: str = "auto"
    mapping: dict[str, Any] | None = None
    depends_on: tuple[str, ...] = ()
    timeout_s: float = DEFAULT_TIMEOUT_S
    headers: dict[str, str] = {}
    breaker: Breaker | None = DEFAULT_BREAKER
    backoff: Backoff | None = DEFAULT_BACKOFF
    alert: Alert = DEFAULT_ALERT
    conditions: tuple[str, ...] = ()
    fresh: bool = False
    witness: tuple[str, ...] = ()

    @property
    def is_heartbeat(self) -> bool:
        """Whether the service calls everpoll, instead of being called."""
        return self.target.startswith("beat:")

    @property
    def phase_s(self) -> float:
        """The offset of the looks in the grid of the interval, in seconds since the epoch.

        It is the same for all intervals, so that services with the same URL share requests even if one is looked at
        every 5 s and another every 30 s.
        """
        return int(self.fetch[:8], 16) % 3_600_000 / 1000

    @property
    def reading(self) -> str:
        """A hash of the options that decide how a body is read: if it changes, an unchanged body is read again."""
        return hashed([self.format, self.mapping, self.conditions])

    def __repr__(self) -> str:
        return f"<Definition {self.name!r} {shown_target(self.target)} every {human(self.every_s)}>"

    def __rich_repr__(self) -> Any:
        yield repr(self)


class Change(StrEnum):
    """What differs between the old and the new definition of a service."""

    SAME = "same"
    SETTINGS = "settings"
    """The new options hold from the next look on."""
    INTERVAL = "interval"
    """The row's due time changes at once."""
    TARGET = "target"
    """The row is due at once; breaker and backoff start over."""


def fetch_parts(target: str, headers: Mapping[str, str]) -> FetchKey:
    """Return method, URL and headers: looks with the same ones may share a request."""
    named = sorted((name.lower(), value) for name, value in headers.items())
    return ("GET", target.split("#", 1)[0], tuple(named))


def fetch_key(definition: Definition) -> FetchKey:
    """Return the key of the request that this service may share with others in flight."""
    return fetch_parts(definition.target, definition.headers)


def change(old: Definition, new: Definition) -> Change:
    """Return what differs between two definitions of a service."""
    if old.fetch != new.fetch or old.is_heartbeat != new.is_heartbeat:
        return Change.TARGET
    if old.every_s != new.every_s or (new.is_heartbeat and old.timeout_s != new.timeout_s):
        return Change.INTERVAL
    return Change.SAME if old == new else Change.SETTINGS


def hashed(value: Any) -> str:
    """Return a hash of a JSON value, 16 hexadecimal digits."""
    return hashlib.blake2b(msgspec.json.encode(value), digest_size=8).hexdigest()


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Definition).decode
"""Read a definition; fields of later releases are ignored."""
