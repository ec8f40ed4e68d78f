"""Definition: one service as its row keeps it, and what replacing it means.

Promises: a definition survives JSON unchanged; fields of later releases are ignored. The values of headers are kept as
they are written, with `${NAME}` as a reference to the environment, and are in no repr. Made by `options.define`, which
checks what the user wrote.
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
"""Without a successful look for this many intervals, what is stored is stale."""
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
    """A hash of method, URL and headers: what two services share a request by, and where the phase comes from."""
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
        """The service calls everpoll; nothing is asked."""
        return self.target.startswith("beat:")

    @property
    def phase_s(self) -> float:
        """Where in the grid of its interval this service is looked at, in seconds since the epoch.

        One number for all intervals: a service that is looked at every 5 s meets one with the same URL and 30 s.
        """
        return int(self.fetch[:8], 16) % 3_600_000 / 1000

    @property
    def reading(self) -> str:
        """A hash of how a body is read: an unchanged body is read again when this changes."""
        return hashed([self.format, self.mapping, self.conditions])

    def __repr__(self) -> str:
        return f"<Definition {self.name!r} {shown_target(self.target)} every {human(self.every_s)}>"

    def __rich_repr__(self) -> Any:
        yield repr(self)


class Change(StrEnum):
    """What a new definition under a known name means for its row."""

    SAME = "same"
    SETTINGS = "settings"
    """It holds from the next look on."""
    INTERVAL = "interval"
    """The row's due time changes at once."""
    TARGET = "target"
    """The row is due at once; breaker and backoff start over."""


def fetch_parts(target: str, headers: Mapping[str, str]) -> FetchKey:
    """Return method, URL and headers: two requests that have them in common may be one."""
    named = sorted((name.lower(), value) for name, value in headers.items())
    return ("GET", target.split("#", 1)[0], tuple(named))


def fetch_key(definition: Definition) -> FetchKey:
    """Return the key of the request that this service may share with others in flight."""
    return fetch_parts(definition.target, definition.headers)


def change(old: Definition, new: Definition) -> Change:
    """Say what replacing a definition means for the row."""
    if old.fetch != new.fetch or old.is_heartbeat != new.is_heartbeat:
        return Change.TARGET
    if old.every_s != new.every_s or (new.is_heartbeat and old.timeout_s != new.timeout_s):
        return Change.INTERVAL
    return Change.SAME if old == new else Change.SETTINGS


def hashed(value: Any) -> str:
    """Return 16 hexadecimal digits that stand for a JSON value."""
    return hashlib.blake2b(msgspec.json.encode(value), digest_size=8).hexdigest()


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Definition).decode
"""Read a definition; fields of later releases are ignored."""
