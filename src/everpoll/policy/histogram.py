"""A histogram of latencies in logarithmic buckets: small, mergeable, and with a bounded error.

Bucket `i` holds the values above BASE ** (i - 1), up to BASE ** i, and stands for the value in their middle. Only
buckets that hold something are kept, so that an hour of looks takes 20 to 80 bytes.

Promises: a percentile of any merge of histograms differs by at most ERROR, relatively, from the exact percentile of all
their values. Merging is associative and commutative. Encoding and decoding change nothing. Never keeps a value that is
not above 0.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

BASE = 1.1
"""The upper bound of each bucket is a tenth higher than that of the one before: 1 us to 1 h takes 231 buckets."""
ERROR = (BASE - 1) / (BASE + 1)
"""The largest relative error of a percentile: 4.8 %."""

_LOG_BASE = math.log(BASE)
_MIDDLE = 2 / (BASE + 1)
_ROUNDING = 1e-9
_SEVEN_BITS, _MORE = 0x7F, 0x80


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many values fell into which bucket."""

    counts: tuple[tuple[int, int], ...] = ()
    """(bucket, count), by bucket."""

    @classmethod
    def of(cls, values: Iterable[int]) -> "Histogram":
        """Count values; those that are not above 0 are left out."""
        counts: dict[int, int] = {}
        for value in values:
            if value > 0:
                bucket = bucket_of(value)
                counts[bucket] = counts.get(bucket, 0) + 1
        return cls(tuple(sorted(counts.items())))

    @classmethod
    def merged(cls, histograms: Iterable["Histogram"]) -> "Histogram":
        """Return one histogram of the values of all."""
        counts: dict[int, int] = {}
        for histogram in histograms:
            for bucket, count in histogram.counts:
                counts[bucket] = counts.get(bucket, 0) + count
        return cls(tuple(sorted(counts.items())))

    @classmethod
    def merged_of(cls, packed: Iterable[bytes]) -> "Histogram":
        """Return one histogram of the values of all that are encoded here.

        A chart merges thousands: 5 to 10 µs for one of 500 values; decoding each by itself took 20.
        """
        counts: dict[int, int] = {}
        get = counts.get
        for one in packed:
            for bucket, count in _pairs(one):
                counts[bucket] = get(bucket, 0) + count
        return cls(tuple(sorted(counts.items())))

    @property
    def total(self) -> int:
        """How many values there are."""
        return sum(count for _, count in self.counts)

    def percentile(self, share: float) -> float | None:
        """Return the smallest value that at least this share of the values does not exceed; None without values."""
        return self.percentiles((share,))[0]

    def percentiles(self, shares: tuple[float, ...]) -> list[float | None]:
        """Return the percentiles of these shares, the smallest share first; one pass over the buckets for all."""
        total = self.total
        if not total:
            return [None] * len(shares)
        buckets = iter(self.counts)
        bucket, passed = next(buckets)
        found: list[float | None] = []
        for share in shares:
            # 0.07 * 100 is a little above 7 for a computer.
            wanted = min(max(1, math.ceil(share * total - _ROUNDING)), total)
            while passed < wanted:
                bucket, count = next(buckets)
                passed += count
            found.append(_MIDDLE * BASE**bucket)
        return found

    def encoded(self) -> bytes:
        """Return pairs of numbers: the distance from the bucket before, and the count; seven bits to a byte."""
        packed = bytearray()
        before = 0
        for bucket, count in self.counts:
            _append(packed, bucket - before)
            _append(packed, count)
            before = bucket
        return bytes(packed)

    @classmethod
    def decoded(cls, packed: bytes) -> "Histogram":
        """Read what `encoded` has written."""
        return cls(tuple(_pairs(packed)))


def bucket_of(value: int) -> int:
    """Return the bucket of a value above 0."""
    return math.ceil(math.log(value) / _LOG_BASE)


def _append(packed: bytearray, number: int) -> None:
    while number > _SEVEN_BITS:
        packed.append(number & _SEVEN_BITS | _MORE)
        number >>= 7
    packed.append(number)


def _pairs(packed: bytes) -> Iterable[tuple[int, int]]:
    """Return the buckets of an encoded histogram, and their counts."""
    # If every number is below 128, each is one byte, and no Python code runs for each of them.
    return zip(accumulate(packed[::2]), packed[1::2], strict=False) if packed.isascii() else _long_pairs(packed)


def _long_pairs(packed: bytes) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    bucket, left = 0, iter(packed)
    for distance in left:
        bucket += distance if distance < _MORE else _number(distance, left)
        count = next(left)
        if count >= _MORE:
            # Most of these have two bytes; a call for each would double the time.
            more = next(left)
            count = count & _SEVEN_BITS | (more if more < _MORE else _number(more, left)) << 7
        pairs.append((bucket, count))
    return pairs


def _number(byte: int, left: Iterator[int]) -> int:
    """Return the number that begins with this byte."""
    number = shift = 0
    while byte & _MORE:
        number |= (byte & _SEVEN_BITS) << shift
        shift += 7
        byte = next(left)
    return number | byte << shift
