"""The remotes behind a watch: how often each may be asked, and whether it is worth asking at all.

Promises: a remote that is down costs one probe a cooldown, whatever the number of runs that wait for it. State is this
process's own: every process finds out by itself. Never: calls anything.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

from everpoll.policy import Breaker, BreakerState, Rate, Tokens, human

REMOTES_LIMIT = 10_000
"""Remotes that are remembered; beyond that one is forgotten that works, and starts over."""
SEARCHED = 100


@dataclass(slots=True)
class _Remote:
    tokens: Tokens
    breaker: BreakerState
    failed_call: int | None = None

    def set_back(self, now: float) -> None:
        """The store's clock may be set back: what lies ahead of it counts from now, and holds nobody up until then."""
        state = self.breaker
        if (state.opened_at or now) > now or (state.probe_at or now) > now:
            ahead = {name: at for name in ("opened_at", "probe_at") if (at := getattr(state, name)) is not None}
            self.breaker = replace(state, **{name: min(at, now) for name, at in ahead.items()})
        if self.tokens.at > now:
            self.tokens = Tokens(self.tokens.left, now)


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
        remote.set_back(now)
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

    def abandoned(self, name: str) -> None:
        """Whoever asked was stopped before an answer came: if that was the probe, another may leave."""
        if self._breaker is not None:
            remote = self._of(name)
            remote.breaker = self._breaker.abandoned(remote.breaker)

    def failed(self, name: str, now: float, call: int | None = None) -> Postponed | None:
        """It could not be reached; how long it rests, if it does. A call for many fails once."""
        if self._breaker is None:
            return None
        remote = self._of(name)
        if call is None or call != remote.failed_call:
            remote.failed_call = call
            remote.breaker = self._breaker.failed(remote.breaker, now)
        return None if remote.breaker.opened_at is None else self._resting(name, remote, self._breaker, now)

    def _resting(self, name: str, remote: _Remote, breaker: Breaker, now: float) -> Postponed:
        # Spread over a tenth of the cooldown: all of them at once would be a herd after the outage.
        wait_s = max(1.0, breaker.retry_at(remote.breaker, now) - now) + self._chance() * breaker.cooldown_s / 10
        why = f"{name} failed {remote.breaker.failures} times in a row: nobody asks it for {human(wait_s)}"
        return Postponed(wait_s, "breaker", why)

    def _least_missed(self) -> str:
        """Of those that were seen first, one that is not in trouble."""
        oldest = list(islice(self._remotes.items(), SEARCHED))
        return next((name for name, one in oldest if not one.breaker.failures), oldest[0][0])

    def _of(self, name: str) -> _Remote:
        if name not in self._remotes:
            if len(self._remotes) >= REMOTES_LIMIT:
                del self._remotes[self._least_missed()]
            self._remotes[name] = _Remote(Tokens(), BreakerState())
        return self._remotes[name]
