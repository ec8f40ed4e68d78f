"""Azure operations: what each answer means, where the result is, and the same ends as Azure's own client."""

import json
import random
from typing import Any

import pytest
from azure.core import PipelineClient
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline.policies import RequestIdPolicy
from azure.core.polling import LROPoller
from azure.core.polling.base_polling import LROBasePolling
from azure.core.rest import HttpRequest
from azure.mgmt.core.polling.arm_polling import ARMPolling

from everpoll.errors import BadInput
from everpoll.watches.adapters import Adapter, HttpError, Refused, Request, Response, Starter
from everpoll.watches.adapters.azure import AzureOperation, Via
from everpoll.watches.verdicts import Done, Fail, Started, Verdict, Wait
from watches.adapters.fake_server import Answer, Asked, Paths, by_path, scripted, serving
from watches.adapters.looking import ended, timeline

URL = "https://management.azure.com/operations/7"
THING = "https://management.azure.com/things/1"


def answer(status: int, body: Any = None, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status, named, b"" if body is None else json.dumps(body).encode(), url=URL)


def test_it_is_an_adapter() -> None:
    assert isinstance(AzureOperation(), Adapter)
    assert isinstance(AzureOperation(), Starter)


@pytest.mark.parametrize(
    ("response", "via", "verdict"),
    [
        (answer(200, {"status": "InProgress"}, Retry_After="5"), "operation", Wait("5s", status="InProgress")),
        (answer(202, {"status": "Running"}, Retry_After_Ms="250"), "operation", Wait("250ms", status="Running")),
        (answer(200, {"status": "Updating"}, X_Ms_Retry_After_Ms="50"), "operation", Wait("50ms", status="Updating")),
        (answer(200, {"status": "Canceling"}), "operation", Wait(status="Canceling")),
        (
            answer(200, {"status": "Running", "percentComplete": 12.5}),
            "operation",
            Wait(note="12.5 %", status="Running"),
        ),
        (answer(200, {"status": "Succeeded"}), "operation", Done({"status": "Succeeded"})),
        (answer(200, {"status": "sUCCEEDED"}), "operation", Done({"status": "sUCCEEDED"})),
        (answer(202), "location", Wait(status="202")),
        (answer(200, {"name": "a"}), "location", Done({"name": "a"})),
        (answer(204), "location", Done(None)),
        (answer(200, {"properties": {"provisioningState": "Creating"}}), "resource", Wait(status="Creating")),
        (answer(200, {"name": "a", "properties": {}}), "resource", Done({"name": "a", "properties": {}})),
        (answer(200, {"name": "a"}), "resource", Done({"name": "a"})),
    ],
)
def test_what_an_answer_means(response: Response, via: Via, verdict: Verdict) -> None:
    assert AzureOperation().judge(response, via) == verdict


@pytest.mark.parametrize(
    ("body", "via", "reason", "canceled"),
    [
        ({"status": "Failed", "error": {"code": "Quota", "message": "used up"}}, "operation", "Quota: used up", False),
        ({"status": "FAILED"}, "operation", "FAILED", False),
        ({"status": "Canceled"}, "operation", "Canceled", True),
        ({"status": "Failed", "properties": {"error": {"code": "Inner"}}}, "operation", "Inner", False),
        ({"properties": {"provisioningState": "Failed"}}, "resource", "Failed", False),
        ({"properties": {"provisioningState": "canceled"}}, "resource", "canceled", True),
    ],
)
def test_the_bad_ends_say_why(body: Any, via: Via, reason: str, canceled: bool) -> None:
    verdict = AzureOperation().judge(answer(200, body), via)
    assert isinstance(verdict, Fail)
    assert reason in verdict.reason
    assert verdict.canceled is canceled


@pytest.mark.parametrize("body", [None, {}, {"status": None}, {"status": 1}, [1], {"state": "Succeeded"}])
def test_no_word_is_no_evidence(body: Any) -> None:
    assert isinstance(AzureOperation().judge(answer(200, body)), Wait)


@pytest.mark.parametrize(
    ("method", "final", "location", "resource_location", "url"),
    [
        ("PUT", None, None, None, THING),
        ("PUT", None, "https://a.example/loc", None, THING),
        ("PATCH", None, None, "/things/9", "https://management.azure.com/things/9"),
        ("POST", None, "https://a.example/loc", None, "https://a.example/loc"),
        ("POST", None, None, None, None),
        ("POST", "azure-async-operation", "https://a.example/loc", "/things/9", None),
        ("POST", "operation-location", "https://a.example/loc", None, None),
        ("POST", "location", "https://a.example/loc", "/things/9", "https://a.example/loc"),
        ("PUT", "location", "https://a.example/loc", None, "https://a.example/loc"),
        ("PUT", "location", None, None, THING),
        ("PUT", "azure-async-operation", None, None, THING),
        ("POST", "original-uri", None, "/things/9", THING),
        ("DELETE", None, "https://a.example/loc", None, None),
    ],
)
def test_where_the_result_is(
    method: str, final: Any, location: str | None, resource_location: str | None, url: str | None
) -> None:
    handle = {"home": THING, "method": method, "via": "operation", "url": URL, "location": location}
    response = answer(200, {"status": "Succeeded", "resourceLocation": resource_location})
    assert AzureOperation(final_state_via=final).final_url(handle, response) == url


