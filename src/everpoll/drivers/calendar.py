"""The ends of Python's calendar: as which a database's instants outside of it are read."""

from datetime import UTC, datetime

FIRST_INSTANT = datetime.min.replace(tzinfo=UTC)
LAST_INSTANT = datetime.max.replace(tzinfo=UTC)
