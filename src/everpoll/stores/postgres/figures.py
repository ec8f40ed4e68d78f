"""Published figures in Postgres: the heartbeat's connection writes them; the lane for long reads reads them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from everpoll.drivers.postgres.lane import Lane
from everpoll.stores.contract import encode
from everpoll.stores.figures import KEPT_S, Figure, LoopCard, PublishedLoops, Row, SeriesPoint, Steps, points

STEP = 10_000

PUBLISH = """insert into everpoll.figures (incarnation, span_s, kind, name, queue, began, counts, waited, ran)
    select $1, * from unnest($2::int[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::bytea[],
        $9::bytea[])
    on conflict (span_s, kind, name, queue, began, incarnation) do update
    set counts = excluded.counts, waited = excluded.waited, ran = excluded.ran"""
PUBLISH_LOOPS = "update everpoll.workers set loops = $2 where incarnation = $1"
OF_QUEUE = """select began, counts, waited, ran from everpoll.figures
    where span_s = $1 and kind = any($2::text[]) and name = $3 and began >= $4 and began < $5 and queue = $6"""
OF_NAME = """select began, counts, waited, ran from everpoll.figures
    where span_s = $1 and kind = any($2::text[]) and name = $3 and began >= $4 and began < $5"""
LOOPS = """select w.incarnation, w.label, w.host, w.pid, w.loops,
        w.stopped_at is null and w.beat_at >= clock_timestamp() - w.lease_s * interval '1 second' as is_alive
    from everpoll.workers w
    where w.loops is not null and (w.stopped_at is null or w.stopped_at > now() - interval '1 hour')
    order by w.started_at, w.incarnation"""
DELETE = """with old as (select ctid from everpoll.figures
        where span_s = $1 and began < extract(epoch from now())::bigint - $2 limit $3),
    gone as (delete from everpoll.figures f where f.ctid = any(array(select ctid from old)) returning 1)
    select count(*) from gone"""

_decode_counts = msgspec.json.Decoder(dict[str, int]).decode
_decode_loops = msgspec.json.Decoder(tuple[LoopCard, ...]).decode


def arguments(incarnation: int, figures: Sequence[Figure]) -> list[Any]:
    """Return the arguments of PUBLISH."""
    rows = [
        (one.span_s, one.kind, one.name, one.queue, one.began, encode(one.counts), one.waited, one.ran)
        for one in figures
    ]
    return [incarnation, *map(list, zip(*rows, strict=True))]


async def series(lane: Lane, steps: Steps, queue: str | None, name: str | None) -> list[SeriesPoint]:
    """Read the published figures, and merge those of all processes."""
    bound: list[Any] = [steps.span_s, list(steps.kinds), name or "", steps.first, steps.last]
    if name is not None and queue is None:
        rows = await lane.rows(OF_NAME, *bound)
    else:
        rows = await lane.rows(OF_QUEUE, *bound, queue or "")
    return points(steps, [Row(*row) for row in rows], _decode_counts)


async def published_loops(lane: Lane) -> list[PublishedLoops]:
    """Return the loops of processes that are alive or ended lately."""
    return [
        PublishedLoops(
            incarnation=row["incarnation"],
            worker=row["label"],
            host=row["host"],
            pid=row["pid"],
            is_alive=row["is_alive"],
            loops=_decode_loops(row["loops"]),
        )
        for row in await lane.rows(LOOPS)
    ]


async def drop(lane: Lane) -> None:
    """Delete what is too old, in bounded steps."""
    for span_s, kept_s in KEPT_S.items():
        while await lane.value(DELETE, span_s, kept_s, STEP) == STEP:
            pass