@pytest.mark.parametrize(
    ("method", "response", "via", "url"),
    [
        (
            "PUT",
            answer(201, Azure_AsyncOperation="/op/a", Operation_Location="/op/b", Location="/op/c"),
            "operation",
            "/op/a",
        ),
        ("POST", answer(202, Operation_Location="/op/b", Location="/op/c"), "operation", "/op/b"),
        ("POST", answer(202, Location="/op/c"), "location", "/op/c"),
        ("PUT", answer(202), "resource", "/things/1"),
        ("PATCH", answer(201, {"properties": {"provisioningState": "Creating"}}), "resource", "/things/1"),
        ("PUT", answer(200, {"properties": {"provisioningState": "Updating"}}), "resource", "/things/1"),
    ],
)
def test_where_to_look(method: str, response: Response, via: str, url: str) -> None:
    started = AzureOperation().begun(Request(THING, method), response)
    assert (started.handle["via"], started.handle["url"]) == (via, f"https://management.azure.com{url}")


@pytest.mark.parametrize(
    ("method", "response", "value"),
    [
        ("PUT", answer(200, {"properties": {"provisioningState": "Succeeded"}}), None),
        ("PUT", answer(200, {"name": "a"}), {"name": "a"}),
        ("PUT", answer(204), None),
        ("POST", answer(200, {"n": 1}), {"n": 1}),
        ("DELETE", answer(204), None),
    ],
)
def test_what_is_done_at_once_needs_no_look(method: str, response: Response, value: Any) -> None:
    started = AzureOperation().begun(Request(THING, method), response)
    assert started == Started(None, Done(value if value is not None else response.json()))


def test_the_wish_in_the_answer_to_the_start_is_heard() -> None:
    started = AzureOperation().begun(Request(THING, "POST"), answer(202, Location="/op", Retry_After="9"))
    assert started.verdict == Wait(9)


def test_what_begins_nothing_raises() -> None:
    with pytest.raises(HttpError, match="Quota: used up"):
        AzureOperation().begun(Request(THING, "PUT"), answer(409, {"error": {"code": "Quota", "message": "used up"}}))
    with pytest.raises(Refused, match="does not say where to look"):
        AzureOperation().begun(Request(THING, "POST"), answer(202))
    with pytest.raises(Refused, match="plain HTTP"):
        AzureOperation().begun(Request(THING, "PUT"), answer(202, Location="http://management.azure.com/op"))
    with pytest.raises(BadInput, match="final_state_via"):
        AzureOperation(final_state_via="somewhere")  # type: ignore[arg-type]  # that is the point


async def test_the_start_carries_the_same_id_each_time() -> None:
    with serving(lambda asked: Answer(202, None, {"Location": "/op"})) as fake:
        for _ in range(2):
            await AzureOperation().start(Request(fake.url, "PUT", {"a": 1}), "run-42")
    first, second = (asked.headers["repeatability-request-id"] for asked in fake.asked)
    assert first == second
    assert "repeatability-first-sent" in fake.asked[0].headers


async def test_location_is_read_anew_each_time_and_trouble_passes() -> None:
    paths: Paths = {
        "DELETE /things/1": Answer(202, None, {"Location": "/op/1?token=a"}),
        "GET /op/1": scripted(Answer(503), Answer(202, None, {"Location": "/op/2", "Retry-After": "0"})),
        "GET /op/2": scripted(Answer(404), Answer(429), Answer(204)),
    }
    with serving(by_path(paths)) as fake:
        adapter = AzureOperation()
        handle = (await adapter.start(Request(f"{fake.url}/things/1", "DELETE"), "k")).handle
        assert await ended(adapter, handle) == Done(None)


async def test_a_result_that_is_never_found_fails_after_three_times() -> None:
    """The operation itself is found each time, which must not begin the count of the result anew."""
    paths: Paths = {"GET /ops/7": Answer(200, {"status": "Succeeded"})}
    with serving(by_path(paths)) as fake:
        handle = {"home": f"{fake.url}/things/1", "url": f"{fake.url}/ops/7", "via": "operation", "method": "PUT"}
        verdicts = await timeline(AzureOperation(), handle)
    assert [type(one) for one in verdicts] == [Wait, Wait, Wait, Fail]


