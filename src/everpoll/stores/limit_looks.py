"""Limit looks: when a look should visit the keys of limits, and which key's turn it is.

    slots are left over ──▶ every look visits them
    a run of full looks ──▶ keys at which nothing may start cost at most a fiftieth of the time

Visiting a key at which nothing may start is in vain, and there may be many of them. Tasks without limits must not pay
for that: in a run of full looks the next visit comes once fifty times as long has passed as was lost by the last one.

Promises: visits in vain never take more than that. Never: decides what may start; the store does.
"""

import time
from collections.abc import Callable

SHARE = 0.02
"""Of the time, what visits in vain may take in a run of full looks."""
RUN_LOOKS, RUN_ROWS = 2, 25
"""A run: this many looks in a row that brought all they asked for, of at least this many rows."""
NONE_REST_S = 0.01
"""In a run, how long to leave limits alone at least after nothing could start."""
VISITS = 500
"""Keys that one look visits; the next one goes on after them."""
AGED_EVERY_S = 1.0
"""How often a look asks for tasks that have waited too long, unless the last one found some."""


class LimitLooks:
    """What one process remembers of its visits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._run = 0
        self._visit_at = float("-inf")
        self._patience_s = 0.0
        self._is_short = False
        self._aged_at = float("-inf")
        self._found_aged = False
        self.aged_after = ""
        """The last key that a look for aged tasks has seen: the next one goes on after it."""
        self.turns: dict[str, str] = {}
        """By queue, the key that was visited last: it is the turn of those after it."""

    def are_due(self, *, is_full: bool = True, is_aged: bool = False) -> bool:
        """Return whether the next look should visit keys.

        `is_full=False`: it is one of the short looks in the middle of a run. They leave a visit to the next full look,
        unless that one keeps them waiting. `is_aged`: it asks for tasks that have waited too long, and visits keys even
        in a run, about once a second.
        """
        if self._run < RUN_LOOKS or (is_aged and not self._found_aged):
            return True
        return self._clock() >= self._visit_at + (0.0 if is_full else self._patience_s)

    def looked(self, found: int, asked: int, *, started: int = 0) -> None:
        """Note how many tasks a look found, of how many that it asked for, and how many of them have limits.

        Where hardly any task is without a limit, no task is kept waiting by visits: that is not a run.
        """
        self._run = self._run + 1 if found >= asked and found - started >= RUN_ROWS else 0
        self._is_short = False

    def visited(self, keys: int, started: int, took_s: float, *, left_over: int = 0) -> None:
        """Note how many keys a look visited, how many tasks started there, and how many slots it left over.

        `left_over` is 0 as well where it found tasks without a limit.
        """
        self._is_short = keys > 0 and left_over > 0
        in_vain = max(0.0, 1.0 - started / keys) if keys else 1.0
        rest_s = took_s * in_vain / SHARE
        self._visit_at = self._clock() + (rest_s if started else max(rest_s, NONE_REST_S))
        self._patience_s = 0.0 if started else NONE_REST_S

    @property
    def is_short(self) -> bool:
        """True if the last look visited keys, left slots over, and found no task without a limit.

        Then the next look does better after the settlements that are under way, which make room at these keys.
        """
        return self._is_short

    def asks_aged(self, aging_s: float | None) -> bool:
        """Return whether the next look should ask for tasks that have waited too long."""
        return aging_s is not None and self._clock() >= self._aged_at

    def asked_aged(self, aging_s: float, *, found: bool) -> None:
        """Note that a look has asked for aged tasks, and whether it found some."""
        self._found_aged = found
        self._aged_at = self._clock() + (0.0 if found else min(AGED_EVERY_S, aging_s / 10))
