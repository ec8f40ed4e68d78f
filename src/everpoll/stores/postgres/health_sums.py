"""How the figures of an availability are summed up in SQL, in the order of TIMES."""

from everpoll.policy.rollup import HealthWord
from everpoll.stores.health_chunks import CODES, TIMES

_WORDS: tuple[HealthWord, ...] = ("up", "degraded", "down", "unknown")

# The first is null where there are no looks at all.
SUMS_OF_LOOKS = ", ".join(
    (
        *(f"sum(case when l.status = {CODES[word]} then l.span_ms else 0 end)::bigint" for word in _WORDS),
        "count(l.latency_us), sum(l.latency_us)::bigint",
    )
)
CUT_LOOKS = """select k.service, k.at_ms, k.status, k.latency_us,
            least(k.span_ms, lead(k.at_ms) over (partition by k.service order by k.at_ms) - k.at_ms) as span_ms
            from everpoll.health_looks k"""
"""Looks that are not rolled up, each standing no longer than until the next one."""


def sums_of(table: str) -> str:
    """Return the sums of a table of rollups, under this name in its statement."""
    return ", ".join(f"sum({table}.{figure})::bigint" for figure in TIMES)
