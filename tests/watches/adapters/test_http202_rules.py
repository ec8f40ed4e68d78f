"""HTTP 202: what each answer means, where the next look goes, and a whole operation against a server."""

from typing import Any

import pytest

from everpoll.errors import BadInput
from everpoll.http.retry_after import retry_after_s
from everpoll.watches.adapters import Adapter, Canceler, HttpError, Refused, RemoteBusy, Request, Response, Starter
from everpoll.watches.adapters.http202 import Http202, Words
from everpoll.watches.faults import NothingSent, fault_of
from everpoll.watches.verdicts import Done, Fail, Started, Wait
from watches.adapters.fake_server import Answer, Paths, by_path, scripted, serving
from watches.adapters.looking import ended, timeline

URL = "https://api.example.com/ops/7"
NOW = 1_800_000_000.0


def answer(status: int, body: bytes = b"", **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status, named, body, url=URL, received_at=NOW)


def test_it_is_an_adapter() -> None:
    assert isinstance(Http202(), Adapter)
    assert isinstance(Http202(), Starter)
    assert isinstance(Http202(), Canceler)


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        (answer(202), Wait(status="202")),
        (answer(202, Retry_After="10"), Wait("10s", status="202")),
        (answer(202, Retry_After="Fri, 15 Jan 2027 08:01:00 GMT"), Wait("60s", status="202")),
        (answer(202, b'{"status": "Running", "percentComplete": 40}'), Wait(status="Running", note="40 %")),
        (answer(202, b'{"status": "succeeded"}'), Wait(status="succeeded")),  # 202 is not ended, whatever it says
        (answer(200, b'{"rows": 3}'), Done({"rows": 3})),
        (answer(200, b"plain text"), Done("plain text")),
        (answer(200), Done(None)),
        (answer(204), Done(None)),
        (answer(201, b'{"id": 9}', Location="/things/9"), Done({"id": 9})),
        (answer(201, Location="/things/9"), Done("https://api.example.com/things/9")),
        (answer(200, b'{"status": "In_Progress"}', Retry_After="3"), Wait("3s", status="In_Progress")),
        (answer(200, b'{"status": "Succeeded", "result": 1}'), Done({"status": "Succeeded", "result": 1})),
        (answer(200, b'{"status": "polishing"}'), Wait(status="polishing")),  # unknown is pending
        (answer(200, b'{"status": 200}'), Wait(status="200")),  # a number is a word, and this one is not listed
        (answer(200, b'{"status": null, "rows": 3}'), Done({"status": None, "rows": 3})),  # null is not there
        (answer(200, b'\xef\xbb\xbf{"a": 1}'), Done({"a": 1})),
    ],
)
def test_what_a_success_means(response: Response, verdict: Any) -> None:
    assert Http202().judge(response) == verdict


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 529])
def test_a_remote_in_trouble_says_nothing_of_the_operation(status: int) -> None:
    verdict = Http202().judge(answer(status, Retry_After="7"))
    assert isinstance(verdict, Wait)
    assert verdict.after_s == 7
    assert verdict.note is not None
    assert str(status) in verdict.note


@pytest.mark.parametrize("status", [300, 304, 400, 401, 403, 405, 409, 410, 422, 451])
def test_other_answers_are_failures(status: int) -> None:
    verdict = Http202().judge(answer(status, b'{"title": "No", "detail": "not yours"}'))
    assert isinstance(verdict, Fail)
    assert "not yours" in verdict.reason
    assert verdict.evidence["status"] == status


def test_not_found_is_tolerated_a_few_times_in_a_row() -> None:
    adapter = Http202(not_found=2)
    assert isinstance(adapter.judge(answer(404), misses=0), Wait)
    assert isinstance(adapter.judge(answer(404), misses=1), Wait)
    assert isinstance(adapter.judge(answer(404), misses=2), Fail)
    assert isinstance(Http202(not_found=0).judge(answer(404)), Fail)


@pytest.mark.parametrize("word", ["failed", "ERROR", "timed-out", "Rejected"])
def test_words_of_failure_fail_and_say_why(word: str) -> None:
    body = b'{"status": "%s", "error": {"code": "Quota", "message": "used up"}}' % word.encode()
    verdict = Http202().judge(answer(200, body))
    assert isinstance(verdict, Fail)
    assert not verdict.canceled
    assert "Quota: used up" in verdict.reason


@pytest.mark.parametrize("word", ["canceled", "Cancelled"])
def test_canceled_is_told_from_failed(word: str) -> None:
    verdict = Http202().judge(answer(200, b'{"status": "%s"}' % word.encode()))
    assert isinstance(verdict, Fail)
    assert verdict.canceled


