"""Waking: what whoever waits for work gives to whoever hears of it."""

from collections.abc import Callable

OnWake = Callable[[bool], None]
"""Told when to look; True: somebody may want a running task canceled."""
