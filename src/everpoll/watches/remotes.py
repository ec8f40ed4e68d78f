"""The remotes of a watch: the rate and the breaker of each.

Promises: a remote that is down gets one probe per cooldown, however many runs wait for it. The state is local to the
process. This module never calls a remote.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

from everpoll.policy import Breaker, BreakerState, Rate, Tokens, human
from everpoll.watches.decisions.events import Postponed

REMOTES_LIMIT = 10_000
"""How many remotes are kept; beyond that, a healthy one is dropped and starts over."""
SEARCHED = 100


@dataclass(slots=True)
class _Remote:
    tokens: Tokens
    breaker: BreakerState
    failed_call: int | None = None

    def follow_clock(self, now: float) -> None:
        """Change instants in the future to now: they come from before the store's clock was set back."""
        state = self.breaker
        if (state.opened_at or now) > now or (state.probe_at or now) > now:
            ahead = {name: at for name in ("opened_at", "probe_at") if (at := getattr(state, name)) is not None}
            self.breaker = replace(state, **{name: min(at, now) for name, at in ahead.items()})
        if self.tokens.at > now:
            self.tokens = Tokens(self.tokens.left, now)


class Remotes:
    """All remotes of one watch, by name: a host, a tenant, an account."""

    def __init__(self, rate: Rate | None, breaker: Breaker | None, chance: Callable[[], float]) -> None:
        self._rate = rate
        self._breaker = breaker
        self._chance = chance
        self._remotes: dict[str, _Remote] = {}

    def admit(self, name: str, now: float, *, has_token: bool = False, most_s: float = math.inf) -> Postponed | None:
        """Return None if the remote may be called now, else how long to wait.

        `has_token`: the run has waited for the rate, and has its token already. If the wait would be longer than
        `most_s`, no token is taken, since the run would not use it.
        """
        if self._rate is None and self._breaker is None:
            return None
        remote = self._state(name)
        remote.follow_clock(now)
        if self._breaker is not None:
            remote.breaker, allowed = self._breaker.ask(remote.breaker, now)
            if not allowed:
                return self._breaker_wait(name, remote, self._breaker, now)
        if self._rate is not None and not has_token:
            tokens, wait_s = self._rate.take(remote.tokens, now)
            remote.tokens = tokens if wait_s <= most_s else remote.tokens
            if wait_s > 0:
                if self._breaker is not None:
                    remote.breaker = self._breaker.abandoned(remote.breaker)
                limit = f"{self._rate.count} looks in {human(self._rate.per_s)}"
                return Postponed(wait_s, "rate", f"the limit of {name} is {limit}")
        return None

    def answered(self, name: str) -> None:
        """Count an answer, even if it reports a failure of the operation."""
        if self._breaker is not None:
            remote = self._state(name)
            remote.breaker = self._breaker.succeeded(remote.breaker)

    def release_probe(self, name: str) -> None:
        """Give up the probe of a call that was stopped before its answer came, so that another run may probe."""
        if self._breaker is not None:
            remote = self._state(name)
            remote.breaker = self._breaker.abandoned(remote.breaker)

    def failed(self, name: str, now: float, call: int | None = None) -> Postponed | None:
        """Count a failure; return how long to wait if the breaker is open now. A call of look_many counts once."""
        if self._breaker is None:
            return None
        remote = self._state(name)
        if call is None or call != remote.failed_call:
            remote.failed_call = call
            remote.breaker = self._breaker.failed(remote.breaker, now)
        return None if remote.breaker.opened_at is None else self._breaker_wait(name, remote, self._breaker, now)

    def _breaker_wait(self, name: str, remote: _Remote, breaker: Breaker, now: float) -> Postponed:
        # Spread over a tenth of the cooldown: all runs at once would be a thundering herd after the outage.
        wait_s = max(1.0, breaker.retry_at(remote.breaker, now) - now) + self._chance() * breaker.cooldown_s / 10
        why = f"{name} failed {remote.breaker.failures} times in a row: not called for {human(wait_s)}"
        return Postponed(wait_s, "breaker", why)

    def _replaceable(self) -> str:
        """Return a remote that may be dropped: the oldest one without failures, among the first SEARCHED."""
        oldest = list(islice(self._remotes.items(), SEARCHED))
        return next((name for name, one in oldest if not one.breaker.failures), oldest[0][0])

    def _state(self, name: str) -> _Remote:
        if name not in self._remotes:
            if len(self._remotes) >= REMOTES_LIMIT:
                del self._remotes[self._replaceable()]
            self._remotes[name] = _Remote(Tokens(), BreakerState())
        return self._remotes[name]