def test_the_users_words_win() -> None:
    words = Words(field="state", done=["archived"], failed=["done"], canceled=["stopped"])
    adapter = Http202(words=words)
    assert isinstance(adapter.judge(answer(200, b'{"state": "Archived"}')), Done)
    assert isinstance(adapter.judge(answer(200, b'{"state": "done"}')), Fail)
    assert isinstance(adapter.judge(answer(200, b'{"state": "finished"}')), Done)
    assert isinstance(adapter.judge(answer(200, b'{"status": "running"}')), Done)
    assert isinstance(Http202(words=Words(field=None)).judge(answer(200, b'{"status": "running"}')), Done)
    with pytest.raises(BadInput, match="list of words"):
        Words(done="archived")


def test_a_result_is_not_searched_for_words() -> None:
    assert Http202().judge(answer(200, b'{"status": "open"}'), is_result=True) == Done({"status": "open"})


@pytest.mark.parametrize(
    ("response", "url"),
    [
        (answer(202), URL),
        (answer(202, Location="8"), "https://api.example.com/ops/8"),
        (answer(202, Location="/b", Operation_Location="/a", Content_Location="/c"), "https://api.example.com/a"),
        (answer(202, Location="/b", Content_Location="/c"), "https://api.example.com/b"),
        (answer(202, Content_Location="/c"), "https://api.example.com/c"),
        (answer(200, Location="/result"), URL),  # beside 200, Location is where the result will be
        (answer(200, Operation_Location="/a"), "https://api.example.com/a"),
    ],
)
def test_where_to_look_next(response: Response, url: str) -> None:
    assert Http202().next_url(response) == url


async def test_an_operation_from_start_to_result() -> None:
    """202, moved on to another URL, in trouble, not found for a moment, then 303 to the result."""
    looks = scripted(
        Answer(202, {"status": "queued"}, {"Location": "/ops/7b", "Retry-After": "1"}),
        Answer(500),
    )
    moved = scripted(Answer(503), Answer(404), Answer(202), Answer(303, None, {"Location": "/results/7"}))
    paths: Paths = {
        "POST /reports": Answer(202, None, {"Operation-Location": "/ops/7", "Location": "/reports/7"}),
        "GET /ops/7": looks,
        "GET /ops/7b": moved,
        "GET /results/7": Answer(200, {"status": "open", "rows": 3}),
    }
    with serving(by_path(paths)) as fake:
        adapter = Http202(headers={"Authorization": "Bearer abcdefgh"})
        started = await adapter.start(Request(f"{fake.url}/reports", json={"year": 2026}), "run-42")
        verdicts = await timeline(adapter, started.handle)
    begun = fake.asked[0]
    assert (begun.body, begun.headers["prefer"]) == ({"year": 2026}, "respond-async")
    assert begun.headers["idempotency-key"] == "run-42"
    assert [type(one) for one in verdicts] == [Wait] * 3 + [Done]
    assert verdicts[-1] == Done({"status": "open", "rows": 3})
    assert fake.paths()[1:] == ["GET /ops/7", *["GET /ops/7b"] * 4, "GET /results/7"]
    assert all(asked.headers["authorization"] == "Bearer abcdefgh" for asked in fake.asked)


async def test_a_synchronous_answer_is_ready_at_once() -> None:
    with serving(lambda asked: Answer(200, {"rows": 3})) as fake:
        assert await Http202().start(f"{fake.url}/reports", "k") == Started(None, Done({"rows": 3}))


async def test_a_start_that_is_answered_with_a_word_is_judged_as_a_look_is() -> None:
    """A plain 200 that says "running" has not ended, and one that says "failed" has failed."""
    running = Answer(200, {"status": "running"}, {"Location": "/jobs/7", "Retry-After": "9"})
    answers = scripted(running, Answer(200, {"status": "failed"}), Answer(201, {"status": "queued"}))
    with serving(answers) as fake:
        started = await Http202().start(fake.url, "k")
        assert started.handle["url"] == f"{fake.url}/jobs/7"
        assert started.verdict == Wait(9, status="running")
        failed = await Http202().start(fake.url, "k")
        assert isinstance(failed.verdict, Fail)
        with pytest.raises(Refused, match="'queued', and does not say where to look"):
            await Http202().start(fake.url, "k")


async def test_the_wish_in_the_answer_to_the_start_is_heard() -> None:
    with serving(lambda asked: Answer(202, None, {"Location": "/op", "Retry-After": "9"})) as fake:
        assert (await Http202().start(fake.url, "k")).verdict == Wait(9)


