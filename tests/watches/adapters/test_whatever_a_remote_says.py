"""No answer breaks a judge: it is a verdict that can be stored, and never "done" without a success."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll.watches.adapters import Refused, Request, Response
from everpoll.watches.adapters.anthropic_batch import AnthropicBatch
from everpoll.watches.adapters.azure import AzureOperation
from everpoll.watches.adapters.client import HttpError
from everpoll.watches.adapters.google import GoogleOperation
from everpoll.watches.adapters.http202 import Http202
from everpoll.watches.adapters.openai_batch import OpenAIBatch
from everpoll.watches.limits import as_json
from everpoll.watches.verdicts import Done, Fail, Wait

WORDS = ["status", "done", "error", "response", "code", "message", "properties", "provisioningState", "metadata"]
WORDS += ["processing_status", "request_counts", "results_url", "succeeded", "completed", "failed", "errors", "data"]
WORDS += [
    "percentComplete",
    "progress",
    "resourceLocation",
    "canceled",
    "expired",
    "total",
    "archived_at",
    "id",
    "line",
]
ENDS = ["Succeeded", "failed", "Canceled", "completed", "ended", "expired", "cancelled", "running", "in_progress", ""]

names = st.one_of(st.sampled_from(WORDS), st.text(max_size=5))
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 600),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(ENDS),
    st.text(max_size=20),
)
bodies = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5))
raw = st.one_of(bodies.map(lambda body: json.dumps(body).encode()), st.binary(max_size=30))
values = st.one_of(
    st.text(max_size=30), st.sampled_from(["/next", "https://a.example/x", "5", "Fri, 15 Jan 2027 08:00:00 GMT"])
)
headers = st.dictionaries(
    st.sampled_from(
        ["Location", "Operation-Location", "Azure-AsyncOperation", "Retry-After", "retry-after-ms", "Date"]
    ),
    values,
    max_size=4,
)
statuses = st.one_of(st.sampled_from([200, 201, 202, 204, 303, 404, 410, 429, 503]), st.integers(200, 599))


@st.composite
def responses(draw: st.DrawFn) -> Response:
    return Response(draw(statuses), draw(headers), draw(raw), url="https://a.example/op", received_at=1_800_000_000)


JUDGES: dict[str, Any] = {
    "http202": Http202().judge,
    "http202 result": lambda response: Http202().judge(response, is_result=True),
    "azure operation": lambda response: AzureOperation().judge(response, "operation"),
    "azure location": lambda response: AzureOperation().judge(response, "location"),
    "azure resource": lambda response: AzureOperation().judge(response, "resource"),
    "google": GoogleOperation("https://a.example").judge,
    "openai": OpenAIBatch("sk-test").judge,
    "anthropic": AnthropicBatch("sk-test").judge,
}


@pytest.mark.parametrize("judge", JUDGES.values(), ids=JUDGES)
def test_every_answer_is_a_verdict_that_can_be_stored(judge: Any) -> None:
    @settings(derandomize=True, deadline=None)
    @given(responses())
    def judged(response: Response) -> None:
        try:
            verdict = judge(response)
        except Refused:
            return  # a look makes a failure of it
        if isinstance(verdict, Done):
            assert 200 <= response.status < 300
            as_json(verdict.value, "value")
        elif isinstance(verdict, Fail):
            assert 0 < len(verdict.reason) < 2_000
            as_json(verdict.evidence, "evidence")
        else:
            assert isinstance(verdict, Wait)
            assert verdict.after_s is None or 0 < verdict.after_s <= 86_400
            assert len(verdict.note or "") < 1_000
            assert len(verdict.status or "") < 1_000

    judged()


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("adapter", [Http202(), AzureOperation()])
def test_every_start_is_a_handle_that_can_be_stored_or_an_end_or_an_error(adapter: Any, method: str) -> None:
    @settings(derandomize=True, deadline=None)
    @given(responses())
    def begun(response: Response) -> None:
        try:
            started = adapter.begun(Request("https://a.example/start", method), response)
        except (Refused, HttpError) as error:
            assert len(str(error)) < 2_000  # noqa: PT017 - either is right
            return
        as_json(started.handle, "handle")
        if isinstance(started.verdict, Wait):
            assert started.handle["url"].startswith("https://")

    begun()
