"""Waiter models: the first acceptor that matches decides; an error that none matches fails, anything else retries."""

import functools
import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from everpoll.errors import BadInput
from everpoll.policy import Budget
from everpoll.watches.adapters import Adapter, waiter
from everpoll.watches.adapters.waiter import Waiter, WaiterOperation
from everpoll.watches.verdicts import Done, Fail, Wait


def model(*acceptors: dict[str, Any]) -> dict[str, Any]:
    return {"delay": 15, "maxAttempts": 40, "operation": "DescribeThing", "acceptors": list(acceptors)}


def acceptor(matcher: str, expected: Any, argument: str | None = None, state: str = "success") -> dict[str, Any]:
    made = {"state": state, "matcher": matcher, "expected": expected}
    return made if argument is None else made | {"argument": argument}


INSTANCES = {"Reservations": [{"Instances": [{"State": "running"}, {"State": "running"}]}]}
MIXED = {"Reservations": [{"Instances": [{"State": "running"}, {"State": "pending"}]}]}
STATES = "Reservations[].Instances[].State"


@pytest.mark.parametrize(
    ("one", "seen", "state"),
    [
        (acceptor("path", "ACTIVE", "Table.Status"), {"body": {"Table": {"Status": "ACTIVE"}}}, "success"),
        (acceptor("path", "ACTIVE", "Table.Status"), {"body": {"Table": {"Status": "CREATING"}}}, "retry"),
        (acceptor("path", "ACTIVE", "Table.Status"), {"body": {}}, "retry"),
        (acceptor("path", "ACTIVE", "Table.Status"), {"body": None}, "retry"),
        (acceptor("path", True, "length(Items) > `0`"), {"body": {"Items": [1]}}, "success"),
        (acceptor("path", True, "length(Items) > `0`"), {"body": {"Items": None}}, "retry"),
        (acceptor("pathAll", "running", STATES), {"body": INSTANCES}, "success"),
        (acceptor("pathAll", "running", STATES), {"body": MIXED}, "retry"),
        (acceptor("pathAll", "running", STATES), {"body": {"Reservations": []}}, "retry"),  # nothing proves nothing
        (acceptor("pathAll", "running", "State"), {"body": {"State": "running"}}, "retry"),  # no list
        (acceptor("pathAny", "pending", STATES), {"body": MIXED}, "success"),
        (acceptor("pathAny", "pending", STATES), {"body": INSTANCES}, "retry"),
        (acceptor("pathAny", "pending", STATES), {"body": {"Reservations": []}}, "retry"),
        (acceptor("status", 404), {"status": 404, "error": "404"}, "success"),
        (acceptor("status", 200), {"status": 200, "body": {}}, "success"),
        (acceptor("status", 200), {"status": 404}, "retry"),
        (acceptor("error", "NotFound"), {"status": 404, "error": "NotFound"}, "success"),
        (acceptor("error", "NotFound"), {"status": 400, "error": "Throttled"}, "failure"),
        (acceptor("error", "NotFound"), {"body": {}}, "retry"),
        (acceptor("error", True), {"error": "Whatever"}, "success"),
        (acceptor("error", True), {"body": {}}, "retry"),
        (acceptor("error", False), {"body": {}}, "success"),
        (acceptor("error", False), {"error": "Whatever"}, "failure"),
        # A path never matches an error, even where the error's body has what is looked for.
        (acceptor("path", "ACTIVE", "Status"), {"body": {"Status": "ACTIVE"}, "error": "Oops"}, "failure"),
    ],
)
def test_matchers_of_version_2(one: dict[str, Any], seen: dict[str, Any], state: str) -> None:
    assert Waiter(model(one)).judge(**seen) == state


def test_the_first_acceptor_that_matches_decides() -> None:
    broken = acceptor("pathAny", "failed", "Jobs[].State", "failure")
    done = acceptor("pathAny", "done", "Jobs[].State")
    both = {"Jobs": [{"State": "done"}, {"State": "failed"}]}
    assert Waiter(model(broken, done)).judge(body=both) == "failure"
    assert Waiter(model(done, broken)).judge(body=both) == "success"


def test_a_retry_acceptor_excuses_an_error() -> None:
    made = Waiter(model(acceptor("error", "NotFound", state="retry"), acceptor("status", 200)))
    assert made.judge(error="NotFound", status=404) == "retry"
    assert made.judge(error="Other", status=400) == "failure"
    assert made.explain(error="Other")[1] == "error Other, which no acceptor matches"
    assert made.explain(error="NotFound")[1] == "acceptor 1: the error is NotFound"