def test_a_figure_beyond_all_bounds_is_no_progress() -> None:
    body = b'{"status": "Running", "percentComplete": 1%s}' % (b"0" * 400)
    assert AzureOperation().judge(Response(200, {}, body)) == Wait(status="Running")


async def test_a_result_that_is_late_is_waited_for() -> None:
    paths: Paths = {
        "PUT /things/1": Answer(201, {}, {"Azure-AsyncOperation": "{url}/op"}),
        "GET /op": Answer(200, {"status": "Succeeded"}),
        "GET /things/1": scripted(Answer(404), Answer(500), Answer(202), Answer(200, {"name": "a"})),
    }
    with serving(by_path(paths)) as fake:
        adapter = AzureOperation()
        handle = (await adapter.start(Request(f"{fake.url}/things/1", "PUT", {}), "k")).handle
        assert await ended(adapter, handle) == Done({"name": "a"})


class Scenario:
    """An operation as a service might run it, drawn at random; the same each time it is begun."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.is_arm = rng.random() < 0.6
        self.method = rng.choice(("PUT", "PATCH", "POST", "DELETE"))
        kinds = ["operation", "location"] + (["resource"] if self.is_arm and self.method in ("PUT", "PATCH") else [])
        self.kind = rng.choice(kinds)
        vias = (None, None, "location", "azure-async-operation" if self.is_arm else "operation-location")
        self.final_via = rng.choice(vias)
        self.has_location = rng.random() < 0.5
        self.has_resource_location = rng.random() < 0.3
        self.words = rng.sample(("Accepted", "Running", "Creating", "Updating", "waiting"), rng.randint(0, 3))
        self.end = rng.choice(("Succeeded", "succeeded", "Succeeded", "Failed", "Canceled", "FAILED"))
        self.status = rng.choice((200, 201, 202))
        self.left = list(self.words)

    @property
    def options(self) -> dict[str, str]:
        return {} if self.final_via is None else {"final-state-via": self.final_via}

    def answer(self, asked: Asked) -> Answer:
        if asked.method != "GET":
            self.left = list(self.words)
            return self._begun()
        return {"/op": self._operation, "/loc": self._location}.get(asked.path, self._thing)()

    def _begun(self) -> Answer:
        headers = {}
        if self.kind == "operation":
            headers["Azure-AsyncOperation" if self.is_arm else "Operation-Location"] = "{url}/op"
        if self.kind == "location" or (self.kind == "operation" and self.has_location):
            headers["Location"] = "{url}/loc"
        state = {"properties": {"provisioningState": "Creating"}} if self.kind == "resource" else None
        return Answer(201 if self.kind == "resource" else self.status, state, headers)

    def _operation(self) -> Answer:
        if self.left:
            return Answer(200, {"status": self.left.pop(0)}, {"Retry-After": "0"})
        body: dict[str, Any] = {"status": self.end, "properties": {"output": 1}}
        if self.has_resource_location:
            body["resourceLocation"] = "{url}/elsewhere"
        return Answer(200, body)

    def _location(self) -> Answer:
        if self.kind == "location" and self.left:
            self.left.pop(0)
            return Answer(202, None, {"Location": "{url}/loc", "Retry-After": "0"})
        return Answer(200, {"from": "loc"})

    def _thing(self) -> Answer:
        if self.kind != "resource":
            return Answer(200, {"from": "thing"})
        word = self.left.pop(0) if self.left else self.end
        return Answer(200, {"from": "thing", "properties": {"provisioningState": word}})


def theirs(url: str, scenario: Scenario) -> Any:
    """The result by Azure's own client; "failed" where it raises."""
    client: PipelineClient[Any, Any] = PipelineClient(url, policies=[RequestIdPolicy()])
    with client:
        begun = client._pipeline.run(HttpRequest(scenario.method, f"{url}/things/1", json={}))
        begun.http_response.read()
        polling_class = ARMPolling if scenario.is_arm else LROBasePolling
        polling: Any = polling_class(timeout=0, lro_options=scenario.options)
        try:
            poller: LROPoller[Any] = LROPoller(client, begun, lambda done: done.http_response, polling)
            response = poller.result()
        except HttpResponseError:
            return "failed"
        return response.json() if response.content else None


@pytest.mark.parametrize("seed", range(80))
async def test_azures_own_client_comes_to_the_same_end(seed: int) -> None:
    scenario = Scenario(seed)
    with serving(scenario.answer) as fake:
        expected = theirs(fake.url, scenario)
        final: Any = scenario.final_via
        adapter = AzureOperation(final_state_via=final)
        handle = (await adapter.start(Request(f"{fake.url}/things/1", scenario.method, {}), "k")).handle
        verdict = await ended(adapter, handle)
    if expected == "failed":
        assert isinstance(verdict, Fail)
        assert verdict.canceled is (scenario.end == "Canceled")
    else:
        assert verdict == Done(expected)
