"""Poller metrics and health: averages over a window, never the last value.

Polls and heartbeats are counted separately: each may fail for long while the other succeeds.

Pure: the caller passes what happened, and when.
"""

from collections import deque

from msgspec import Struct

WINDOW_S = 300.0
SAMPLES = 2_000
UNHEALTHY_ERRORS = 5


class PollSample(Struct, frozen=True, gc=False):
    """One poll: when, how many rows it brought, how long it took, how many other workers leased first."""

    at: float
    found: int
    took_s: float
    missed: int = 0


class PollerHealth(Struct, frozen=True, kw_only=True):
    """What `app.health()` says about the poller."""

    healthy: bool
    polling: bool
    consecutive_errors: int
    """Polls or sign-ons that failed in a row, or heartbeats: the larger number."""
    last_error: str | None
    polls_per_minute: float
    rows_per_poll: float
    lease_success_rate: float | None
    """The share of leases in the window that this worker got, and still held at the end; None before the first."""
    lease_latency_s: float | None
    push: bool
    waiting_s: float | None
    """How long the poller rests at most before its next poll; None while it polls or is full."""
    running: int
    slots: int
    stopping: int = 0
    """How many of the running handlers were canceled and have not ended: a plain function that ignores `is_stopping`,
    or a handler that suppresses its cancellation, keeps its slot until it returns."""
    heartbeat_age_s: float | None = None
    """Seconds since the last heartbeat that the database answered; None while the worker signs on."""
    is_fenced: bool = False
    """No heartbeat was answered for two thirds of the lease, or other workers declared this one dead: its handlers are
    canceled, and it takes no work until the database answers."""


class Meter:
    """Counts of one poller."""

    def __init__(self) -> None:
        self._polls: deque[PollSample] = deque(maxlen=SAMPLES)
        self._settled: deque[tuple[float, int, int]] = deque(maxlen=SAMPLES)
        self._failed_polls = 0
        self._failed_beats = 0
        self.errors = 0
        self.last_error: str | None = None
        self.leased = 0
        self.missed = 0
        self.settled = 0
        self.lost = 0
        self._store_ahead_s: float | None = None

    def polled(self, at: float, found: int, took_s: float, missed: int = 0, store_at: float = 0.0) -> None:
        """Count a poll that succeeded; `store_at` is the time by the store's clock, or 0 if it is unknown."""
        if store_at:
            self._store_ahead_s = store_at - at
        self._failed_polls = 0
        self.leased += found
        self.missed += missed
        self._polls.append(PollSample(at, found, took_s, missed))

    def failed(self, error: str) -> None:
        """Count a poll that failed."""
        self._failed_polls += 1
        self._note(error)

    def store_now(self, now: float, wall: float) -> float:
        """Return the store's clock, as far as it is known here, else the given wall clock; seconds since the epoch."""
        return wall if self._store_ahead_s is None else now + self._store_ahead_s

    def beat_answered(self) -> None:
        """Count a heartbeat that was answered."""
        self._failed_beats = 0

    def beat_failed(self, error: str) -> None:
        """Count a heartbeat that failed, or the rescue that followed it."""
        self._failed_beats += 1
        self._note(error)

    @property
    def consecutive_errors(self) -> int:
        """Polls that failed in a row, or heartbeats: the larger number."""
        return max(self._failed_polls, self._failed_beats)

    def settlement(self, at: float, count: int, lost: int) -> None:
        """Count a batch that was settled, and how many of it were lost to another incarnation."""
        self.settled += count - lost
        self.lost += lost
        self._settled.append((at, count, lost))

    def polls_per_minute(self, now: float, since: float) -> float:
        """Return how many polls a minute there were in the window, or since the start if that is shorter."""
        if len(self._polls) == SAMPLES:
            # A busy poller polls more often than samples are kept: then the oldest of them tells the span.
            since = max(since, self._polls[0].at)
        span_s = min(WINDOW_S, max(1.0, now - since))
        return len(self._recent(now)) * 60.0 / span_s

    def rows_per_poll(self, now: float) -> float:
        """Return the average over the window."""
        recent = self._recent(now)
        return sum(one.found for one in recent) / len(recent) if recent else 0.0

    def lease_latency_s(self, now: float) -> float | None:
        """Return the average over the polls in the window that brought something."""
        recent = [one.took_s for one in self._recent(now) if one.found]
        return sum(recent) / len(recent) if recent else None

    def lease_success_rate(self, now: float) -> float | None:
        """Return the share of leases in the window that were won, times the share of ends that were not lost."""
        recent = [(count, lost) for at, count, lost in self._settled if at >= now - WINDOW_S]
        total = sum(count for count, _ in recent)
        kept = 1.0 - sum(lost for _, lost in recent) / total if total else 1.0
        missed = sum(one.missed for one in self._recent(now))
        if not missed:
            return kept if total else None
        won = sum(one.found for one in self._recent(now))
        return kept * won / (won + missed)

    def _note(self, error: str) -> None:
        self.errors += 1
        self.last_error = error

    def _recent(self, now: float) -> list[PollSample]:
        return [one for one in self._polls if one.at >= now - WINDOW_S]
