"""Looks for tests of what is recorded about services."""

from typing import Any

from everpoll.stores.health import HealthRecords, NewDependency, NewError, NewLook

START = 1_900_022_400.0
"""The first instant of a day, and of an hour."""
MINUTE_S, HOUR_S, DAY_S = 60.0, 3_600.0, 86_400.0


def look(at_s: float = 0.0, service: str = "billing", **fields: Any) -> NewLook:
    """A look some seconds after START."""
    usual = {"status": "up", "span_s": 30.0, "latency_ms": 12.5, "http_status": 200}
    return NewLook(service=service, at=START + at_s, **{**usual, **fields})


def looks_every(step_s: float, count: int, first_s: float = 0.0, **fields: Any) -> list[NewLook]:
    """So many looks in a row."""
    return [look(first_s + number * step_s, **{"span_s": step_s, **fields}) for number in range(count)]


def dependency(name: str = "db", at_s: float = 0.0, **fields: Any) -> NewDependency:
    """A dependency that is up."""
    usual = {"status": "up", "changed_at": START + at_s, "seen_at": START + at_s}
    return NewDependency(name=name, **{**usual, **fields})


def error(name: str = "db", message: str | None = "refused", **fields: Any) -> NewError:
    """An entry of the error history."""
    return NewError(dependency=name, error_message=message, **fields)


async def record_all(health: HealthRecords, looks: list[NewLook]) -> None:
    """Record any number of looks."""
    for start in range(0, len(looks), 500):
        await health.record(looks[start : start + 500])


async def roll_up_all(health: HealthRecords, until: float = START + 1_000 * DAY_S) -> int:
    """Roll up until there is nothing left; how many calls that took."""
    calls, after = 1, await health.roll_up(until)
    while after is not None:
        calls, after = calls + 1, await health.roll_up(until, after)
    return calls
