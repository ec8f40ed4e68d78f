"""What a look holds in its hands: `w`. Facts that must last between looks are named here and live in the row.

Promises: a fact changes only by what was seen. A contrary sighting resets a confirmation, an unknown one changes
nothing. Nothing is written before the look has ended: a look that crashes has changed no fact.
"""

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from everpoll.errors import BadInput
from everpoll.policy import Confirm, Confirmation, Duration, Gate, human
from everpoll.watches.memory import RunMemory, Sighting
from everpoll.watches.retry_after import retry_after_s

logger = logging.getLogger("everpoll.watches")

_encoder = msgspec.json.Encoder(decimal_format="string")
NO_IDS = frozenset({"", "0", "none", "null"})
"""Words that remotes use for "no id" (B15)."""
# Due times are stored in microseconds and come back as floats: a hair later is never too early.
HINT_SLACK_S = 0.001


@dataclass(frozen=True, slots=True)
class Verify:
    """Returned by a look, as `return w.verify("rowset")`: what was seen is to be proven by that check (B9)."""

    name: str


class LookContext:
    """One look at one run."""

    def __init__(self, memory: RunMemory, now: float, checks: frozenset[str], key: str) -> None:
        self._memory = memory
        self._now = now
        self._checks = checks
        self.key = key
        """The idempotency key of the run: the same over every crash."""
        self.hints: dict[str, float] = {}
        """When a look could first make a difference, by the fact that says so."""
        self.changed: dict[str, Any] = {}
        """Facts that this look has changed, for whoever asks why."""
        self.floor_s: float | None = None
        """How long a remote that was only attempted wants not to be asked."""

    @property
    def id(self) -> str:
        """Of the run."""
        return self._memory.run_id

    @property
    def handle(self) -> Any:
        """What `start` returned."""
        return self._memory.handle

    @property
    def elapsed(self) -> float:
        """Seconds since the start, without the time in which nobody could look."""
        return self._memory.elapsed_s(self._now)

    @property
    def looks(self) -> int:
        """How many looks there were, this one included."""
        return self._memory.looks

    @property
    def memory(self) -> dict[str, Any]:
        """JSON of your own that lasts until the run ends."""
        return self._memory.user

    @property
    def is_canceling(self) -> bool:
        """Somebody canceled the run, the remote was told, and now it is waited for."""
        return self._memory.phase == "canceling"

    def due(self, name: str, after: Duration = 0, every: Duration = 0) -> bool:
        """Whether it is time for this: not before that much run time, and at most that often."""
        gate = Gate(after, every)
        started_at = self._memory.started_at or self._now - self.elapsed
        if not gate.due(self._memory.dues.get(name), started_at, self._now):
            return False
        self._memory.dues[name] = self._now
        self._memory.count(f"due:{name}")
        return True

    def confirm(self, name: str, seen: bool | None, times: int = 2, gap: Duration = 0) -> bool:
        """Whether it was seen that often, at least the gap apart, with nothing contrary in between; None: unknown."""
        rule = Confirm(times, gap)
        before = self._memory.confirms.get(name, Sighting())
        state, is_confirmed = rule.observe(Confirmation(before.count, before.last_at), seen, self._now)
        if state.count != before.count:
            self._memory.confirms[name] = Sighting(state.count, state.last_at)
            self.changed[f"confirm:{name}"] = f"{state.count} of {times}"
            if state.count > before.count:
                self._memory.count(f"confirm:{name}")
        hint_at = rule.hint_at(state)
        if hint_at is not None and hint_at > self._now:
            self.hints[f"{name}: sighting {state.count + 1} of {times} counts {human(rule.gap_s)} after the last"] = (
                hint_at + HINT_SLACK_S
            )
        return is_confirmed

    async def attempt(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call something that the look can do without: what it returns, or None and a warning if it fails (B12)."""
        name = getattr(function, "__name__", "call")
        self._memory.count(f"attempt:{name}")
        try:
            value = function(*args, **kwargs)
            return await value if inspect.isawaitable(value) else value
        except Exception as error:  # noqa: BLE001 - that is what it is for
            self._memory.count(f"attempt failed:{name}")
            self.floor_s = max(self.floor_s or 0.0, retry_after_s(error) or 0.0) or None
            self.changed[f"attempt:{name}"] = f"{type(error).__name__}: {error}"[:200]
            logger.warning("%s: %s failed, going on without it: %s: %s", self.id, name, type(error).__name__, error)
            return None

    def verify(self, name: str) -> Verify:
        """To be returned: what was seen is ready once that check has passed."""
        if name not in self._checks:
            known = ", ".join(sorted(self._checks)) or "none"
            raise BadInput(f"verify({name!r}): no check has that name; write @….verify({name!r}); there are: {known}")
        return Verify(name)

    def count(self, name: str) -> None:
        """One more of these, shown with the run and its watch (B17)."""
        self._memory.count(name)

    def status(self, word: object) -> str:
        """Note the remote's own word, for people, and have it back trimmed and in lower case (B6)."""
        normal = "" if word is None else str(word).strip().lower()
        self._memory.status = normal or None
        return normal

    def progress(self, text: str) -> None:
        """Note how far the remote is, for people."""
        self._memory.progress = str(text)[:200]


def is_id(handle: object) -> bool:
    """Whether this is a handle at all: ids that mean "none" are not (B15)."""
    if handle is None or handle is False or handle == 0:
        return False
    if isinstance(handle, str):
        return handle.strip().lower() not in NO_IDS
    if isinstance(handle, (dict, list, tuple)):
        return bool(handle)
    return True


def as_json(value: Any, what: str) -> Any:
    """The value as JSON would have it; `BadInput` if it cannot."""
    try:
        return msgspec.json.decode(_encoder.encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"{what} must be JSON: {error}") from None
