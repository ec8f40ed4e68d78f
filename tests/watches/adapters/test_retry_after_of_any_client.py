"""Retry-After is read from whatever a client hands over, never raises over what a remote wrote, and is bounded."""

import email.message
import urllib.error
from email.utils import formatdate
from typing import Any

import aiohttp
import httpx
import pytest
import requests
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy
from requests.structures import CaseInsensitiveDict
from yarl import URL

from everpoll.watches.adapters import HttpError, Response
from everpoll.watches.retry_after import retry_after_s

NOW = 1_800_000_000.0
IN_A_MINUTE = formatdate(NOW + 60, usegmt=True)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("120", 120),
        (" 7 ", 7),
        ("0", 0),
        ("1.5", 1.5),
        (b"30", 30),
        (30, 30),
        (2.5, 2.5),
        (IN_A_MINUTE, 60),
        (formatdate(NOW - 60, usegmt=True), 0),  # a date that has passed: now
        ("Fri, 15 Jan 2027 08:01:00 GMT", 60),
        ("Friday, 15-Jan-27 08:01:00 GMT", 60),  # the two obsolete forms that a recipient must understand
        ("Fri Jan 15 08:01:00 2027", 60),
        ("999999999999", 86_400),  # clamped
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1e9", None),
        ("nan", None),
        ("٣", None),
        ("9" * 5000, None),
        (float("nan"), None),
        (float("inf"), None),
        (-1, None),
        (True, None),
    ],
)
def test_a_value_is_seconds_or_a_date(said: Any, seconds: float | None) -> None:
    assert retry_after_s(said, now=NOW) == seconds


def test_what_is_too_long_or_too_big_is_no_wait() -> None:
    assert retry_after_s(f"Fri, 15 Jan 2027 08:01:00 GMT ({'x' * 100})", now=NOW) is None
    assert retry_after_s(10**400) is None
    assert retry_after_s(-(10**400)) is None


def test_the_first_of_several_of_one_name_counts() -> None:
    assert retry_after_s(CIMultiDict([("Retry-After", "9"), ("retry-after", "5")])) == 9


def test_a_date_counts_from_the_senders_own_clock() -> None:
    """A worker whose clock is an hour off still waits a minute."""
    headers = {"Date": formatdate(NOW, usegmt=True), "Retry-After": IN_A_MINUTE}
    assert retry_after_s(headers, now=NOW + 3600) == 60
    assert retry_after_s(headers, now=NOW - 3600) == 60
    assert retry_after_s({"retry-after": IN_A_MINUTE}, now=NOW - 10) == 70


def test_milliseconds_are_finer_and_go_first() -> None:
    assert retry_after_s({"retry-after-ms": "250", "Retry-After": "1"}) == 0.25
    assert retry_after_s({"x-ms-retry-after-ms": "1500"}) == 1.5
    assert retry_after_s({"retry-after-ms": "x", "Retry-After": "3"}) == 3


def test_the_longest_wait_is_the_callers() -> None:
    assert retry_after_s("7200", longest="1h") == 3600


def requests_error(headers: dict[str, str]) -> Exception:
    response = requests.Response()
    response.status_code = 429
    response.headers = CaseInsensitiveDict(headers)
    assert not response, "the truth of a requests response is whether it went well: the trap that this is about"
    return requests.HTTPError("429", response=response)


def httpx_error(headers: dict[str, str]) -> Exception:
    request = httpx.Request("GET", "https://api.example.com")
    return httpx.HTTPStatusError("429", request=request, response=httpx.Response(429, headers=headers))


def aiohttp_error(headers: dict[str, str]) -> Exception:
    where = URL("https://api.example.com")
    info = aiohttp.RequestInfo(where, "GET", CIMultiDictProxy(CIMultiDict()), where)
    return aiohttp.ClientResponseError(info, (), status=429, headers=CIMultiDict(headers))


def urllib_error(headers: dict[str, str]) -> Exception:
    message = email.message.Message()
    for name, value in headers.items():
        message[name] = value
    return urllib.error.HTTPError("https://api.example.com", 429, "busy", message, None)


def botocore_error(headers: dict[str, str]) -> Any:
    lowered = {name.lower(): value for name, value in headers.items()}
    metadata = {"HTTPStatusCode": 429, "HTTPHeaders": lowered}
    return ClientError({"Error": {"Code": "Throttling"}, "ResponseMetadata": metadata}, "Describe")


def own_error(headers: dict[str, str]) -> Exception:
    return HttpError(Response(429, headers, url="https://api.example.com"))


ERRORS = [requests_error, httpx_error, aiohttp_error, urllib_error, botocore_error, own_error]


@pytest.mark.parametrize("error", ERRORS)
def test_every_client_is_understood(error: Any) -> None:
    made = error({"Retry-After": "17"})
    try:
        assert retry_after_s(made) == 17
        if hasattr(made, "response"):
            assert retry_after_s(made.response) == 17
        wrapped = RuntimeError("the look failed")
        wrapped.__cause__ = made
        assert retry_after_s(wrapped) == 17
        assert retry_after_s(error({})) is None
    finally:
        getattr(made, "close", lambda: None)()


def test_what_has_no_headers_says_nothing() -> None:
    info = aiohttp.RequestInfo(
        URL("https://a.example"), "GET", CIMultiDictProxy(CIMultiDict()), URL("https://a.example")
    )
    for silent in (None, ValueError("x"), object(), {}, aiohttp.ClientResponseError(info, ()), requests.HTTPError("x")):
        assert retry_after_s(silent) is None


def test_an_object_that_breaks_when_read_says_nothing() -> None:
    class Broken:
        @property
        def headers(self) -> Any:
            class Items:
                def items(self) -> Any:
                    raise RuntimeError("closed")

            return Items()

    class Closed(Exception):
        @property
        def response(self) -> Any:
            raise RuntimeError("closed")

    assert retry_after_s(Broken()) is None
    assert retry_after_s(Closed()) is None


@settings(derandomize=True, deadline=None)
@given(st.one_of(st.text(), st.binary(), st.floats(), st.integers(), st.dictionaries(st.text(), st.text())))
def test_whatever_is_said_the_answer_is_none_or_within_bounds(said: Any) -> None:
    for one in (said, {"Retry-After": said, "Date": said}):
        answer = retry_after_s(one, now=NOW)
        assert answer is None or 0 <= answer <= 86_400
