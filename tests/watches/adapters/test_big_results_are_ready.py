"""A result that no row can hold is a success all the same: the value says where it is, and how big."""

from typing import Any

import pytest

from everpoll import Backoff, Budget, Everpoll
from everpoll.watches.adapters import Response
from everpoll.watches.adapters.azure import AzureOperation
from everpoll.watches.adapters.google import GoogleOperation
from everpoll.watches.adapters.http202 import Http202
from everpoll.watches.limits import PAYLOAD_LIMIT, as_json
from everpoll.watches.verdicts import Done, Fail
from watches.adapters.fake_server import Answer, Paths, by_path, serving

URL = "https://api.example.com/ops/7?sig=secret"
BIG = b'{"rows": "' + b"x" * (PAYLOAD_LIMIT + 1) + b'"}'
JUDGES: dict[str, Any] = {
    "http202": Http202().judge,
    "azure location": lambda response: AzureOperation().judge(response, "location"),
    "azure resource": lambda response: AzureOperation().judge(response, "resource"),
    "google": lambda response: GoogleOperation("https://a.example").judge(
        Response(200, {}, b'{"done": true, "response": %s}' % response.body, url=response.url)
    ),
}


@pytest.mark.parametrize("judge", JUDGES.values(), ids=JUDGES)
def test_a_value_that_does_not_fit_says_where_it_is(judge: Any) -> None:
    verdict = judge(Response(200, {}, BIG, url=URL))
    assert isinstance(verdict, Done)
    assert verdict.value["url"] == "https://api.example.com/ops/7?…"
    assert verdict.value["bytes"] >= len(BIG)
    assert "fetch it from the URL" in verdict.value["note"]
    as_json(verdict.value, "value")


@pytest.mark.parametrize("body", [b"\x01" * 200_000, b"[" * 900 + b"]" * 900])
def test_a_body_that_grows_or_is_too_deep_for_a_row_says_so_too(body: bytes) -> None:
    verdict = Http202().judge(Response(200, {"Content-Type": "text/plain"}, body, url=URL))
    assert isinstance(verdict, Done)
    as_json(verdict.value, "value")


def test_a_caller_that_needs_no_row_gets_all_of_it() -> None:
    verdict = Http202(value_limit=None).judge(Response(200, {}, BIG, url=URL))
    assert isinstance(verdict, Done)
    assert len(verdict.value["rows"]) == PAYLOAD_LIMIT + 1


def test_what_google_says_of_a_failure_is_bounded() -> None:
    body = b'{"done": true, "error": {"code": 3, "message": "no", "details": ["%s"]}}' % (b"x" * 2_000_000)
    verdict = GoogleOperation("https://a.example").judge(Response(200, {}, body, url=URL))
    assert isinstance(verdict, Fail)
    assert verdict.reason.endswith("INVALID_ARGUMENT: no")
    as_json(verdict.evidence, "evidence")


async def test_a_watch_with_a_result_of_two_megabytes_is_ready() -> None:
    paths: Paths = {
        "POST /reports": Answer(202, None, {"Location": "/ops/7"}),
        "GET /ops/7": Answer(200, {"rows": "x" * 2_000_000}),
    }
    with serving(by_path(paths)) as fake:
        app, report = Everpoll("memory://"), Http202()

        @app.watch(every=Backoff("10ms"), budget=Budget("1m"))
        async def reports(op: dict[str, Any], w: Any) -> Any:
            return await report.look(w.handle, w.memory)

        reports.start(report.start)
        async with app:
            run = await reports.begin({"url": f"{fake.url}/reports"}, id="run-1")
            value = await run.result(timeout="30s")
    assert (value["url"], value["bytes"]) == (f"{fake.url}/ops/7", 2_000_012)
