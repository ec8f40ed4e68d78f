"""Instants in the user's own columns: SQLite has no type for them, so the declared type says how they are written.

| declared as                                 | holds                                            |
| ------------------------------------------- | ------------------------------------------------ |
| `text`, `datetime`, `timestamp`, …, nothing | text in UTC: `2025-01-31 09:30:00.123456`        |
| `real`, `numeric`, …                        | seconds since 1970, with their fraction          |
| `integer`, `bigint`, …                      | whole seconds since 1970                         |

The text is what `CURRENT_TIMESTAMP` writes, with a fraction, so both compare as texts do. A due time may also be
written with a `T`, as most programs do (`2025-01-31T09:30:00Z`); it must be UTC all the same.
The clock is that of the machine, which all programs that open the file share.
"""

import math
import time
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from everpoll.drivers.calendar import FIRST_INSTANT, LAST_INSTANT

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND_US = 1_000_000
LONGEST_S = 31_536_000_000.0
"""A thousand years: what is later cannot be written."""


class Kind(StrEnum):
    """How a column holds an instant."""

    TEXT = "text"
    REAL = "real"
    WHOLE = "integer"


def kind_of(declared: str) -> Kind | None:
    """Return how a column of this type holds an instant, by SQLite's rules of affinity; None: it cannot."""
    name = declared.upper()
    if "INT" in name:
        return Kind.WHOLE
    if any(word in name for word in ("CHAR", "CLOB", "TEXT")) or name in {"", "ANY"}:
        return Kind.TEXT
    if "BLOB" in name:
        return None
    if any(word in name for word in ("REAL", "FLOA", "DOUB")):
        return Kind.REAL
    # What is left has numeric affinity, which keeps a text that is not a number as it is.
    return Kind.TEXT if "DATE" in name or "TIME" in name else Kind.REAL


def now_us() -> int:
    """Return now in microseconds since 1970."""
    return time.time_ns() // 1_000


def later_us(instant_us: int, delay_s: float) -> int:
    """Add a delay to an instant, at most a thousand years."""
    return instant_us + round(min(max(delay_s, 0.0), LONGEST_S) * SECOND_US)


def instant_of(instant_us: int) -> datetime:
    """Return an instant for people; one outside of Python's calendar as its first or last, as of milliseconds."""
    try:
        return EPOCH + timedelta(microseconds=instant_us)
    except OverflowError:
        return LAST_INSTANT if instant_us > 0 else FIRST_INSTANT


def stored(kind: Kind, instant_us: int, *, up: bool = False) -> str | float | int:
    """Return an instant as the column holds it. Whole seconds are rounded down, or up where early would be wrong."""
    if kind is Kind.TEXT:
        instant = EPOCH + timedelta(microseconds=instant_us)
        return instant.replace(tzinfo=None).isoformat(" ", "microseconds")
    if kind is Kind.REAL:
        return instant_us / SECOND_US
    return -(-instant_us // SECOND_US) if up else instant_us // SECOND_US


def read_us(value: Any) -> int | None:
    """Read an instant in microseconds since 1970; None if the value is not an instant."""
    if isinstance(value, str):
        try:
            instant = datetime.fromisoformat(value)
        except ValueError:
            return None
        aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
        return round((aware - EPOCH) / timedelta(microseconds=1))
    if isinstance(value, (int, float)) and math.isfinite(value):
        return round(value * SECOND_US)
    return None


class Starts:
    """The starts of claims: no two claims of this process share one, so that each has a fence of its own."""

    def __init__(self) -> None:
        self._last_us = 0

    def next_us(self) -> int:
        """Return now, or a moment later. After the clock was set back, starts go back with it."""
        now = now_us()
        self._last_us = max(now, self._last_us + 1) if self._last_us - now < SECOND_US else now
        return self._last_us
