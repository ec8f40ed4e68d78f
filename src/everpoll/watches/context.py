"""`LookContext`: the `w` of a look. It keeps named facts in the run's memory that last between looks.

Promises: only a look changes a fact. A contrary sighting resets a confirmation; an unknown one changes nothing. Facts
are stored once the look has ended: a look that fails changes no fact.
"""

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from everpoll.errors import BadInput
from everpoll.http.retry_after import retry_after_s
from everpoll.policy import Confirm, Confirmation, Duration, Gate, human, shown
from everpoll.watches.decisions.events import Report
from everpoll.watches.limits import MEMORY_LIMIT, NAME_LIMIT, encoded, error_text, fact_name, short_text
from everpoll.watches.memory import RunMemory, Sighting
from everpoll.watches.verdicts import Verify

logger = logging.getLogger("everpoll.watches")

NO_IDS = frozenset({"", "0", "none", "null"})
"""Words that remotes use for "no id"."""
# Due times are stored in microseconds and come back as floats: this slack keeps a look from being a little too early.
HINT_SLACK_S = 0.001


class LookContext:
    """One look at one run."""

    __slots__ = (
        "_checks",
        "_memory",
        "_now",
        "_owns_memory",
        "call",
        "changed",
        "floor_s",
        "has_reported",
        "hints",
        "key",
    )

    def __init__(self, memory: RunMemory, now: float, checks: Collection[str], key: str) -> None:
        self._memory = memory
        self._owns_memory = False
        self._now = now
        self._checks = checks
        self.key = key
        """The idempotency key of the run: the same over every crash."""
        self.hints: dict[str, float] = {}
        """Instants at which a fact can change, by the reason to look then."""
        self.changed: dict[str, Any] = {}
        """Facts that this look has changed; stored with the decision."""
        self.call: int | None = None
        """The number of the look_many call that this look is part of: a failure counts once for the call."""
        self.has_reported = False
        """Whether this look has set the status or the progress."""
        self.floor_s: float | None = None
        """The longest Retry-After that a call of `attempt` has met."""

    @property
    def id(self) -> str:
        """The id of the run."""
        return self._memory.run_id

    @property
    def handle(self) -> Any:
        """The handle that `start` returned."""
        return self._memory.handle

    @property
    def elapsed(self) -> float:
        """Seconds since the start, without pauses of the budget."""
        return self._memory.elapsed_s(self._now)

    @property
    def looks(self) -> int:
        """The number of looks, this one included."""
        return self._memory.looks

    @property
    def memory(self) -> dict[str, Any]:
        """JSON of your own that lasts until the run ends."""
        if not self._owns_memory:
            # Copied at the first use: most looks do not touch it, and one that fails must leave it as it was.
            self._owns_memory, self._memory.user = True, _copied(self._memory.user)
        return self._memory.user

    @memory.setter
    def memory(self, value: dict[str, Any]) -> None:
        if not isinstance(value, dict):
            raise BadInput(f"w.memory = {shown(value)}: write a dict")
        self._owns_memory, self._memory.user = True, value

    @property
    def is_canceling(self) -> bool:
        """Whether the run is being canceled: the remote was asked to cancel, and the run waits for the end."""
        return self._memory.phase == "canceling"

    def due(self, name: str, after: Duration = 0, every: Duration = 0) -> bool:
        """Return True if the named fact is due: once the run is `after` old, and then at most once per `every`."""
        gate, memory, now = _gate(after, every), self._memory, self._now
        last_at = memory.dues.get(fact_name(name, memory.dues, "due"))
        if last_at is not None and last_at > now:
            last_at = memory.dues[name] = now  # the store's clock was set back: count from now
        if not gate.due(last_at, now if memory.started_at is None else min(memory.started_at, now), now):
            return False
        memory.dues[name] = now
        memory.count(f"due:{name}")
        return True

    def confirm(self, name: str, seen: bool | None, times: int = 2, gap: Duration = 0) -> bool:
        """Return True once the fact was seen `times` times, at least `gap` apart and without a contrary sighting.

        `seen` is True, False (a contrary sighting, which starts the count again), or None for unknown.
        """
        rule, now = _confirm(times, gap), self._now
        if seen is not None and not isinstance(seen, bool):
            # Else "false" would count as a sighting.
            raise BadInput(f"confirm({shown(name)}, seen={shown(seen)}): write True, False, or None for unknown")
        before = self._memory.confirms.get(fact_name(name, self._memory.confirms, "confirm"), Sighting())
        if before.last_at is not None and before.last_at > now:
            # The store's clock was set back: the gap counts from now.
            before = Sighting(before.count, now, before.first_at, before.before_at)
            self._memory.confirms[name] = before
        state, is_confirmed = rule.observe(Confirmation(before.count, before.last_at), seen, now)
        if state.count != before.count:
            first_at, before_at = before.first_at, before.before_at
            if before.count == 0:
                first_at, before_at = now, self._memory.looked_at
            self._memory.confirms[name] = Sighting(state.count, state.last_at, first_at, before_at)
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
        """Call a function whose failure the look survives; return its value, or log a warning and return None.

        An async look awaits the call. In a plain look it runs at once.
        """
        name = short_text(getattr(function, "__name__", "call"), NAME_LIMIT)
        self._memory.count(f"attempt:{name}")
        attempt = self._attempted(name, function, args, kwargs)
        return attempt if _is_in_event_loop() else _at_once(attempt)

    async def _attempted(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        try:
            value = function(*args, **kwargs)
            return await value if inspect.isawaitable(value) else value
        except Exception as error:  # noqa: BLE001 - the look goes on without the value
            text = error_text(error)
            self._memory.count(f"attempt failed:{name}")
            self.floor_s = max(self.floor_s or 0.0, retry_after_s(error) or 0.0) or None
            self.changed[f"attempt:{name}"] = short_text(text)
            logger.warning("%s: %s failed; the look goes on without it: %s", self.id, name, text)
            return None

    def verify(self, name: str) -> Verify:
        """Return this from the look: the run is ready once the named check has passed."""
        if name not in self._checks:
            known = ", ".join(sorted(self._checks)) or "none"
            raise BadInput(
                f"verify({name!r}): no check has that name: write @….verify({name!r}); known checks: {known}"
            )
        return Verify(name)

    def count(self, name: str) -> None:
        """Add one to a counter that is shown with the run and its watch."""
        self._memory.count(short_text(name, NAME_LIMIT))

    def status(self, word: object) -> str:
        """Store the remote's own word for people, and return it trimmed and in lower case."""
        normal = "" if word is None else str(word).strip().lower()
        self._memory.status = short_text(normal) or None
        self.has_reported = True
        return normal

    def progress(self, text: str) -> None:
        """Store how far the remote is, for people."""
        self._memory.progress = short_text(text)
        self.has_reported = True

    def check_memory(self) -> None:
        """Raise `BadInput` if `w.memory` cannot be stored as it is."""
        if self._owns_memory and self._memory.user:
            encoded(self._memory.user, "w.memory", MEMORY_LIMIT)

    def report(self, *, has_failed: bool = False) -> Report:
        """Return what the look reported; of a failed look, only counters, status and progress."""
        memory = self._memory
        words = memory.counters, memory.status, memory.progress
        if has_failed:
            return Report(words[0], status=words[1], progress=words[2], has_reported=self.has_reported)
        user = memory.user if self._owns_memory else None
        facts = memory.confirms, memory.dues, user
        return Report(words[0], *facts, *words[1:], self.has_reported, self.hints, self.changed, self.floor_s)

    def detach(self) -> None:
        """Detach from the run's memory: the look has failed, and its thread, if it still runs, must not change it."""
        self._memory = RunMemory(self._memory.run_id, handle=self._memory.handle)
        self._owns_memory = True


# Looks pass the same durations again and again: parsing them took 30 of the 65 us of a look.
@functools.lru_cache(maxsize=256, typed=True)
def _gate(after: Duration, every: Duration) -> Gate:
    return Gate(after, every)


@functools.lru_cache(maxsize=256, typed=True)
def _confirm(times: int, gap: Duration) -> Confirm:
    return Confirm(times, gap)


def _copied(value: Any) -> Any:
    """Copy JSON."""
    if isinstance(value, dict):
        return {name: _copied(one) for name, one in value.items()}
    return [_copied(one) for one in value] if isinstance(value, list) else value


def is_id(handle: object) -> bool:
    """Return True if this can be a handle: empty values and ids that mean "none" cannot."""
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
    """Run a coroutine that awaits nothing, without an event loop; raise `BadInput` if it awaits."""
    try:
        attempt.send(None)
    except StopIteration as ended:
        return ended.value
    attempt.close()
    raise BadInput("w.attempt of an async function needs an async look: write async def, and await w.attempt(…)")
