"""What a look holds in its hands: `w`. Facts that must last between looks are named here and live in the row.

Promises: a fact changes only by what was seen. A contrary sighting resets a confirmation, an unknown one changes
nothing. Nothing is written before the look has ended: a look that crashes has changed no fact.
"""

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any

from everpoll.errors import BadInput
from everpoll.http.retry_after import retry_after_s
from everpoll.policy import Confirm, Confirmation, Duration, Gate, human, shown
from everpoll.watches.limits import MEMORY_LIMIT, NAME_LIMIT, encoded, named, told, told_error
from everpoll.watches.memory import RunMemory, Sighting

logger = logging.getLogger("everpoll.watches")

NO_IDS = frozenset({"", "0", "none", "null"})
"""Words that remotes use for "no id"."""
# Due times are stored in microseconds and come back as floats: a hair later is never too early.
HINT_SLACK_S = 0.001


@dataclass(frozen=True, slots=True)
class Verify:
    """Returned by a look, as `return w.verify("rowset")`: what was seen is to be proven by that check."""

    name: str


class LookContext:
    """One look at one run."""

    __slots__ = ("_checks", "_memory", "_now", "call", "changed", "floor_s", "hints", "is_told", "key")

    def __init__(self, memory: RunMemory, now: float, checks: Collection[str], key: str) -> None:
        self._memory = memory
        self._now = now
        self._checks = checks
        self.key = key
        """The idempotency key of the run: the same over every crash."""
        self.hints: dict[str, float] = {}
        """When a look could first make a difference, by the fact that says so."""
        self.changed: dict[str, Any] = {}
        """Facts that this look has changed, for whoever asks why."""
        self.call: int | None = None
        """Which call of look_many it is part of: one that fails has failed once, however many were in it."""
        self.is_told = False
        """Whether this look has told how the remote is: what was said before is of yesterday then."""
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

    @memory.setter
    def memory(self, value: dict[str, Any]) -> None:
        if not isinstance(value, dict):
            raise BadInput(f"w.memory = {shown(value)}: write a dict")
        self._memory.user = value

    @property
    def is_canceling(self) -> bool:
        """Somebody canceled the run, the remote was told, and now it is waited for."""
        return self._memory.phase == "canceling"

    def due(self, name: str, after: Duration = 0, every: Duration = 0) -> bool:
        """Whether it is time for this: not before that much run time, and at most that often."""
        gate, memory, now = _gate(after, every), self._memory, self._now
        last_at = memory.dues.get(named(name, memory.dues, "due"))
        if last_at is not None and last_at > now:
            last_at = memory.dues[name] = now  # the store's clock was set back: it counts from now
        if not gate.due(last_at, now if memory.started_at is None else min(memory.started_at, now), now):
            return False
        memory.dues[name] = now
        memory.count(f"due:{name}")
        return True

    def confirm(self, name: str, seen: bool | None, times: int = 2, gap: Duration = 0) -> bool:
        """Whether it was seen that often, at least the gap apart, with nothing contrary in between; None: unknown."""
        rule, now = _confirm(times, gap), self._now
        if seen is not None and not isinstance(seen, bool):
            # 0, "" and "false" would all be sightings.
            raise BadInput(f"confirm({shown(name)}, seen={shown(seen)}): write True, False, or None for unknown")
        before = self._memory.confirms.get(named(name, self._memory.confirms, "confirm"), Sighting())
        if before.last_at is not None and before.last_at > now:
            before.last_at = now  # the store's clock was set back: the gap counts from now
        state, is_confirmed = rule.observe(Confirmation(before.count, before.last_at), seen, now)
        if state.count != before.count:
            self._memory.confirms[name] = Sighting(state.count, state.last_at)
            self.changed[f"confirm:{name}"] = f"{state.count} of {times}"
            if state.count > before.count:
                self._memory.count(f"confirm:{name}")
        hint_at = rule.hint_at(state)
        if hint_at is not None and hint_at > now:
            self.hints[f"{name}: sighting {state.count + 1} of {times} counts {human(rule.gap_s)} after the last"] = (
                hint_at + HINT_SLACK_S
            )
        return is_confirmed

    def attempt(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call something that the look can do without: what it returns, or None and a warning if it fails.

        To be awaited; but in the thread of a plain look it is called there and then.
        """
        name = told(getattr(function, "__name__", "call"), NAME_LIMIT)
        self._memory.count(f"attempt:{name}")
        attempt = self._attempted(name, function, args, kwargs)
        return attempt if _is_in_event_loop() else _at_once(attempt)

    async def _attempted(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        try:
            value = function(*args, **kwargs)
            return await value if inspect.isawaitable(value) else value
        except Exception as error:  # noqa: BLE001 - that is what it is for
            text = told_error(error)
            self._memory.count(f"attempt failed:{name}")
            self.floor_s = max(self.floor_s or 0.0, retry_after_s(error) or 0.0) or None
            self.changed[f"attempt:{name}"] = told(text)
            logger.warning("%s: %s failed, going on without it: %s", self.id, name, text)
            return None

    def verify(self, name: str) -> Verify:
        """To be returned: what was seen is ready once that check has passed."""
        if name not in self._checks:
            known = ", ".join(sorted(self._checks)) or "none"
            raise BadInput(f"verify({name!r}): no check has that name; write @….verify({name!r}); there are: {known}")
        return Verify(name)

    def count(self, name: str) -> None:
        """One more of these, shown with the run and its watch."""
        self._memory.count(told(name, NAME_LIMIT))

    def status(self, word: object) -> str:
        """Note the remote's own word, for people, and have it back trimmed and in lower case."""
        normal = "" if word is None else str(word).strip().lower()
        self._memory.status = told(normal) or None
        self.is_told = True
        return normal

    def progress(self, text: str) -> None:
        """Note how far the remote is, for people."""
        self._memory.progress = told(text)
        self.is_told = True

    def check_memory(self) -> None:
        """`BadInput` where `w.memory` cannot be stored as it is."""
        if self._memory.user:
            encoded(self._memory.user, "w.memory", MEMORY_LIMIT)

    def let_go(self) -> None:
        """The look has failed: whoever still holds this, a thread that was left behind, changes nothing any more."""
        self._memory = RunMemory(self._memory.run_id, handle=self._memory.handle)


# Looks say the same durations again and again: reading them took half of the time of a look, 30 of 65 us.
@functools.lru_cache(maxsize=256, typed=True)
def _gate(after: Duration, every: Duration) -> Gate:
    return Gate(after, every)


@functools.lru_cache(maxsize=256, typed=True)
def _confirm(times: int, gap: Duration) -> Confirm:
    return Confirm(times, gap)


def is_id(handle: object) -> bool:
    """Whether this is a handle at all: ids that mean "none" are not."""
    if handle is None or handle is False or handle == 0:
        return False
    if isinstance(handle, str):
        return handle.strip().lower() not in NO_IDS
    if isinstance(handle, (dict, list, tuple)):
        return bool(handle)
    return True


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _at_once(attempt: Coroutine[Any, Any, Any]) -> Any:
    """Run it without an event loop: what it awaits cannot be."""
    try:
        attempt.send(None)
    except StopIteration as ended:
        return ended.value
    attempt.close()
    raise BadInput("w.attempt of an async function needs an async look: write async def, and await it")
