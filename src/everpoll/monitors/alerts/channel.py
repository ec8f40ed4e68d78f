"""Channel: what carries letters to people or programs, and what it says where one was not delivered.

    deliver(letter) ──▶ returns                     delivered
                    ├─▶ Undelivered, is_certain     nothing arrived: it is tried again
                    └─▶ Undelivered, not certain    it may have arrived: tried again where the receiver drops repeats

Secrets are written as `${NAME}` and read from the environment when a letter is sent. No repr and no error has one.
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
        """Nothing arrived. False: it may have."""
        self.retry_after_s = retry_after_s
        """How long the receiver wants not to be asked."""


class Tools(NamedTuple):
    """What channels send with."""

    client: Client
    environment: Mapping[str, str]
    threads: DaemonThreads
    """For what blocks."""


@runtime_checkable
class Channel(Protocol):
    """One way to carry letters."""

    @property
    def drops_repeats(self) -> bool:
        """The receiver knows a letter by its id, so that one that may have arrived is sent again."""
        ...

    async def deliver(self, letter: Letter, now: float, tools: Tools) -> None:
        """Send a letter at the time `now`; raise `Undelivered` where it was not, or perhaps not, delivered."""
        ...
