"""Channel: delivers letters to people or programs, and raises an error for a letter that it did not deliver.

    deliver(letter) ──▶ returns                     delivered
                    ├─▶ Undelivered, is_certain     it did not arrive: tried again
                    └─▶ Undelivered, not certain    it may have arrived: tried again only if the receiver drops repeats

Secrets are written as `${NAME}` and read from the environment when a letter is sent. No repr and no error contains one.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from everpoll.engine.threads import DaemonThreads
from everpoll.errors import EverpollError
from everpoll.http import Client
from everpoll.monitors.alerts.letter import Letter

MAX_ERROR_CHARS = 300


class Undelivered(EverpollError):
    """A channel did not deliver a letter; the message says why, without secrets."""

    def __init__(self, why: str, *, is_certain: bool, retry_after_s: float | None = None) -> None:
        super().__init__(why)
        self.is_certain = is_certain
        """True: the letter did not arrive. False: it may have."""
        self.retry_after_s = retry_after_s
        """How long the receiver wants no request."""


class Tools(NamedTuple):
    """The means that channels use to send."""

    client: Client
    environment: Mapping[str, str]
    threads: DaemonThreads
    """For blocking calls."""


@runtime_checkable
class Channel(Protocol):
    """Delivers letters by one protocol."""

    @property
    def drops_repeats(self) -> bool:
        """Whether the receiver ignores a letter whose id it knows; then one that may have arrived is sent again."""
        ...

    async def deliver(self, letter: Letter, now: float, tools: Tools) -> None:
        """Send a letter at the time `now`; raise `Undelivered` if it did not arrive, or may not have."""
        ...
