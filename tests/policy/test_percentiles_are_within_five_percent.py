"""A percentile of any merge of histograms is within 5 % of the exact one, however the values were spread over them."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everpoll.policy import Histogram
from everpoll.policy.histogram import ERROR

LATENCIES_US = st.one_of(st.integers(1, 3_600_000_000), st.integers(500, 200_000), st.sampled_from([1, 11, 121, 1_331]))
PARTS = st.lists(st.lists(LATENCIES_US, max_size=60), max_size=8)
SHARES = st.sampled_from([0.0, 0.01, 0.5, 0.9, 0.95, 0.99, 1.0])


def exact(values: list[int], share: float) -> int:
    """By nearest rank."""
    ordered = sorted(values)
    return ordered[max(1, math.ceil(share * len(ordered) - 1e-9)) - 1]


def test_the_stated_error_is_below_five_percent() -> None:
    assert ERROR < 0.05


@given(PARTS, SHARES)
def test_any_percentile_of_any_merge(parts: list[list[int]], share: float) -> None:
    merged = Histogram.merged(Histogram.of(part) for part in parts)
    values = [value for part in parts for value in part]
    found = merged.percentile(share)
    assert merged.total == len(values)
    if not values:
        assert found is None
    else:
        assert found == pytest.approx(exact(values, share), rel=0.05)


@given(st.lists(LATENCIES_US, max_size=60), st.lists(SHARES, max_size=4))
def test_several_at_once_are_those_one_by_one(values: list[int], shares: list[float]) -> None:
    histogram = Histogram.of(values)
    ordered = tuple(sorted(shares))
    assert histogram.percentiles(ordered) == [histogram.percentile(share) for share in ordered]


@given(PARTS, st.randoms(use_true_random=False))
def test_merging_in_any_order_and_grouping_gives_the_same(parts: list[list[int]], rng: Random) -> None:
    histograms = [Histogram.of(part) for part in parts]
    whole = Histogram.of([value for part in parts for value in part])
    rng.shuffle(histograms)
    one_by_one = Histogram()
    for histogram in histograms:
        one_by_one = Histogram.merged([histogram, one_by_one])
    assert one_by_one == whole == Histogram.merged(histograms)


@given(st.lists(st.integers(1, 2**63), max_size=200))
def test_encoding_loses_nothing(values: list[int]) -> None:
    histogram = Histogram.of(values)
    assert Histogram.decoded(histogram.encoded()) == histogram


@given(st.lists(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 300)), max_size=20), max_size=5))
def test_merging_encoded_ones_is_merging_them_decoded(parts: list[list[tuple[int, int]]]) -> None:
    """Numbers of one byte and of several."""
    encoded = [Histogram(tuple(sorted(dict(part).items()))).encoded() for part in parts]
    assert Histogram.merged_of(encoded) == Histogram.merged(map(Histogram.decoded, encoded))


def test_an_hour_of_looks_is_small() -> None:
    """Latencies between 20 and 40 ms, a look every 30 s."""
    assert len(Histogram.of(20_000 + 167 * number for number in range(120)).encoded()) < 30


def test_values_that_are_no_latency_are_left_out() -> None:
    assert Histogram.of([0, -5]) == Histogram()
    assert Histogram().percentile(0.5) is None
