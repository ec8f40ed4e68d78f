"""An estimate of the database's time over HTTP.

Instants are written as the text `now` where possible: Postgres reads it by its own clock. This estimate serves for
computed instants (stale before, due again at). It is not ahead of the database if the observed times are right: it
counts from the moment when an answer arrived, which is later than the moment when the database wrote it.

    an instant that the database wrote and returned    exact, up to the time that the answer took
    the `Date` of an answer                            to the second, and by the clock of whichever proxy wrote it
    neither                                            this machine's clock
"""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from everpoll.drivers.calendar import FIRST_INSTANT, LAST_INSTANT

SET_BACK_S = 2.0
AGREEMENT_S = 5.0
"""If a proxy's clock and this machine's differ by less, both count as right."""


def monotonic_s() -> float:
    """Return seconds that pass while the machine sleeps, too, if the system counts them."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


def read_instant(text: str) -> datetime:
    """Parse an instant of PostgREST; one without a time zone is UTC, Supabase's own setting.

    What is outside of Python's calendar, as infinity is, becomes its first or last instant.
    """
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return FIRST_INSTANT if text.startswith("-") or text.endswith("BC") else LAST_INSTANT
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)


class DatabaseClock:
    """The clock of one table; the event loop and the heartbeat's thread report the instants that they saw."""

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
        """Note an instant that the database wrote as its `now` during the last request."""
        if instant is not None:
            self._exact = (read_instant(instant), self._passed_s())

    def saw_date(self, header: str | None) -> None:
        """Note the `Date` of an answer that has just come."""
        try:
            date = parsedate_to_datetime(header or "")
        except ValueError:
            return
        seen = (date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC), self._passed_s())
        before = self._by_header
        # Each `Date` is cut to its second, so the latest one is the most exact; unless the clock was set back.
        if before is None or not 0 <= _ahead_s(before, seen) <= SET_BACK_S:
            self._by_header = seen

    @property
    def is_sure(self) -> bool:
        """True if ages may be judged by this clock: the database sent its time, or two clocks agree."""
        if self._exact is not None:
            return True
        if self._by_header is None:
            return False
        return abs((self._wall() - self.now()).total_seconds()) <= AGREEMENT_S

    @property
    def is_exact(self) -> bool:
        """True if the database itself sent its time: a `Date` may be a second behind."""
        return self._exact is not None

    def now(self) -> datetime:
        """Return an estimate of the database's time that is not ahead of it."""
        known = self._exact or self._by_header
        if known is None:
            return self._wall()
        instant, at_s = known
        return instant + timedelta(seconds=max(0.0, self._passed_s() - at_s))

    def unique(self) -> datetime:
        """Return now as an instant that no earlier call returned: it identifies a claim.

        In whole milliseconds: a column that rounds more finely than that, as many tools create it, keeps it as it is.
        """
        with self._lock:
            now = self.now()
            now = now.replace(microsecond=now.microsecond // 1_000 * 1_000)
            self._last = max(now, self._last + timedelta(milliseconds=1))
            return self._last


def _ahead_s(one: tuple[datetime, float], other: tuple[datetime, float]) -> float:
    """Return by how many seconds the first reading is ahead of the second."""
    return (one[0] - other[0]).total_seconds() - (one[1] - other[1])


def written(instant: datetime) -> str:
    """Format an instant with microseconds, so that equal instants are equal texts."""
    return instant.isoformat(timespec="microseconds")
