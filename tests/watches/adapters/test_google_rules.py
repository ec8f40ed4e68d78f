"""Google operations: done, then exactly one of error and response; the same ends as Google's own client."""

import json
import random
from typing import Any

import pytest
import requests
from google.api_core import exceptions, operation, retry
from google.api_core.future import polling
from google.protobuf import wrappers_pb2

from everpoll.errors import BadInput
from everpoll.watches.adapters import Adapter, Canceler, HttpError, Refused, Request, Response, Starter
from everpoll.watches.adapters.google import CODES, GoogleOperation, code_name
from everpoll.watches.verdicts import Done, Fail, Started, Wait
from watches.adapters.fake_server import Answer, Asked, Paths, by_path, scripted, serving
from watches.adapters.looking import ended

GOOGLE = GoogleOperation("https://speech.googleapis.com")
NAME = "operations/7"
# Google's client has no types of its own here.
begun: Any = operation.from_http_json
STRING = "type.googleapis.com/google.protobuf.StringValue"


def answer(status: int, body: Any = None, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status, named, b"" if body is None else json.dumps(body).encode(), url=GOOGLE.url(NAME))


def test_it_is_an_adapter() -> None:
    assert isinstance(GOOGLE, Adapter)
    assert isinstance(GOOGLE, Starter)
    assert isinstance(GOOGLE, Canceler)


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ({"name": NAME}, Wait(status="running")),
        ({"name": NAME, "done": False}, Wait(status="running")),
        ({"name": NAME, "metadata": {"progressPercent": 40}}, Wait(status="running", note="40 %")),
        ({"name": NAME, "metadata": {"progress": "half"}}, Wait(status="running", note="half")),
        ({"name": NAME, "done": "yes"}, Wait(status="running")),
        ({}, Wait(status="running")),
        ({"name": NAME, "done": True, "response": {"n": 1}}, Done({"n": 1})),
        ({"name": NAME, "done": True}, Done(None)),
        ({"name": NAME, "done": True, "error": {}}, Done(None)),
        ({"name": NAME, "done": True, "error": {"code": 0}, "response": {"n": 1}}, Done({"n": 1})),
    ],
)
def test_what_an_operation_says(body: Any, verdict: Any) -> None:
    assert GOOGLE.judge(answer(200, body)) == verdict


def test_an_error_is_failure_with_its_name_and_whether_a_new_one_may_do_better() -> None:
    error = {"code": 14, "message": "try later", "details": [{"@type": "x"}]}
    verdict = GOOGLE.judge(answer(200, {"done": True, "error": error}))
    assert isinstance(verdict, Fail)
    assert verdict.reason == "the operation ended with UNAVAILABLE: try later"
    assert verdict.evidence == {
        "code": 14,
        "status": "UNAVAILABLE",
        "message": "try later",
        "details": [{"@type": "x"}],
        "is_retryable": True,
    }
    denied = GOOGLE.judge(answer(200, {"done": True, "error": {"code": 7}}))
    assert isinstance(denied, Fail)
    assert denied.evidence["is_retryable"] is False


@pytest.mark.parametrize("error", ["quota exceeded", ["quota exceeded"], True, {"code": None}, {"message": "x"}, 7])
def test_an_error_of_any_shape_is_failure(error: Any) -> None:
    verdict = GOOGLE.judge(answer(200, {"done": True, "error": error, "response": {"n": 1}}))
    assert isinstance(verdict, Fail)
    assert "quota" not in str(error) or "quota exceeded" in verdict.reason


@pytest.mark.parametrize("error", ["", [], False, None, 0])
def test_an_error_that_is_empty_is_none(error: Any) -> None:
    assert GOOGLE.judge(answer(200, {"done": True, "error": error, "response": {"n": 1}})) == Done({"n": 1})


def test_a_figure_beyond_all_bounds_is_no_progress() -> None:
    body = b'{"metadata": {"progressPercent": 1%s}}' % (b"0" * 400)
    assert GOOGLE.judge(Response(200, {}, body)) == Wait(status="running")


@pytest.mark.parametrize("body", [{}, {"name": ""}, {"name": 7}, {"error": "x"}, ["operations/7"]])
async def test_an_answer_that_is_no_operation_begins_nothing(body: Any) -> None:
    with serving(lambda asked: Answer(200, body)) as fake, pytest.raises(Refused, match="it has no name"):
        await GoogleOperation(fake.url).start(Request(fake.url, json={}), "k")


def test_code_1_is_canceled() -> None:
    verdict = GOOGLE.judge(answer(200, {"done": True, "error": {"code": 1, "message": "Operation canceled"}}))
    assert isinstance(verdict, Fail)
    assert verdict.canceled


@pytest.mark.parametrize(
    ("status", "word", "waits"),
    [
        (404, "NOT_FOUND", True),
        (429, "RESOURCE_EXHAUSTED", True),
        (503, "UNAVAILABLE", True),
        (504, "DEADLINE_EXCEEDED", True),
        (500, "INTERNAL", True),
        (409, "ABORTED", True),
        (502, None, True),
        (400, "INVALID_ARGUMENT", False),
        (401, "UNAUTHENTICATED", False),
        (403, "PERMISSION_DENIED", False),
        (409, "ALREADY_EXISTS", False),
    ],
)
def test_errors_of_the_look_itself(status: int, word: str | None, waits: bool) -> None:
    body = {"error": {"code": status, "message": "so", "status": word}} if word else None
    verdict = GOOGLE.judge(answer(status, body, Retry_After="4"))
    assert isinstance(verdict, Wait if waits else Fail)
    if isinstance(verdict, Wait):
        assert verdict.after_s == 4


