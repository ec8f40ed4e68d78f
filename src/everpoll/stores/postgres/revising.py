"""Revising: new arguments for live tasks, one by one or many in few statements.

Promises: a batch waits for no lock while it holds one, so it cannot deadlock with a settlement that has the same tasks.
A task that is locked at that moment is revised in a statement of its own afterwards.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from everpoll.drivers.postgres.lane import Lane
from everpoll.stores.operations import Revision
from everpoll.stores.postgres.functions import versioned
from everpoll.stores.postgres.repeats import repeated

ONE = versioned("select task_id, is_changed, is_running from everpoll.revise($1, $2, $3, $4, $5, $6, $7, $8, $9)")
MANY = versioned("""with wanted as materialized (
        select * from unnest($1::text[], $2::text[], $3::text[], $4::boolean[], $5::text[], $6::bigint[], $7::boolean[],
                             $8::boolean[], $9::text[]) with ordinality
            u(kind, key, args, hurry, expects, task_id, only_queued, keeps_due, note, place)),
    named as materialized (
        select t.id, w.place from wanted w join everpoll.tasks t on t.key = w.key and t.kind = w.kind
         where w.task_id is null
        union all select w.task_id, w.place from wanted w where w.task_id is not null),
    free as materialized (
        select t.id from everpoll.tasks t where t.id = any(array(select n.id from named n))
         order by t.id for update skip locked)
    select named.place, done.task_id, done.is_changed, done.is_running from free
    join named on named.id = free.id
    join wanted w on w.place = named.place
    cross join lateral everpoll.revise(w.kind, w.key, w.args, w.hurry, w.expects, w.task_id, w.only_queued, w.keeps_due,
        w.note) done""")

RELEASE_SET_ASIDE = versioned("select everpoll.release_set_aside($1, $2, $3, $4)")


class Revised(NamedTuple):
    """The ids, in the order of the revisions, whether any task was changed, and whether one of these runs."""

    ids: list[int | None]
    is_changed: bool
    is_running: bool


async def revise(lane: Lane, revisions: Sequence[Revision]) -> Revised:
    """Give these tasks new arguments."""
    ids: list[int | None] = [None] * len(revisions)
    left = list(range(len(revisions)))
    rows: list[Any] = []
    if len(revisions) > 1:
        columns = [list(column) for column in zip(*map(_arguments, revisions), strict=True)]
        rows = await repeated(lambda: lane.rows(MANY, *columns))
        for row in rows:
            ids[row["place"] - 1] = row["task_id"]
        left = [place for place in left if ids[place] is None]
    for place in left:
        row = await repeated(partial(lane.row, ONE, *_arguments(revisions[place])))
        ids[place] = row["task_id"]
        rows.append(row)
    changed = [row for row in rows if row["is_changed"]]
    return Revised(ids, bool(changed), any(row["is_running"] for row in changed))


async def release_set_aside(lane: Lane, versions: Mapping[str, int], queues: Sequence[str], limit: int) -> int:
    """Make tasks due that were set aside; return how many."""
    names, newest = list(versions), list(versions.values())
    return int(await repeated(lambda: lane.value(RELEASE_SET_ASIDE, names, newest, list(queues), limit)))


def _arguments(revision: Revision) -> tuple[Any, ...]:
    return (
        revision.kind,
        revision.key,
        revision.args,
        revision.hurry,
        revision.expects,
        revision.task_id,
        revision.only_queued,
        revision.keeps_due,
        revision.note,
    )
