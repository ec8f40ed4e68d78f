"""Operations on ended tasks: put them back in the queue, or delete them.

Promises: BATCH_LIMIT tasks are one statement. Each statement takes its tasks in the order of their ids, so that two of
them cannot deadlock, and the callbacks of groups after all others, so that they wait for members of the same call; a
deadlock with an enqueue of the same keys is repeated.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from everpoll.drivers.postgres.lane import Lane
from everpoll.stores.operations import BATCH_LIMIT, Deleted, Retried
from everpoll.stores.postgres.functions import versioned
from everpoll.stores.postgres.repeats import repeated

EACH = """select done.* from (
        select * from unnest($1::bigint[], $2::text[]) with ordinality u(id, note, place)
        order by {last}, u.id, u.place) wanted
    cross join lateral everpoll.{act}(wanted.id, wanted.note) done order by wanted.place"""
RETRY = versioned(EACH.format(act="retry", last="everpoll.waits_for_all(u.id)"))
FORGET = versioned(EACH.format(act="forget", last="u.id"))

Requests = Sequence[tuple[int, str]]


async def retry(lane: Lane, requests: Requests) -> list[Retried]:
    """Put these tasks back in the queue."""
    return [Retried(row["outcome"], row["holder"]) for row in await _each(lane, RETRY, requests)]


async def delete(lane: Lane, requests: Requests) -> list[Deleted]:
    """Delete these tasks from history; their events stay."""
    return [row["outcome"] for row in await _each(lane, FORGET, requests)]


async def _each(lane: Lane, sql: str, requests: Requests) -> list[Any]:
    rows: list[Any] = []
    for start in range(0, len(requests), BATCH_LIMIT):
        ids, notes = zip(*requests[start : start + BATCH_LIMIT], strict=True)
        rows += await repeated(partial(lane.rows, sql, list(ids), list(notes)))
    return rows