def test_errors_come_as_codes_responses_and_exceptions() -> None:
    made = Waiter(model(acceptor("error", "NotFound")))
    response = {"Error": {"Code": "NotFound"}}
    assert made.judge(error=response) == "success"
    assert made.judge(error={"Code": "NotFound"}) == "success"
    assert made.judge(error=ClientError(response, "Describe")) == "success"
    assert made.judge(error=type("NotFound", (Exception,), {})()) == "success"
    assert made.judge(error="") == "failure"  # an error without a code is one all the same
    with pytest.raises(BadInput, match="write the code"):
        made.judge(error=404)


def smithy(state: str = "success", **matcher: Any) -> dict[str, Any]:
    return {"acceptors": [{"state": state, "matcher": matcher}]}


def output(path: str, comparator: str, expected: str) -> dict[str, str]:
    return {"path": path, "comparator": comparator, "expected": expected}


@pytest.mark.parametrize(
    ("matcher", "seen", "state"),
    [
        ({"output": output("s", "stringEquals", "ok")}, {"body": {"s": "ok"}}, "success"),
        ({"output": output("s", "stringEquals", "ok")}, {"body": {"s": "no"}}, "retry"),
        ({"output": output("s", "stringEquals", "ok")}, {"body": {"s": "ok"}, "error": "E"}, "failure"),
        ({"output": output("b", "booleanEquals", "true")}, {"body": {"b": True}}, "success"),
        ({"output": output("b", "booleanEquals", "false")}, {"body": {"b": False}}, "success"),
        ({"output": output("b", "booleanEquals", "false")}, {"body": {}}, "retry"),
        ({"output": output("b", "booleanEquals", "true")}, {"body": {"b": 1}}, "retry"),
        ({"output": output("l[]", "allStringEquals", "x")}, {"body": {"l": ["x", "x"]}}, "success"),
        ({"output": output("l[]", "allStringEquals", "x")}, {"body": {"l": []}}, "retry"),
        ({"output": output("l[]", "allStringEquals", "x")}, {"body": {"l": ["x", "y"]}}, "retry"),
        ({"output": output("l[]", "anyStringEquals", "x")}, {"body": {"l": ["y", "x"]}}, "success"),
        ({"output": output("l[]", "anyStringEquals", "x")}, {"body": {"l": "x"}}, "retry"),
        ({"output": output("b", "booleanEquals", "true")}, {"body": {"b": "true"}}, "retry"),
        # A value that is not text equals no text, even where the model expects an empty one.
        (
            {"output": {"path": "l", "comparator": "allStringEquals", "expected": 1}},
            {"body": {"l": [1, True]}},
            "retry",
        ),
        ({"output": {"path": "l", "comparator": "anyStringEquals", "expected": 1}}, {"body": {"l": [1]}}, "retry"),
        ({"success": True}, {"body": {}}, "success"),
        ({"success": True}, {"error": "E"}, "failure"),
        ({"success": False}, {"error": "E"}, "success"),
        ({"success": False}, {"body": {}}, "retry"),
        ({"errorType": "NotFound"}, {"error": "NotFound"}, "success"),
        ({"errorType": "com.example#NotFound"}, {"error": "NotFound"}, "success"),
        ({"errorType": "NotFound"}, {"error": "Other"}, "failure"),
        (
            {"inputOutput": output("length(input.ids) == length(output.items)", "booleanEquals", "true")},
            {"input": {"ids": [1, 2]}, "body": {"items": ["a", "b"]}},
            "success",
        ),
    ],
)
def test_matchers_of_smithy(matcher: dict[str, Any], seen: dict[str, Any], state: str) -> None:
    assert Waiter(smithy(**matcher)).judge(**seen) == state


def test_delays_and_attempts_are_those_of_the_model() -> None:
    made = Waiter(model(acceptor("status", 200)))
    assert (made.delay_s, made.max_attempts, made.operation) == (15, 40, "DescribeThing")
    assert made.budget == Budget("10m", looks=40)
    bare = Waiter(smithy(success=True))
    assert (bare.delay_s, bare.longest_delay_s, bare.max_attempts, bare.budget) == (2, 120, None, None)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"acceptors": "x"},
        model({"state": "maybe", "matcher": "status", "expected": 200}),
        model({"state": "success", "matcher": "status"}),
        model({"state": "success", "matcher": "header", "expected": 1}),
        model({"state": "success", "matcher": "path", "expected": 1}),
        model({"state": "success", "matcher": "path", "expected": 1, "argument": "a[["}),
        model() | {"delay": "soon"},
        smithy(output=output("a", "equals", "x")),
        smithy(success=True, errorType="x"),
        smithy(header=1),
    ],
)
def test_a_model_that_cannot_be_used_is_refused_when_it_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Waiter(wrong)


