"""Requests, answers and errors say what happened without credentials, whatever way they are shown."""

import pickle

import msgspec
import pytest
from rich.pretty import pretty_repr

from everpoll.errors import BadInput
from everpoll.http import Answer, Headers, Kind, NotReached, Request
from everpoll.http.urls import target_of

SECRET = "hunter2"  # noqa: S105 - not one of ours
URL = f"https://ann:{SECRET}@api.example.com/health?token={SECRET}#{SECRET}"


def test_a_request_is_shown_without_its_secrets() -> None:
    request = Request(URL, headers={"Authorization": f"Bearer {SECRET}"}, body=SECRET.encode())
    for text in (repr(request), str(request), f"{request}", pretty_repr(request), repr([request])):
        assert SECRET not in text
        assert "https://api.example.com/health?…" in text
        assert "Authorization" in text


def test_an_answer_is_shown_without_its_secrets() -> None:
    answer = Answer(200, Headers({"Set-Cookie": SECRET}), SECRET.encode(), target_of(URL).url, "192.0.2.1", 0.1)
    for text in (repr(answer), str(answer), pretty_repr(answer)):
        assert SECRET not in text
        assert "200" in text


def test_a_url_that_is_not_valid_is_not_repeated_where_it_may_hold_a_secret() -> None:
    for url in (f"ftp://ann:{SECRET}@x/", f"https://x:{SECRET}/", f"http://a b:{SECRET}@x/", f"http://[{SECRET}/"):
        with pytest.raises(BadInput) as error:
            Request(url)
        assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    "headers", [{"X-Key": f"a\r\n{SECRET}"}, {"X-Key": f"{SECRET}→"}, {"X-Key": SECRET + "x" * 20_000}]
)
def test_a_header_that_cannot_be_sent_is_not_repeated(headers: dict[str, str]) -> None:
    with pytest.raises(BadInput, match="the header X-Key cannot be sent") as error:
        Request("https://api.example.com", headers=headers)
    assert SECRET not in str(error.value)


def test_an_error_keeps_its_words_and_its_kind_between_processes() -> None:
    error = NotReached("api.example.com refused the connection", Kind.REFUSED)
    assert isinstance(error, OSError), "a broken connection, to code that knows no more of it"
    copied = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    assert (str(copied), copied.kind, copied.errno) == ("api.example.com refused the connection", Kind.REFUSED, None)
    assert str(Kind.TIMED_OUT) == "timed_out"


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "get"},
        {"method": ""},
        {"method": "CONNECT"},
        {"method": "GET / HTTP/1.1\r\nX: y\r\n"},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"timeout_s": float("inf")},
        {"max_body_bytes": -1},
        {"headers": {"X A": "b"}},
        {"headers": {"": "b"}},
        {"headers": {"X": 5}},
    ],
)
def test_what_cannot_be_sent_is_refused_when_it_is_written(wrong: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        Request("https://api.example.com", **wrong)  # type: ignore[arg-type]  # that is the point


def test_headers_are_found_in_any_case_and_joined_where_they_are_repeated() -> None:
    headers = Headers([("Retry-After", "9"), ("retry-after", "5"), ("X-One", "1")])
    assert headers["RETRY-AFTER"] == headers.get("Retry-after") == "9, 5"
    assert (headers.first("Retry-After"), headers.first("x-one"), headers.first("X-None")) == ("9", "1", "")
    assert "X-ONE" in headers
    assert list(headers) == ["retry-after", "x-one"]
    assert headers.get("missing") is None
    assert msgspec.json.decode(msgspec.json.encode(headers)) == {"retry-after": "9, 5", "x-one": "1"}
