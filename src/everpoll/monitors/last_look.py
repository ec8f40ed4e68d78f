"""The part of the last look's time that lies in the future: uptime must not count it as known yet."""

from everpoll.policy.uptime import NOTHING_AHEAD, Ahead, ahead_of
from everpoll.stores.health import HealthRecords, Look


def ahead_of_look(look: Look | None, now: float) -> Ahead:
    """Return the part of a look's time that lies in the future; nothing if there is no look."""
    return NOTHING_AHEAD if look is None else ahead_of(look.status, look.at, look.at + look.span_s, now)


async def last_look(health: HealthRecords, service: str, now: float) -> Look | None:
    """Return the last look at a service; None if there is none."""
    found = await health.looks(service, 0.0, now + 1.0, 1)
    return found[0] if found else None


async def last_ahead(health: HealthRecords, service: str, now: float) -> Ahead:
    """Return the part of the last look's time that lies in the future."""
    return ahead_of_look(await last_look(health, service, now), now)


def aheads_of(look: Look | None, step_s: float, now: float) -> dict[float, Ahead]:
    """Return the future part of the last look's time, by the beginning of the bucket that has the look."""
    return {} if look is None else {look.at // step_s * step_s: ahead_of_look(look, now)}
