"""What time it is in the database, as far as it can be known over HTTP.

Everything that is written as an instant is written as the text `now`, which Postgres reads by its own clock. Only where
an instant must be reckoned (stale before, due again at) is this estimate used. It never runs ahead of the database as
long as what it saw is right: an answer took its time on the way, and that time is not counted.

    an instant that the database wrote and returned    exact, up to the time that the answer took
    the `Date` of an answer                            to the second, and by the clock of whichever proxy wrote it
    neither                                            this machine's clock
"""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

SET_BACK_S = 2.0
AGREEMENT_S = 5.0
"""A proxy's clock and this machine's, if they agree so far, are believed to be right."""


def monotonic_s() -> float:
    """Seconds that pass while the machine sleeps, too, where the system counts them."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


def read_instant(text: str) -> datetime:
    """An instant as PostgREST writes it; one without a time zone is taken as UTC, Supabase's own setting."""
    instant = datetime.fromisoformat(text)
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)


class DatabaseClock:
    """One for a table; the event loop and the heartbeat's thread tell it what they saw."""

    def __init__(
        self, passed_s: Callable[[], float] = monotonic_s, wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._passed_s = passed_s
        self._wall = wall
        self._lock = threading.Lock()
        self._exact: tuple[datetime, float] | None = None
        self._by_header: tuple[datetime, float] | None = None
        self._last = datetime.min.replace(tzinfo=UTC)

    def saw(self, instant: str | None) -> None:
        """The database wrote this as its `now` during the request that was just answered."""
        if instant is not None:
            self._exact = (read_instant(instant), self._passed_s())

    def saw_date(self, header: str | None) -> None:
        """The `Date` of an answer that just came."""
        try:
            date = parsedate_to_datetime(header or "")
        except ValueError:
            return
        seen = (date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC), self._passed_s())
        before = self._by_header
        # Each is cut to its second, so the latest is the nearest; unless the clock was set back.
        if before is None or not 0 <= _ahead_s(before, seen) <= SET_BACK_S:
            self._by_header = seen

    @property
    def is_sure(self) -> bool:
        """Whether an age may be judged by it: the database sent its time, or two clocks agree about it."""
        if self._exact is not None:
            return True
        if self._by_header is None:
            return False
        return abs((self._wall() - self.now()).total_seconds()) <= AGREEMENT_S

    @property
    def is_exact(self) -> bool:
        """Whether the database itself sent its time: a `Date` may be a second behind."""
        return self._exact is not None

    def now(self) -> datetime:
        """Not later than the database's own."""
        known = self._exact or self._by_header
        if known is None:
            return self._wall()
        instant, at_s = known
        return instant + timedelta(seconds=max(0.0, self._passed_s() - at_s))

    def unique(self) -> datetime:
        """Now, but never the same twice: the value that distinguishes a claim from every other."""
        with self._lock:
            self._last = max(self.now(), self._last + timedelta(microseconds=1))
            return self._last


def _ahead_s(one: tuple[datetime, float], other: tuple[datetime, float]) -> float:
    """How much later it is by the one than by the other."""
    return (one[0] - other[0]).total_seconds() - (one[1] - other[1])


def written(instant: datetime) -> str:
    """With microseconds, always: what is compared must be written alike."""
    return instant.isoformat(timespec="microseconds")
