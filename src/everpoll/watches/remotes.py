"""The remotes behind a watch: how often each may be asked, and whether it is worth asking at all.

Promises: a remote that is down costs one probe a cooldown, whatever the number of runs that wait for it. State is this
process's own: every process finds out by itself. Never: calls anything.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from everpoll.policy import Breaker, BreakerState, Rate, Tokens, human

REMOTES_LIMIT = 10_000
"""Remotes that are remembered; beyond that the one first seen is forgotten, and starts over."""


@dataclass(slots=True)
class _Remote:
    tokens: Tokens
    breaker: BreakerState


@dataclass(frozen=True, slots=True)
class Postponed:
    """Not now."""

    wait_s: float
    rule: str
    why: str


class Remotes:
    """All remotes of one watch, by name: a host, a tenant, an account."""

    def __init__(self, rate: Rate | None, breaker: Breaker | None, chance: Callable[[], float]) -> None:
        self._rate = rate
        self._breaker = breaker
        self._chance = chance
        self._remotes: dict[str, _Remote] = {}

    def ask(self, name: str, now: float, *, has_token: bool = False, most_s: float = math.inf) -> Postponed | None:
        """Whether the remote may be called now; a token is had by who was postponed for the rate before.

        Whoever would have to wait longer than `most_s` takes none: nobody would use it.
        """
        if self._rate is None and self._breaker is None:
            return None
        remote = self._of(name)
        if self._breaker is not None:
            remote.breaker, allowed = self._breaker.ask(remote.breaker, now)
            if not allowed:
                return self._resting(name, remote, self._breaker, now)
        if self._rate is not None and not has_token:
            tokens, wait_s = self._rate.take(remote.tokens, now)
            remote.tokens = tokens if wait_s <= most_s else remote.tokens
            if wait_s > 0:
                if self._breaker is not None:
                    remote.breaker = self._breaker.abandoned(remote.breaker)
                return Postponed(wait_s, "rate", f"{name} takes {self._rate.count} looks in {human(self._rate.per_s)}")
        return None

    def answered(self, name: str) -> None:
        """It answered, whatever it said."""
        if self._breaker is not None:
            remote = self._of(name)
            remote.breaker = self._breaker.succeeded(remote.breaker)

    def failed(self, name: str, now: float) -> Postponed | None:
        """It could not be reached; how long it rests, if it does."""
        if self._breaker is None:
            return None
        remote = self._of(name)
        remote.breaker = self._breaker.failed(remote.breaker, now)
        return None if remote.breaker.opened_at is None else self._resting(name, remote, self._breaker, now)

    def _resting(self, name: str, remote: _Remote, breaker: Breaker, now: float) -> Postponed:
        # Spread over a tenth of the cooldown: all of them at once would be a herd after the outage.
        wait_s = max(1.0, breaker.retry_at(remote.breaker, now) - now) + self._chance() * breaker.cooldown_s / 10
        why = f"{name} failed {remote.breaker.failures} times in a row: nobody asks it for {human(wait_s)}"
        return Postponed(wait_s, "breaker", why)

    def _of(self, name: str) -> _Remote:
        if name not in self._remotes:
            if len(self._remotes) >= REMOTES_LIMIT:
                del self._remotes[next(iter(self._remotes))]
            self._remotes[name] = _Remote(Tokens(), BreakerState())
        return self._remotes[name]