def test_without_jmespath_paths_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(waiter, "import_module", absent)
    assert Waiter(model(acceptor("status", 200))).judge(status=200) == "success"
    with pytest.raises(BadInput, match=r"needs the package jmespath, .*: pip install jmespath, or"):
        Waiter(model(acceptor("path", 1, "a")))


def test_a_file_of_botocore_is_read_by_name(tmp_path: Path) -> None:
    botocore = Path(str(importlib.import_module("botocore").__file__)).parent
    folder = max((botocore / "data" / "dynamodb").iterdir())
    path = next(folder.glob("waiters-2.json"))
    assert waiter.load(path, "TableExists").judge(body={"Table": {"TableStatus": "ACTIVE"}}) == "success"
    assert waiter.load(str(path), "table_not_exists").judge(error="ResourceNotFoundException") == "success"
    with pytest.raises(BadInput, match="TableExists"):
        waiter.load(path, "TableExist")
    old = tmp_path / "waiters-1.json"
    old.write_text(json.dumps({"version": 1, "waiters": {}}))
    with pytest.raises(BadInput, match="version 1"):
        waiter.load(old, "X")


def test_a_smithy_model_is_read_by_operation_and_name() -> None:
    trait = {"smithy.waiters#waitable": {"BucketExists": smithy(success=True)}}
    model = {"smithy": "2.0", "shapes": {"com.example#HeadBucket": {"type": "operation", "traits": trait}}}
    assert waiter.load(model, "BucketExists", operation="HeadBucket").judge(body={}) == "success"
    assert waiter.load(model, "bucket_exists").judge(error="x") == "failure"
    with pytest.raises(BadInput, match="known waiters: none"):
        waiter.load(model, "BucketExists", operation="GetBucket")


ACTIVE = model(
    acceptor("path", "ACTIVE", "Status"),
    acceptor("path", "BROKEN", "Status", "failure"),
    acceptor("error", "NotFound", state="retry"),
)


async def test_a_call_is_looked_at_in_a_thread_or_in_the_loop() -> None:
    def plain(*, Name: str) -> dict[str, str]:  # noqa: N803 - botocore's way of writing
        return {"Status": "ACTIVE", "Name": Name}

    async def coroutine(*, Name: str) -> dict[str, str]:  # noqa: N803
        return plain(Name=Name)

    def wrapper(*, Name: str) -> Any:  # noqa: N803
        return coroutine(Name=Name)

    for call in (plain, coroutine, functools.partial(coroutine), wrapper):
        operation = WaiterOperation(ACTIVE, call)
        assert isinstance(operation, Adapter)
        assert await operation.look({"Name": "a"}) == Done({"Status": "ACTIVE", "Name": "a"})


async def test_what_is_kept_is_what_the_service_said_and_not_the_request() -> None:
    broken = {"Status": "BROKEN", "Why": "disk full", "ResponseMetadata": {"HTTPStatusCode": 200, "RequestId": "r"}}
    verdict = await WaiterOperation(ACTIVE, lambda: broken).look({})
    assert isinstance(verdict, Fail)
    assert verdict.evidence == {"Status": "BROKEN", "Why": "disk full"}


@pytest.mark.parametrize("big", ["x" * 2_000_000, object()])
async def test_an_answer_that_no_row_can_hold_is_a_success_all_the_same(big: object) -> None:
    table = WaiterOperation(model(acceptor("error", False)), lambda: {"Rows": big})
    verdict = await table.look({})
    assert isinstance(verdict, Done)
    assert verdict.value["note"].endswith("make the call again to read it")


async def test_delays_that_grow_are_left_to_the_cadence() -> None:
    never = smithy(output=output("s", "stringEquals", "ok"))
    assert await WaiterOperation(never, dict).look({}) == Wait(note="no acceptor matches")


async def test_errors_of_the_service_are_judged_and_those_of_the_network_raised() -> None:
    errors: list[Exception] = [
        ClientError({"Error": {"Code": "NotFound"}, "ResponseMetadata": {"HTTPStatusCode": 404}}, "Describe"),
        ClientError({"Error": {"Code": "Denied", "Message": "not yours"}}, "Describe"),
        EndpointConnectionError(endpoint_url="http://x"),
    ]

    def call() -> None:
        raise errors.pop(0)

    operation = WaiterOperation(ACTIVE, call)
    assert await operation.look({}) == Wait("15s", note="acceptor 3: the error is NotFound")
    refused = await operation.look({})
    assert isinstance(refused, Fail)
    assert refused.evidence == {"Error": {"Code": "Denied", "Message": "not yours"}}
    with pytest.raises(EndpointConnectionError):
        await operation.look({})
