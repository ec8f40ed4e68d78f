"""An answer that cannot be read is not an end: it may say "running", so the run waits."""

import gzip
from typing import Any

import pytest

from everpoll.watches.adapters import HttpFetch, Refused, Request, Response
from everpoll.watches.adapters.azure import AzureOperation
from everpoll.watches.adapters.http202 import Http202, Words
from everpoll.watches.verdicts import Done, Wait
from watches.adapters.fake_server import Answer, Paths, by_path, scripted, serving
from watches.adapters.looking import ended

JSON = {"Content-Type": "application/json; charset=utf-8"}
UNREADABLE = {
    "NaN": b'{"status": "running", "eta": NaN}',
    "latin-1": '{"status": "running", "by": "José"}'.encode("latin-1"),
    "UTF-16": '{"status": "running"}'.encode("utf-16"),
    "cut off": b'{"status": "runn',
    "a number beyond all": b'{"status": "running", "eta": 1e400}',
    "half a surrogate": b'{"status": "running", "by": "\\ud83d"}',
    "nested without end": b'{"status": "running", "x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "gzip": gzip.compress(b'{"status": "running"}'),
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
def test_json_that_cannot_be_read_is_waited_for_and_says_so(body: bytes) -> None:
    response = Response(200, JSON, body)
    assert response.json() is None
    assert Http202().judge(response) == Wait(note="the answer cannot be read as JSON", status="200")


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/plain"}, {"Content-Type": "application/octet-stream"}])
@pytest.mark.parametrize("body", [b'{"status": "runn', b' [{"status": "running"}', b'\xef\xbb\xbf{"status": NaN}'])
def test_what_begins_as_json_and_does_not_say_what_it_is_counts_as_json(headers: dict[str, str], body: bytes) -> None:
    assert isinstance(Http202().judge(Response(200, headers, body)), Wait)


@pytest.mark.parametrize("status", ['""', '"  "', "[]", '["running"]', "{}", '{"state": "running"}'])
def test_a_status_that_is_no_word_is_waited_for_and_says_so(status: str) -> None:
    verdict = Http202().judge(Response(200, JSON, b'{"status": %s}' % status.encode()))
    assert verdict == Wait(note="'status' in the answer is not a word", status="200")


@pytest.mark.parametrize(("status", "word"), [("5", "5"), ("true", "true"), ("false", "false"), ("0.5", "0.5")])
def test_numbers_and_truths_are_words_that_may_be_listed(status: str, word: str) -> None:
    response = Response(200, JSON, b'{"status": %s}' % status.encode())
    assert Http202().judge(response) == Wait(status=word)
    assert isinstance(Http202(words=Words(done=[word])).judge(response), Done)


@pytest.mark.parametrize(
    ("content_type", "body", "value"),
    [
        ("text/plain", b"all good", "all good"),
        ("text/csv", b"a,b\n1,2\n", "a,b\n1,2\n"),
        ("text/csv", b"[a],{b}\n1,2\n", "[a],{b}\n1,2\n"),
        ("", b'{"id": 1}\n{"id": 2}\n', '{"id": 1}\n{"id": 2}\n'),
        ("application/x-ndjson", b'{"id": 1}\n{"id": 2}\n', '{"id": 1}\n{"id": 2}\n'),
        ("application/pdf", b"%PDF-1.7 \xff", "%PDF-1.7 �"),
        ("text/html", b"<html>the report</html>", "<html>the report</html>"),
        ("application/json", b"", None),
        ("application/json", b" \n", " \n"),
        ("application/json", b"null", "null"),
    ],
)
def test_results_that_are_no_json_are_done_as_they_are(content_type: str, body: bytes, value: Any) -> None:
    assert Http202().judge(Response(200, {"Content-Type": content_type}, body)) == Done(value)


def test_an_answer_without_a_status_has_its_body_unread() -> None:
    response = Response(200, JSON, b'{"status": "runn')
    assert isinstance(Http202(words=Words(field=None)).judge(response), Done)
    assert isinstance(Http202().judge(response, is_result=True), Done), "of a result, its own URL is the proof"


async def test_an_answer_in_an_encoding_that_was_not_asked_for_is_a_broken_one() -> None:
    packed = b"\x0b\x02\x80[1]\x03"
    with serving(lambda asked: Answer(200, packed, {"Content-Encoding": "br"})) as fake:
        with pytest.raises(ConnectionError, match="answered in 'br', which was not asked for"):
            await Http202().look(fake.url)
        assert fake.asked[0].headers["accept-encoding"] == "gzip, deflate"
        fake.answer = lambda asked: Answer(503, packed, {"Content-Encoding": "br", "Retry-After": "9"})
        assert (await HttpFetch()("GET", fake.url, headers={})).status == 503, "its status says enough"
        fake.answer = lambda asked: Answer(200, b"[1]", {"Content-Encoding": "identity"})
        assert await Http202().look(fake.url) == Done([1])
        fake.answer = lambda asked: Answer(200, gzip.compress(b"[1]"), {"Content-Encoding": "gzip"})
        assert await Http202().look(fake.url) == Done([1])


LOGIN = Response(200, {"Content-Type": "text/html; charset=utf-8"}, b"<html>Log in</html>")
HOME = "https://api.example.com/ops/7"


def led_to(page: Response, status: int) -> Any:
    async def fetch(method: str, url: str, *, headers: Any, body: bytes | None = None) -> Response:
        return page if "login" in url else Response(status, {"Location": "https://login.example.net/"})

    return fetch


@pytest.mark.parametrize("status", [302, 303, 307])
@pytest.mark.parametrize("adapter", [Http202, AzureOperation])
async def test_a_page_to_log_in_at_another_host_is_not_done(adapter: Any, status: int) -> None:
    handle = {"home": HOME, "url": HOME, "via": "location", "method": "POST"}
    verdict = await adapter(fetch=led_to(LOGIN, status)).look(handle)
    assert isinstance(verdict, Wait)
    assert verdict.note == "https://login.example.net/ answered with an HTML page: is it a login page?"


async def test_a_page_of_a_host_that_the_user_trusts_is_a_result_and_so_is_a_file_of_any() -> None:
    trusting = Http202(fetch=led_to(LOGIN, 302), trusted=["login.example.net"])
    assert await trusting.look(HOME) == Done("<html>Log in</html>")
    file = Response(200, {"Content-Type": "text/csv"}, b"a,b")
    assert await Http202(fetch=led_to(file, 302)).look(HOME) == Done("a,b")


async def test_a_start_that_cannot_be_read_is_refused_or_looked_at() -> None:
    answers = scripted(Answer(200, b'{"status": NaN}'), Answer(200, b'{"status": NaN}', {"Location": "/ops/7"}))
    with serving(answers) as fake:
        with pytest.raises(Refused, match="which cannot be read, and does not say where to look"):
            await Http202().start(fake.url, "k")
        started = await Http202().start(Request(fake.url), "k")
    assert started.handle["url"] == f"{fake.url}/ops/7"
    assert isinstance(started.verdict, Wait)


async def test_a_result_that_is_not_there_yet_is_not_searched_for_words_later() -> None:
    """303 to a result that answers 202: the next look at it reads a result, not a status."""
    paths: Paths = {
        "GET /op": Answer(303, None, {"Location": "/result"}),
        "GET /result": scripted(Answer(202), Answer(200, {"status": "open", "rows": 3})),
    }
    with serving(by_path(paths)) as fake:
        assert await ended(Http202(), f"{fake.url}/op") == Done({"status": "open", "rows": 3})
