"""The checksum of an answer stays the same while the answer does, over processes and machines."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everpoll.monitors import checksum

reproducible = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_it_is_the_same_on_every_machine() -> None:
    assert checksum(b"") == "e4a6a0577479b2b4"
    assert checksum(b'{"status":"UP"}') == checksum('{"status":"UP"}')
    assert len(checksum(b"x" * 1_000_000)) == 16


@reproducible
@given(st.binary(), st.binary())
def test_other_bodies_have_other_checksums(one: bytes, other: bytes) -> None:
    assert (checksum(one) == checksum(other)) == (one == other)


@reproducible
@given(st.text(), st.none() | st.text(), st.integers())
def test_any_answer_has_one(body: str, content_type: str | None, status: int) -> None:
    assert checksum(body, content_type, status) == checksum(body, content_type, status)


def test_the_http_status_and_the_content_type_count_if_they_are_given() -> None:
    answers = [checksum(b"x"), checksum(b"x", "text/plain"), checksum(b"x", None, 200), checksum(b"x", None, 503)]
    assert len({*answers, checksum(b"x", "text/html", 503)}) == 5
