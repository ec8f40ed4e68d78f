"""Jitter: changes a delay by a random amount, so that tasks that began together do not stay together.

Promises: the result is within ± jitter of the delay; `spread_up` never makes it shorter. Never draws a random number:
the caller passes `chance`, from 0 up to 1, so that a seed replays every delay.
"""

from typing import Protocol


class Rng(Protocol):
    """The source of random numbers, such as `random.Random`."""

    def random(self) -> float:
        """Return a number from 0 up to, but not including, 1."""
        ...


def spread(delay_s: float, jitter: float, chance: float) -> float:
    """Return the delay moved by up to ± jitter; a chance of 0.5 leaves it alone."""
    return delay_s * (1 + jitter * (2 * chance - 1))


def spread_up(delay_s: float, jitter: float, chance: float) -> float:
    """Return the delay moved upward only, by up to jitter: for floors, where earlier is forbidden."""
    return delay_s * (1 + jitter * chance)
