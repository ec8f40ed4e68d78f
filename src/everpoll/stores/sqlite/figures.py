"""Published figures in SQLite: the heartbeat's connection writes them, the reading lane reads them."""

from collections.abc import Sequence

import msgspec

from everpoll.drivers.sqlite.connection import Connection
from everpoll.stores.contract import encode
from everpoll.stores.figures import KEPT_S, Figure, LoopCard, PublishedLoops, Row, SeriesPoint, Steps, points

SLICE = 5_000
LOOPS_SHOWN_US = 3_600 * 1_000_000

PUBLISH = """insert into everpoll_figures (span_s, kind, name, queue, began, incarnation, counts, waited, ran)
    values (?, ?, ?, ?, ?, ?, ?, ?, ?)
    on conflict do update set counts = excluded.counts, waited = excluded.waited, ran = excluded.ran"""
PUBLISH_LOOPS = "update everpoll_workers set loops = ? where incarnation = ?"
OF_QUEUE = """select began, counts, waited, ran from everpoll_figures
    where span_s = :span_s and kind = :kind and name = :name and queue = :queue and began >= :first and began < :last"""
OF_NAME = """select began, counts, waited, ran from everpoll_figures
    where span_s = :span_s and kind = :kind and name = :name and +began >= :first and +began < :last"""
LOOPS = """select w.incarnation, w.label, w.host, w.pid, w.loops,
        w.stopped_at is null and w.beat_at >= :now - w.lease_s * 1000000
    from everpoll_workers w
    where w.loops is not null and (w.stopped_at is null or w.stopped_at > :oldest)
    order by w.started_at, w.incarnation"""
DROP = """delete from everpoll_figures where (span_s, kind, name, queue, began, incarnation) in
    (select span_s, kind, name, queue, began, incarnation from everpoll_figures indexed by everpoll_figures_age
     where span_s = ? and began < ? limit ?)"""

_decode_counts = msgspec.json.Decoder(dict[str, int]).decode
_decode_loops = msgspec.json.Decoder(tuple[LoopCard, ...]).decode


def publish(con: Connection, incarnation: int, figures: Sequence[Figure], loops: str | None) -> None:
    """Store the figures, and the loops if they have changed."""
    for one in figures:
        place = (one.span_s, one.kind, one.name, one.queue, one.began, incarnation)
        con.execute(PUBLISH, (*place, encode(one.counts), one.waited, one.ran))
    if loops is not None:
        con.execute(PUBLISH_LOOPS, (loops, incarnation))


def series(con: Connection, steps: Steps, queue: str | None, name: str | None) -> list[SeriesPoint]:
    """Read the rows of a series and merge them."""
    statement = OF_NAME if name is not None and queue is None else OF_QUEUE
    bound = {"span_s": steps.span_s, "first": steps.first, "last": steps.last, "name": name or "", "queue": queue or ""}
    rows = [Row(*row) for kind in steps.kinds for row in con.execute(statement, {**bound, "kind": kind})]
    return points(steps, rows, _decode_counts)


def published_loops(con: Connection, now: int) -> list[PublishedLoops]:
    """Return the loops of processes that live, or ended lately."""
    return [
        PublishedLoops(
            incarnation=incarnation,
            worker=label,
            host=host,
            pid=pid,
            is_alive=bool(is_alive),
            loops=_decode_loops(loops),
        )
        for incarnation, label, host, pid, loops, is_alive in con.execute(
            LOOPS, {"now": now, "oldest": now - LOOPS_SHOWN_US}
        )
    ]


def drop(con: Connection, now: int) -> bool:
    """Delete a slice of the figures that are too old; return True if there may be more."""
    seconds = now // 1_000_000
    gone = [con.execute(DROP, (span_s, seconds - kept_s, SLICE)).rowcount for span_s, kept_s in KEPT_S.items()]
    return SLICE in gone
