"""What of the last look at a service is still to come: the time until the next look is due is not known yet."""

from everpoll.policy.uptime import NOTHING_AHEAD, Ahead, ahead_of
from everpoll.stores.health import HealthRecords, Look


def ahead_of_look(look: Look | None, now: float) -> Ahead:
    """Return what of a look is still to come; nothing where there is no look."""
    return NOTHING_AHEAD if look is None else ahead_of(look.status, look.at, look.at + look.span_s, now)


async def last_look(health: HealthRecords, service: str, now: float) -> Look | None:
    """Return the last look at a service; None where there is none."""
    found = await health.looks(service, 0.0, now + 1.0, 1)
    return found[0] if found else None


async def last_ahead(health: HealthRecords, service: str, now: float) -> Ahead:
    """Return what of the last look at a service is still to come."""
    return ahead_of_look(await last_look(health, service, now), now)


def aheads_of(look: Look | None, step_s: float, now: float) -> dict[float, Ahead]:
    """Return what is still to come by the beginning of the bucket that counts it: that of the last look."""
    return {} if look is None else {look.at // step_s * step_s: ahead_of_look(look, now)}
