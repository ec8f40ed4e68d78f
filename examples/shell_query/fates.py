"""What the simulated cloud is told to do: the fate of each query, and trouble on the way to and from it.

Promises: all times are seconds of the cloud's own clock; the same seed and the same requests meet the same trouble.
"""

import math
import random
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Literal

Kind = Literal["lost", "answer lost", "silent", "late", "status"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """How one query goes, in seconds from its start."""

    runs_s: float = 20.0
    """Until it has really ended."""
    queued_s: float = 3.0
    """How long its status is "Queued", then "Processing"."""
    rows: int = 3
    rows_after_s: float = 0.0
    """From its end until the rowset endpoint knows of it: eventual consistency. `math.inf`: never."""
    reported_after_s: float = 0.0
    """From its end until the status says so. `math.inf`: never; it stays what it was."""
    error: str | None = None
    """It ends badly, with this message; an empty one leaves the word "Error" alone."""
    complete: str = "Complete"
    """The cloud's word for a good end."""
    failed: str = "Error"
    """Its word for a bad one."""
    completed_date_after_s: float | None = None
    """From then on there is a completion date, whatever the status."""
    not_running: tuple[tuple[float, float], ...] = ()
    """Stretches in which "is it running?" is answered with no, although it is."""
    forgotten: tuple[float, float] | None = None
    """A stretch in which the cloud does not know its TaskID."""
    object_id_missing: bool = False
    """The answer to Create has no NewObjectID; it can be found by CustomerKey."""


NEVER = math.inf


@dataclass(frozen=True, slots=True)
class Trouble:
    """What happens to one request."""

    kind: Kind
    delay_s: float = 0.0
    status: int = 0
    retry_after_s: float | None = None


LOST = Trouble("lost")
"""The connection is cut before the cloud has done anything."""
ANSWER_LOST = Trouble("answer lost")
"""It is done, and the connection is cut instead of an answer."""
SILENT = Trouble("silent")
"""Nothing is done, and nothing is ever said."""


def late(delay_s: float) -> Trouble:
    """It is done, and said that much later."""
    return Trouble("late", delay_s=delay_s)


def status(code: int, retry_after_s: float | None = None) -> Trouble:
    """Refused: 500, or 429 with a Retry-After."""
    return Trouble("status", status=code, retry_after_s=retry_after_s)


class Faults:
    """`Faults(seed=7, lost=0.02, late=0.1)` by chance; `script(…)` for the next requests of one kind."""

    def __init__(self, seed: int = 0, *, late_s: float = 3.0, **chances: float) -> None:
        self._rng = random.Random(seed)  # noqa: S311 - a simulation that can be repeated
        self._chances = {
            trouble: chances.pop(name, 0.0)
            for name, trouble in (
                ("lost", LOST),
                ("answer_lost", ANSWER_LOST),
                ("silent", SILENT),
                ("late", late(late_s)),
                ("error", status(500)),
                ("too_many", status(429, 5.0)),
            )
        }
        if chances:
            raise ValueError(f"no trouble is called {min(chances)!r}")
        self._scripts: defaultdict[tuple[str, str | None], deque[Trouble | None]] = defaultdict(deque)

    def script(self, action: str, *troubles: Trouble | None, key: str | None = None) -> None:
        """The next requests of that kind, for that CustomerKey or for any, in order; None: one that goes well."""
        self._scripts[action, key].extend(troubles)

    def next(self, action: str, key: str | None) -> Trouble | None:
        """What happens to this request."""
        for script in ((action, key), (action, None)):
            if self._scripts.get(script):
                return self._scripts[script].popleft()
        chance = self._rng.random()
        for trouble, share in self._chances.items():
            chance -= share
            if chance < 0:
                return trouble
        return None