def test_codes_have_their_names() -> None:
    assert [code_name(code) for code in (0, 1, 5, 16)] == ["OK", "CANCELLED", "NOT_FOUND", "UNAUTHENTICATED"]
    assert code_name(99) == "code 99"
    assert code_name(True) == "code True"
    assert len(CODES) == 17


def test_names_become_urls_and_cannot_leave_the_service() -> None:
    assert GOOGLE.url("projects/p/locations/l/operations/7") == (
        "https://speech.googleapis.com/v1/projects/p/locations/l/operations/7"
    )
    with pytest.raises(Refused):
        GOOGLE.url("operations/../../admin")


@pytest.mark.parametrize("handle", [None, 7, "", "/", {}, {"name": ""}])
async def test_what_is_no_handle_is_said_so(handle: Any) -> None:
    with pytest.raises(BadInput, match="not a handle"):
        await GOOGLE.look(handle)


async def test_from_start_to_response_with_cancel_and_cleanup() -> None:
    looks = scripted(
        Answer(404, {"error": {"code": 404, "status": "NOT_FOUND"}}),
        Answer(200, {"name": NAME, "metadata": {"progressPercent": 10}}),
        Answer(503),
        Answer(200, {"name": NAME, "done": True, "response": {"text": "hello"}}),
    )
    paths: Paths = {
        "POST /v1/speech:recognize": Answer(200, {"name": NAME}),
        "GET /v1/operations/7": looks,
        "POST /v1/operations/7:cancel": Answer(200, {}),
        "DELETE /v1/operations/7": Answer(501, {"error": {"code": 501, "status": "UNIMPLEMENTED"}}),
    }
    with serving(by_path(paths)) as fake:
        google = GoogleOperation(fake.url, request_id="requestId")
        begin = Request(f"{fake.url}/v1/speech:recognize", json={"uri": "gs://a/b"})
        handle = (await google.start(begin, "run-42")).handle
        assert handle == NAME
        assert await ended(google, handle) == Done({"text": "hello"})
        await google.cancel(handle)
        await google.cleanup(handle)
        await google.start(begin, "run-42")
    ids = [asked.path for asked in fake.asked if "recognize" in asked.path]
    assert ids[0] == ids[1]
    assert "?requestId=" in ids[0]


async def test_an_operation_that_is_done_at_once_needs_no_record() -> None:
    done = {"done": True, "response": {"n": 1}}
    with serving(lambda asked: Answer(200, done)) as fake:
        google = GoogleOperation(fake.url)
        started = await google.start(fake.url, "k")
        assert started == Started(None, Done({"n": 1}))
        await google.cleanup(started.handle)
        assert len(fake.asked) == 1


async def test_a_cancel_that_is_forbidden_raises() -> None:
    denied = Answer(403, {"error": {"status": "PERMISSION_DENIED"}})
    with serving(lambda asked: denied) as fake, pytest.raises(HttpError, match="PERMISSION_DENIED"):
        await GoogleOperation(fake.url).cancel(NAME)


def script(seed: int) -> list[dict[str, Any]]:
    """What an operation says from look to look, in the form that protocol buffers have as JSON."""
    rng = random.Random(seed)
    name = {"name": "7"}
    running = [name | ({"done": False} if rng.random() < 0.5 else {}) for _ in range(rng.randint(0, 4))]
    if rng.random() < 0.5:
        return [*running, name | {"done": True, "response": {"@type": STRING, "value": f"text {seed}"}}]
    return [*running, name | {"done": True, "error": {"code": rng.randint(1, 16), "message": f"so {seed}"}}]


@pytest.mark.parametrize("seed", range(30))
async def test_googles_own_client_comes_to_the_same_end(seed: int) -> None:
    answers = script(seed)
    with serving(scripted(*(Answer(200, one) for one in answers))) as fake, requests.Session() as session:

        def api_request(method: str, path: str) -> Any:
            return session.request(method, f"{fake.url}/v1/{path}", timeout=20).json()

        quick = retry.Retry(
            predicate=retry.if_exception_type(exceptions.TooManyRequests, polling._OperationNotComplete),
            initial=0.001,
            maximum=0.001,
            timeout=20,
        )
        future = begun({"name": "7"}, api_request, wrappers_pb2.StringValue, polling=quick)
        try:
            theirs: Any = future.result().value
        except exceptions.GoogleAPICallError as error:
            theirs = error
        fake.answer = scripted(*(Answer(200, one) for one in answers))
        verdict = await ended(GoogleOperation(fake.url), "operations/7")
    if isinstance(theirs, str):
        assert verdict == Done({"@type": STRING, "value": theirs})
    else:
        assert isinstance(verdict, Fail)
        assert theirs.message in verdict.reason
        assert verdict.canceled is (answers[-1]["error"]["code"] == 1)


async def test_googles_own_client_cancels_at_the_same_place() -> None:
    asked: list[str] = []

    def answer(one: Asked) -> Answer:
        asked.append(f"{one.method} {one.path}")
        return Answer(200, {"name": "7"})

    with serving(answer) as fake, requests.Session() as session:

        def api_request(method: str, path: str) -> Any:
            return session.request(method, f"{fake.url}/v1/{path}", timeout=20).json()

        begun({"name": "7"}, api_request, wrappers_pb2.StringValue).cancel()
        await GoogleOperation(fake.url).cancel("operations/7")
    cancels = [one for one in asked if one.startswith("POST")]
    assert cancels == ["POST /v1/operations/7:cancel"] * 2
