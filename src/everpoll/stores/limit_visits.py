"""Limit visits: when a poll should visit the keys of limits, and which key comes next.

    slots are left over ──▶ every poll visits them
    a run of full polls ──▶ keys at which nothing may start cost at most a fiftieth of the time

A visit of a key at which nothing may start is in vain, and there may be many such keys. Tasks without limits must not
be delayed by that: in a run of full polls, the next visit comes after fifty times the time that the last one lost.

Promises: visits in vain never take more than that. The store decides which tasks may start.
"""

import time
from collections.abc import Callable

SHARE = 0.02
"""The share of the time that visits in vain may take in a run of full polls."""
RUN_POLLS, RUN_ROWS = 2, 25
"""A run begins after this many polls in a row that were full, with at least this many rows each."""
NONE_REST_S = 0.01
"""In a run, the shortest time without visits after a visit at which nothing could start."""
VISITS = 500
"""How many keys one poll visits; the next one goes on after them."""
AGED_EVERY_S = 1.0
"""How often a poll asks for aged tasks, unless the last one found some."""


class LimitVisits:
    """The visits of one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._run = 0
        self._visit_at = float("-inf")
        self._patience_s = 0.0
        self._is_short = False
        self._aged_at = float("-inf")
        self._found_aged = False
        self.only_limits = False
        """True if the last poll found tasks with limits only, and at least half of what it asked for."""
        self.aged_after = ""
        """The last key that a poll for aged tasks has seen: the next one goes on after it."""
        self.turns: dict[str, str] = {}
        """The key that was visited last in each queue; the keys after it come next."""

    def are_due(self, *, is_full: bool = True, is_aged: bool = False) -> bool:
        """Return True if the next poll should visit keys.

        `is_full=False`: it is a short poll in the middle of a run, which leaves a visit to the next full poll, unless
        that one comes too late. `is_aged`: it asks for aged tasks, and visits keys even in a run, about once a second.
        """
        if self._run < RUN_POLLS or (is_aged and not self._found_aged):
            return True
        return self._clock() >= self._visit_at + (0.0 if is_full else self._patience_s)

    def polled(self, found: int, asked: int, *, started: int = 0) -> None:
        """Record how many tasks a poll found, how many it asked for, and how many of the found ones have limits.

        If hardly any task is without a limit, visits delay no other tasks, and this is not a run.
        """
        self._run = self._run + 1 if found >= asked and found - started >= RUN_ROWS else 0
        self._is_short = False
        self.only_limits = 0 < found == started and 2 * found >= asked

    def visited(self, keys: int, started: int, took_s: float, *, left_over: int = 0) -> None:
        """Record how many keys a poll visited, how many tasks started there, and how many slots it left over.

        `left_over` is also 0 if the poll found tasks without a limit.
        """
        self._is_short = keys > 0 and left_over > 0
        in_vain = max(0.0, 1.0 - started / keys) if keys else 1.0
        rest_s = took_s * in_vain / SHARE
        self._visit_at = self._clock() + (rest_s if started else max(rest_s, NONE_REST_S))
        self._patience_s = 0.0 if started else NONE_REST_S

    @property
    def is_short(self) -> bool:
        """True if the last poll visited keys, left slots over, and found no task without a limit.

        The next poll should then wait for the settlements under way, which make room at these keys.
        """
        return self._is_short

    def asks_aged(self, aging_s: float | None) -> bool:
        """Return True if the next poll should ask for aged tasks."""
        return aging_s is not None and self._clock() >= self._aged_at

    def asked_aged(self, aging_s: float, *, found: bool) -> None:
        """Record that a poll has asked for aged tasks, and whether it found some."""
        self._found_aged = found
        self._aged_at = self._clock() + (0.0 if found else min(AGED_EVERY_S, aging_s / 10))
