"""Published figures in memory."""

from collections.abc import Sequence

import msgspec

from everpoll.policy import Clock
from everpoll.stores.figures import (
    KEPT_S,
    Figure,
    LoopCard,
    PublishedLoops,
    Row,
    SeriesOf,
    SeriesPoint,
    points,
    steps_of,
)
from everpoll.stores.memory.state import MemoryState

_decode_counts = msgspec.json.Decoder(dict[str, int]).decode
LOOPS_SHOWN_S = 3_600.0


class MemoryFigures(MemoryState):
    """The figures that workers publish."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._figures: dict[tuple[int, str, str, str, int, int], Figure] = {}

    def publish(self, incarnation: int, figures: Sequence[Figure], loops: str | None) -> None:
        """See the contract."""
        with self._lock:
            for one in figures:
                self._figures[one.span_s, one.kind, one.name, one.queue, one.began, incarnation] = one
            if loops is not None and incarnation in self._workers:
                self._workers[incarnation].loops = loops

    async def series(
        self, of: SeriesOf, from_at: float, to_at: float, step_s: int, queue: str | None = None, name: str | None = None
    ) -> list[SeriesPoint]:
        """See the contract."""
        steps = steps_of(of, from_at, to_at, step_s)
        with self._lock:
            rows = [
                Row(one.began, msgspec.json.encode(one.counts).decode(), one.waited, one.ran)
                for one in self._figures.values()
                if one.span_s == steps.span_s
                and one.kind in steps.kinds
                and steps.first <= one.began < steps.last
                and one.name == (name or "")
                and (one.queue == (queue or "") or (name is not None and queue is None))
            ]
        return points(steps, rows, _decode_counts)

    async def published_loops(self) -> list[PublishedLoops]:
        """See the contract."""
        with self._lock:
            now = self._now()
            return [
                PublishedLoops(
                    incarnation=row.card.incarnation,
                    worker=row.card.label,
                    host=row.card.host,
                    pid=row.card.pid,
                    is_alive=row.shown(now, 0).is_alive,
                    loops=msgspec.json.decode(row.loops, type=tuple[LoopCard, ...]),
                )
                for row in self._workers.values()
                if row.loops is not None and (row.stopped_at is None or row.stopped_at > now - LOOPS_SHOWN_S)
            ]

    def _drop_figures(self) -> None:
        now = self._now()
        self._figures = {key: one for key, one in self._figures.items() if one.began >= now - KEPT_S[one.span_s]}
