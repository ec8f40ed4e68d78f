"""What polling costs: looks per useful change, and the looks that a minimum wait would have saved.

Promises: pure. A run is read from its log, which keeps the last decisions; looks that the log no longer has are not
counted. A change is useful if it changed a fact or the remote's status, or ended the run.
"""

import re
from collections.abc import Iterable, Sequence
from math import ceil
from urllib.parse import urlsplit

from msgspec import Struct

from everpoll.watches.memory import Decision
from everpoll.watches.run_info import RunInfo

_HOST = re.compile(r"localhost|[\w-]*[.:][\w.:-]*")
FLOORS_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The minimum waits that are compared."""


class FloorCost(Struct, frozen=True):
    """What a minimum wait between looks would have saved and cost."""

    floor_s: float
    looks: int
    """How many looks there would have been."""
    saved: int
    later_s: float
    """How much later useful changes would have been noticed on average: by half of what is added to their waits."""


class PollingCost(Struct, frozen=True, kw_only=True):
    """The looks of some runs, and how many brought a useful change."""

    watch: str
    host: str | None
    """The remote's host; None if the runs do not name one."""
    runs: int
    looks: int
    changes: int
    """How many looks changed a fact or the remote's status, or ended the run."""
    floors: tuple[FloorCost, ...]


def polling_costs(runs: Iterable[RunInfo]) -> list[PollingCost]:
    """Return the cost of each watch and host, the one with most looks first."""
    groups: dict[tuple[str, str | None], list[RunInfo]] = {}
    for run in runs:
        groups.setdefault((run.watch, host_of(run.target)), []).append(run)
    found = [_cost(watch, host, some) for (watch, host), some in groups.items()]
    return sorted(found, key=lambda one: (-one.looks, one.watch, one.host or ""))


def host_of(target: str | None) -> str | None:
    """Return the host of a target, which may be a URL or a host; None if it names none."""
    if target is None:
        return None
    try:
        host = urlsplit(target if "//" in target else f"//{target}").hostname
    except ValueError:
        return None
    return host if host is not None and _HOST.fullmatch(host) else None


def _cost(watch: str, host: str | None, runs: Sequence[RunInfo]) -> PollingCost:
    waits = [wait for run in runs for wait in _waits(run.log)]
    looks = sum(one.times for run in runs for one in run.log if one.look is not None)
    changes = [wait_s for wait_s, _, is_change in waits if is_change]
    first = looks - sum(times for _, times, _ in waits)
    return PollingCost(
        watch=watch,
        host=host,
        runs=len(runs),
        looks=looks,
        changes=sum(_is_change(one, before) for run in runs for before, one in _pairs(run.log)),
        floors=tuple(_with_floor(floor_s, waits, changes, first) for floor_s in FLOORS_S),
    )


def _with_floor(
    floor_s: float, waits: Sequence[tuple[float, int, bool]], changes: Sequence[float], first: int
) -> FloorCost:
    needed = sum(times if wait_s >= floor_s else ceil(times * wait_s / floor_s) for wait_s, times, _ in waits)
    made = sum(times for _, times, _ in waits)
    later = [max(0.0, floor_s - wait_s) / 2 for wait_s in changes]
    return FloorCost(floor_s, first + needed, made - needed, sum(later) / len(later) if later else 0.0)


def _pairs(log: Sequence[Decision]) -> list[tuple[Decision | None, Decision]]:
    """Return the looks of a log, each with the one before."""
    looks = [one for one in log if one.look is not None]
    return list(zip([None, *looks], looks, strict=False))


def _waits(log: Sequence[Decision]) -> list[tuple[float, int, bool]]:
    """Return for the looks of a log: the wait before them, how many had this wait, and whether they brought a change.

    The wait before the first look is unknown. For equal looks in a row, the entry tells the average wait between them;
    it is 0 if the clock was set back meanwhile.
    """
    found: list[tuple[float, int, bool]] = []
    for before, one in _pairs(log):
        if before is not None and before.next_s is not None:
            found.append((before.next_s, 1, _is_change(one, before)))
        if one.times > 1:
            wait_s = one.next_s if one.first_at is None else max(0.0, one.at - one.first_at) / (one.times - 1)
            if wait_s is not None:
                found.append((wait_s, one.times - 1, False))
    return found


def _is_change(one: Decision, before: Decision | None) -> bool:
    has_new_word = one.status is not None and (before is None or one.status != before.status)
    return bool(one.facts) or has_new_word or one.next_s is None
