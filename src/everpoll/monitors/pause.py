"""Pause: since when, why and by which actor a service is paused, as its row stores it."""

from msgspec import Struct


class ServicePause(Struct, frozen=True, gc=False, omit_defaults=True):
    """One pause of a service."""

    at: float
    """Since when, in seconds since the epoch."""
    reason: str = ""
    by: str = ""
    """The actor, where it is known."""


def pause_text(pause: ServicePause) -> str:
    """Return "paused by ann: the reason"."""
    by = f" by {pause.by}" if pause.by else ""
    return f"paused{by}: {pause.reason}" if pause.reason else f"paused{by}"
