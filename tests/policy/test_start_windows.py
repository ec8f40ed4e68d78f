"""Never more starts than allowed in any stretch, whenever they come."""

from hypothesis import given
from hypothesis import strategies as st

from everpoll.policy.start_window import SPANS, Span, counting, left, opens_at, started, window_s


def simulate(limit: int, per_s: float, gaps: list[float]) -> list[float]:
    """Start one whenever allowed, at these moments; the instants of the starts."""
    spans: list[Span] = []
    starts: list[float] = []
    now = 0.0
    for gap in gaps:
        now += gap
        spans = counting(spans, now, window_s(per_s))
        if left(limit, spans) > 0:
            spans = started(spans, now, 1, per_s)
            starts.append(now)
        assert len(spans) <= SPANS + 5
    return starts


@given(
    limit=st.integers(1, 12),
    per_s=st.floats(0.01, 100.0),
    shares=st.lists(st.floats(0.0, 0.7), max_size=200),
)
def test_no_stretch_ever_has_too_many(limit: int, per_s: float, shares: list[float]) -> None:
    """Whatever the rhythm in which they ask."""
    starts = simulate(limit, per_s, [share * per_s for share in shares])
    for first, beyond in zip(starts, starts[limit:], strict=False):
        assert beyond - first >= per_s


def test_a_window_opens_when_it_says() -> None:
    spans = started([], 100.0, 3, 10.0)
    assert left(3, counting(spans, 110.0, window_s(10.0))) == 0
    opening = opens_at(spans, window_s(10.0))
    assert left(3, counting(spans, opening, window_s(10.0))) == 3
    assert 110.0 < opening < 110.1


def test_a_large_window_stays_small() -> None:
    """A thousand starts take a few dozen spans."""
    starts = simulate(1_000, 60.0, [0.05] * 1_200)
    assert len(starts) == 1_000


def test_nothing_is_saved_up() -> None:
    """After an hour of silence as many may start as at first."""
    spans = started([], 0.0, 2, 1.0)
    assert left(2, counting(spans, 3_600.0, window_s(1.0))) == 2
