"""Whatever is packed, in whatever pieces it comes: the body, or an error; never more than the limit."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everpoll.http import Kind, NotReached
from everpoll.http.unpacking import Body

PACKINGS = {"": lambda body: body, "gzip": gzip.compress, "deflate": zlib.compress}


def read(packed: bytes, encoding: str, limit: int, status: int, pieces: list[int]) -> Body:
    body, begin = Body("http://x/", status, encoding, limit), 0
    for size in [*pieces, len(packed)]:
        if begin < len(packed) and not body.add(packed[begin : begin + size]):
            break
        begin += size
    return body


@given(
    content=st.binary(max_size=300),
    encoding=st.sampled_from(sorted(PACKINGS)),
    limit=st.integers(0, 300),
    pieces=st.lists(st.integers(1, 40), max_size=12),
)
def test_a_body_is_whole_or_too_large(content: bytes, encoding: str, limit: int, pieces: list[int]) -> None:
    packed = PACKINGS[encoding](content)
    if len(content) <= limit:
        assert read(packed, encoding, limit, 200, pieces).content() == content
        return
    with pytest.raises(NotReached) as error:
        read(packed, encoding, limit, 200, pieces)
    assert error.value.kind is Kind.TOO_LARGE
    cut = read(packed, encoding, limit, 500, pieces)
    assert (cut.content(), cut.is_truncated) == (content[:limit], True)


@given(st.binary(max_size=200), st.sampled_from(["gzip", "deflate"]), st.lists(st.integers(1, 40), max_size=12))
def test_garbage_is_an_error_in_words_or_what_it_happens_to_mean(data: bytes, encoding: str, pieces: list[int]) -> None:
    try:
        assert len(read(data, encoding, 50, 200, pieces).content()) <= 50
    except NotReached as error:
        assert error.kind in (Kind.PROTOCOL, Kind.TOO_LARGE)  # noqa: PT017 - either way is right
    assert len(read(data, encoding, 50, 502, pieces).content()) <= 50


def test_packed_bytes_that_stand_for_nothing_come_to_an_end() -> None:
    packing = zlib.compressobj()
    empty = packing.compress(b"x") + packing.flush(zlib.Z_FULL_FLUSH)
    body = Body("http://x/", 200, "deflate", 1000)
    body.add(empty)
    for _ in range(13):
        assert body.add(b"\0\0\0\xff\xff" * 1000)
    with pytest.raises(NotReached, match="more than 1000 bytes"):
        body.add(b"\0\0\0\xff\xff" * 1000)


def test_a_large_limit_is_told_in_mebibytes() -> None:
    with pytest.raises(NotReached, match="http://x/ answered with more than 8 MiB"):
        Body("http://x/", 200, "", 8 * 2**20).add(b"x" * (8 * 2**20 + 1))
