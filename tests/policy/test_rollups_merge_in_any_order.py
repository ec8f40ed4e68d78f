"""A rollup of many looks is the same, however the looks were grouped and in whatever order they were merged."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from everpoll.policy import Rollup, Tally
from everpoll.policy.rollup import HealthWord

WORDS: list[HealthWord] = ["up", "degraded", "down", "unknown"]
LOOKS = st.tuples(
    st.sampled_from(WORDS), st.integers(0, 3_600_000), st.one_of(st.none(), st.integers(0, 3_600_000_000))
)
Looks = list[tuple[HealthWord, int, int | None]]


def rolled(looks: Looks) -> Rollup:
    tally = Tally()
    for look in looks:
        tally.add(*look)
    return tally.rollup()


@given(st.lists(st.lists(LOOKS, max_size=20), max_size=6), st.randoms(use_true_random=False))
def test_any_grouping_and_order(groups: list[Looks], rng: Random) -> None:
    whole = rolled([look for group in groups for look in group])
    parts = [rolled(group) for group in groups]
    rng.shuffle(parts)
    assert Rollup.merged(parts) == whole
    cut = rng.randint(0, len(parts))
    assert Rollup.merged([Rollup.merged(parts[cut:]), Rollup.merged(parts[:cut])]) == whole


@given(st.lists(LOOKS, max_size=40))
def test_the_figures_are_those_of_the_looks(looks: Looks) -> None:
    found = rolled(looks)
    latencies = [latency for _, _, latency in looks if latency]
    assert found.count == len(looks)
    for word in WORDS:
        assert getattr(found, word) == sum(status == word for status, _, _ in looks)
        assert getattr(found, f"{word}_ms") == sum(span for status, span, _ in looks if status == word)
    assert found.timed == len(latencies) == found.histogram.total
    assert found.latency_sum_us == sum(latencies)
    assert (found.latency_min_us, found.latency_max_us) == (min(latencies, default=None), max(latencies, default=None))


@given(st.lists(LOOKS, min_size=1, max_size=40), st.sampled_from([0.5, 0.95, 0.99]))
def test_percentiles_stay_between_the_smallest_and_the_largest(looks: Looks, share: float) -> None:
    found = rolled(looks)
    value_ms = found.latency_ms(share)
    if found.latency_min_us is None or found.latency_max_us is None:
        assert value_ms is None
        assert found.latency_mean_ms is None
    else:
        assert value_ms is not None
        assert found.latency_min_us <= value_ms * 1_000 * (1 + 1e-9)
        assert value_ms * 1_000 <= found.latency_max_us * (1 + 1e-9)
