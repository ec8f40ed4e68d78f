"""What a watch learns from its ended runs: the spans in which they ended, kept for each kind of operation.

Promises: rows of earlier releases, which have the middle of the span, are understood. A plan is made once for each
history that is read, when a run first needs it. All that is learned lies in the rows of ended runs: a restart keeps it.
"""

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from everpoll.engine.rationed_log import RationedLog
from everpoll.policy import Rng
from everpoll.watches.cadence import Cadence, Growing, History, Learned, decided
from everpoll.watches.decisions.spans import since_start_s
from everpoll.watches.limits import NAME_LIMIT, error_text, short_text
from everpoll.watches.memory import RunMemory
from everpoll.watches.past_runs import Mark, PastRun, is_usable

RUNS = 200
"""Ended runs that are remembered, for each kind of operation."""
RUNS_OF_KINDS = 1_000
"""Ended runs that are read in all where there are several kinds."""
LearnBy = str | Callable[[Any], Any]


class Learning:
    """The histories of one watch, and what its cadence makes of them."""

    def __init__(self, where: str, cadence: Cadence, learn_by: LearnBy | None, failures: RationedLog) -> None:
        self._where = where
        self._failures = failures
        self._cadence = cadence
        self._learn_by = learn_by
        self._runs: dict[str, tuple[PastRun, ...]] = {}
        self._known: dict[str | None, tuple[Cadence, tuple[float, ...]]] = {}
        """What follows from the history of each kind; None: of a kind without one."""

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
        """Return the kind of an operation, from `learn_by=`; operations for which that fails have no kind."""
        learn_by = self._learn_by
        if learn_by is None:
            return ""
        try:
            if callable(learn_by):
                value = learn_by(op)
            else:
                value = op[learn_by] if isinstance(op, dict) else getattr(op, learn_by)
            return short_text(str(value), NAME_LIMIT)
        except Exception as error:  # noqa: BLE001 - the user's own, and no reason to stop looking
            line = "%s: learn_by failed, so the operation counts as of no kind: %s"
            self._failures.log(logging.WARNING, f"{self._where} learn_by", line, self._where, error_text(error))
            return ""

    def decided(self, kind: str, looks: int, memory: RunMemory, now: float, rng: Rng) -> tuple[Any, str | None]:
        """Ask the cadence after that many looks: seconds until the next one, and the reason if it names one."""
        runs = self.runs(kind)
        # All kinds without a history share one plan, so that a kind of its own for each operation fills no memory.
        cadence, durations_s = self._known_of(kind if runs else None, runs)
        return decided(cadence, History(looks, since_start_s(memory, now), durations_s, runs, tuple(memory.marks)), rng)

    def _known_of(self, kind: str | None, runs: tuple[PastRun, ...]) -> tuple[Cadence, tuple[float, ...]]:
        if kind not in self._known:
            cadence = self._cadence.learn(runs) if isinstance(self._cadence, Learned) else self._cadence
            self._known[kind] = (cadence, tuple(run.middle_s for run in runs if run.ended_s < math.inf))
        return self._known[kind]


def past_run(result: Any) -> PastRun | None:
    """Read when a run ended from what its row has; None if it has nothing that can be understood."""
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