async def test_a_start_that_is_refused_raises_and_tells_whether_to_try_again() -> None:
    answers = scripted(Answer(503, None, {"Retry-After": "9"}), Answer(403, {"error": {"message": "not yours"}}))
    with serving(answers) as fake:
        with pytest.raises(RemoteBusy) as busy:
            await Http202().start({"url": fake.url, "json": {}}, "k")
        with pytest.raises(HttpError, match="not yours") as forbidden:
            await Http202().start({"url": fake.url, "json": {}}, "k")
    assert (busy.value.is_transient, busy.value.retry_after_s) == (True, 9)
    assert not forbidden.value.is_transient


async def test_a_look_at_a_busy_remote_raises_what_a_broken_connection_is() -> None:
    """So that a watch counts it, keeps to its Retry-After, and its breaker sees the outage."""
    down = Answer(503, {"error": "down"}, {"Retry-After": "9"})
    expected = pytest.raises(OSError, match=r"answered 503 Service Unavailable: down$")
    with serving(lambda asked: down) as fake, expected as busy:
        await Http202().look(fake.url)
    assert retry_after_s(busy.value) == 9
    assert fault_of(busy.value) == "transient"


def test_a_retry_after_of_nothing_is_no_wish() -> None:
    assert Http202().judge(answer(202, Retry_After="0")) == Wait(status="202")


async def test_202_that_says_nowhere_to_look_begins_nothing() -> None:
    with serving(lambda asked: Answer(202)) as fake:
        with pytest.raises(Refused, match="does not say where to look"):
            await Http202().start(fake.url, "k")
        started = await Http202().start(Request(fake.url, "GET"), "k")
        assert started.handle["url"] == fake.url  # what was read can be read again


async def test_a_url_alone_is_a_handle() -> None:
    with serving(scripted(Answer(202), Answer(200, [1]))) as fake:
        assert await ended(Http202(), fake.url) == Done([1])


async def test_not_found_for_ever_fails_and_says_so() -> None:
    with serving(lambda asked: Answer(404)) as fake:
        verdicts = await timeline(Http202(not_found=3), fake.url)
    assert [type(one) for one in verdicts] == [Wait, Wait, Wait, Fail]


async def test_found_in_between_starts_the_count_anew() -> None:
    answers = scripted(Answer(404), Answer(404), Answer(202), Answer(404), Answer(404), Answer(200))
    with serving(answers) as fake:
        assert await ended(Http202(not_found=2), fake.url) == Done(None)


async def test_see_other_in_a_circle_fails() -> None:
    with serving(lambda asked: Answer(303, None, {"Location": "/b" if asked.path == "/a" else "/a"})) as fake:
        verdict = await Http202().look(f"{fake.url}/a")
    assert isinstance(verdict, Fail)
    assert "redirect loop" in verdict.reason


async def test_see_other_on_and_on_fails() -> None:
    with serving(lambda asked: Answer(303, None, {"Location": f"{asked.path}x"})) as fake:
        assert isinstance(await Http202().look(f"{fake.url}/a"), Fail)
        assert len(fake.asked) <= 6


@pytest.mark.parametrize("body", [b'{"status": "failed", "rows": "%s"}', b"%s"])
def test_the_evidence_of_a_failure_is_bounded(body: bytes) -> None:
    verdict = Http202().judge(answer(200 if b"{" in body else 400, body % (b"x" * 100_000)))
    assert isinstance(verdict, Fail)
    assert len(str(verdict.evidence)) < 5_000


@pytest.mark.parametrize("name", ["percentComplete", "progress"])
def test_a_figure_beyond_all_bounds_is_no_progress(name: str) -> None:
    assert Http202().judge(answer(202, b'{"%s": 1%s}' % (name.encode(), b"0" * 400))) == Wait(status="202")


async def test_a_result_that_is_late_is_waited_for() -> None:
    paths: Paths = {
        "GET /op": Answer(303, None, {"Location": "/result"}),
        "GET /result": scripted(Answer(404), Answer(503), Answer(200, {"n": 1})),
    }
    with serving(by_path(paths)) as fake:
        assert await ended(Http202(), f"{fake.url}/op") == Done({"n": 1})


async def test_cancel_uses_the_method_that_the_remote_knows() -> None:
    with serving(lambda asked: Answer(409)) as fake:
        await Http202(cancel_method="DELETE").cancel(f"{fake.url}/op")
        with pytest.raises(NothingSent, match="this Http202 has no cancel_method="):
            await Http202().cancel(f"{fake.url}/op")
        assert fake.paths() == ["DELETE /op"]


@pytest.mark.parametrize("handle", [None, 7, {}, [], {"url": 7}])
async def test_what_is_no_handle_is_said_so(handle: Any) -> None:
    with pytest.raises(BadInput, match="not a handle"):
        await Http202().look(handle)
