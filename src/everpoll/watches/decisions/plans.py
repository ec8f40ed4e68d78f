"""Plans: what a run does next. `Admit` and `Call` go on with the step; `Due` and `Over` settle it."""

import math
from typing import Any, TypeAlias

from msgspec import Struct

from everpoll.watches.decisions.events import Calls
from everpoll.watches.memory import Decision


class Admit(Struct, frozen=True, tag="admit"):
    """Ask the rate and the breaker of the remote whether it may be called. Answer: `Admitted` or `Postponed`."""

    what: Calls
    has_token: bool = False
    most_s: float = math.inf
    """Take no rate token if the wait would be longer."""
    may_wait: bool = True
    """False: the budget is used up, so call the remote in any case."""


class Call(Struct, frozen=True, tag="call"):
    """Call this function of the user; for `reason`, read the reason of the cancel."""

    what: Calls
    name: str | None = None
    """The name of the check, for verify."""
    verdict: Any = None
    """The verdict of a start that returned no handle, for adopt."""


class Due(Struct, frozen=True, tag="due"):
    """Settle the step: the run is due again."""

    delay_s: float
    decision: Decision
    event: dict[str, Any] | None = None
    """The event for subscribers; None if they see no change."""


class Over(Struct, frozen=True, tag="over"):
    """Settle the step: the run has ended."""

    decision: Decision | None
    event: dict[str, Any]


Plan: TypeAlias = Admit | Call | Due | Over
