"""What a watch learns from its ended runs: the spans in which they ended, kept for each kind of operation.

Promises: rows of earlier releases, which have only the middle of the span, can be read. A plan is made once for each
history that is read, when a run first needs it. Everything learned is read from rows of ended runs: a restart keeps it.
"""

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from everpoll.engine.rate_limited_log import RateLimitedLog
from everpoll.policy import Rng
from everpoll.watches.cadence import Cadence, Growing, History, Learned, next_wait
from everpoll.watches.decisions.spans import since_start_s
from everpoll.watches.limits import NAME_LIMIT, error_text, short_text
from everpoll.watches.memory import RunMemory
from everpoll.watches.past_runs import Mark, PastRun, is_usable

RUNS = 200
"""How many ended runs are remembered for each kind of operation."""
RUNS_OF_KINDS = 1_000
"""How many ended runs are read in all if there are several kinds."""
LearnBy = str | Callable[[Any], Any]


class Learning:
    """The histories of one watch, and the cadence that follows from each."""

    def __init__(self, where: str, cadence: Cadence, learn_by: LearnBy | None, failures: RateLimitedLog) -> None:
        self._where = where
        self._failures = failures
        self._cadence = cadence
        self._learn_by = learn_by
        self._runs: dict[str, tuple[PastRun, ...]] = {}
        self._known: dict[str | None, tuple[Cadence, tuple[float, ...]]] = {}
        """The cadence and the durations for each kind; under None, for all kinds without a history."""

    @property
    def is_wanted(self) -> bool:
        """Whether the cadence takes earlier runs into account."""
        return not isinstance(self._cadence, Growing)

    @property
    def most(self) -> int:
        """How many ended runs to read."""
        return RUNS if self._learn_by is None else RUNS_OF_KINDS

    def read(self, results: Iterable[Any]) -> None:
        """Replace the histories by those of these ended runs, newest first."""
        found: dict[str, list[PastRun]] = defaultdict(list)
        for result in results:
            run = past_run(result)
            kind = _kind_in(result) if self._learn_by is not None else ""
            if run is not None and len(found[kind]) < RUNS:
                found[kind].append(run)
        self._runs = {kind: tuple(runs) for kind, runs in found.items()}
        self._known.clear()

    def runs(self, kind: str = "") -> tuple[PastRun, ...]:
        """Return the ended runs of one kind, newest first."""
        return self._runs.get(kind, ())

    def kind_of(self, op: Any) -> str:
        """Return the kind of an operation by `learn_by=`; empty if that fails."""
        learn_by = self._learn_by
        if learn_by is None:
            return ""
        try:
            if callable(learn_by):
                value = learn_by(op)
            else:
                value = op[learn_by] if isinstance(op, dict) else getattr(op, learn_by)
            return short_text(str(value), NAME_LIMIT)
        except Exception as error:  # noqa: BLE001 - the user's function; the looks go on without a kind
            line = "%s: learn_by failed, so the operation has no kind: %s"
            self._failures.log(logging.WARNING, f"{self._where} learn_by", line, self._where, error_text(error))
            return ""

    def next_wait(self, kind: str, looks: int, memory: RunMemory, now: float, rng: Rng) -> tuple[Any, str | None]:
        """Return the seconds until the next look after that many looks, and the reason if the cadence names one."""
        runs = self.runs(kind)
        # All kinds without a history share one plan: else one kind for each operation would fill the memory.
        cadence, durations_s = self._known_of(kind if runs else None, runs)
        return next_wait(
            cadence, History(looks, since_start_s(memory, now), durations_s, runs, tuple(memory.marks)), rng
        )

    def _known_of(self, kind: str | None, runs: tuple[PastRun, ...]) -> tuple[Cadence, tuple[float, ...]]:
        if kind not in self._known:
            cadence = self._cadence.learn(runs) if isinstance(self._cadence, Learned) else self._cadence
            self._known[kind] = (cadence, tuple(run.middle_s for run in runs if run.ended_s < math.inf))
        return self._known[kind]


def past_run(result: Any) -> PastRun | None:
    """Read from the row of a run when it ended; None if the row does not tell."""
    try:
        match result:
            case {"span": [running_s, ended_s]}:
                end_s = math.inf if ended_s is None else float(ended_s)
                run = PastRun(float(running_s), end_s, _marks(result.get("marks")))
            case {"took_s": int() | float() as took_s}:
                run = PastRun(float(took_s), float(took_s))
            case _:
                return None
    except (TypeError, ValueError, OverflowError):
        return None
    return run if 0 <= run.running_s < math.inf and run.ended_s >= run.running_s else None


def _marks(stored: Any) -> tuple[Mark, ...]:
    marks = ((float(share), float(at_s)) for share, at_s in stored or ())
    return tuple(one for one in marks if is_usable(one))


def _kind_in(result: Any) -> str:
    kind = result.get("learned_as") if isinstance(result, dict) else None
    return kind if isinstance(kind, str) else ""
