"""Every waiter that botocore ships ends the same way, after as many looks, for botocore and for us."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import botocore.loaders
import botocore.session
import botocore.waiter
import jmespath
import jmespath.exceptions
import pytest
from botocore.config import Config

from everpoll.watches.adapters.waiter import Waiter, WaiterOperation
from watches.adapters.fake_server import Answer, Asked, serving
from watches.adapters.looking import ended

SEED = 20261116
LENGTH = 6
SEQUENCES_A_WAITER = 12
NOISE: tuple[Any, ...] = (None, "", "noise", 0, 1, True, False, 2.5, [], {}, ["noise"], {"noise": 1})
LIST = "*"


def models() -> Iterator[tuple[str, dict[str, Any]]]:
    loader = botocore.loaders.Loader()
    for service in loader.list_available_services("waiters-2"):
        model = loader.load_service_model(service, "waiters-2")
        for name, one in sorted(model["waiters"].items()):
            yield f"{service}.{name}", one


def grown(tree: dict[str, Any], node: dict[str, Any], at: tuple[str, ...]) -> tuple[str, ...]:
    """Plant the paths that an expression reads into the tree; answers where its value is."""
    children = [one for one in node.get("children", ()) if isinstance(one, dict)]
    match node["type"]:
        case "field":
            at = (*at, node["value"])
        case "index" | "flatten" | "slice":
            at = (*(grown(tree, children[0], at) if children else at), LIST)
        case "projection" | "value_projection" | "filter_projection":
            left = grown(tree, children[0], at)
            inside = left if children[0]["type"] == "flatten" else (*left, LIST)
            for child in children[1:][::-1]:
                at = grown(tree, child, inside)
        case "subexpression" | "index_expression" | "pipe":
            for child in children:
                at = grown(tree, child, at)
        case _:
            for child in children:
                grown(tree, child, at)
    place = tree
    for step in at:
        place = place.setdefault(step, {})
    return at


def body(tree: dict[str, Any], values: list[Any], rng: random.Random) -> Any:
    """A body of about the shape that is read, with about the values that are expected."""
    if rng.random() < 0.04:
        return rng.choice(NOISE)
    if LIST in tree:
        favourite = rng.choice(values)
        pool = values if rng.random() < 0.4 else [favourite]
        return [body(tree[LIST], pool, rng) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    if not tree:
        return rng.choice(values)
    return {name: body(one, values, rng) for name, one in tree.items() if rng.random() < 0.97}


def responses(model: dict[str, Any], rng: random.Random) -> list[dict[str, Any]]:
    """What the service might answer, in botocore's form."""
    tree: dict[str, Any] = {}
    for acceptor in model["acceptors"]:
        if acceptor["matcher"].startswith("path"):
            grown(tree, jmespath.compile(acceptor["argument"]).parsed, ())
    values = [one["expected"] for one in model["acceptors"] if one["matcher"].startswith("path")]
    values += ["noise", 1, True, 0]
    codes = [one["expected"] for one in model["acceptors"] if one["matcher"] == "error"] + ["Throttling"]
    statuses = [one["expected"] for one in model["acceptors"] if one["matcher"] == "status"] + [200, 200, 400]
    made = []
    for _ in range(LENGTH):
        answer: dict[str, Any] = {}
        if rng.random() < 0.15:
            answer["Error"] = {"Code": str(rng.choice(codes)), "Message": "so"}
        else:
            found = body(tree, values, rng)
            answer = found if isinstance(found, dict) else {}
        made.append(answer | {"ResponseMetadata": {"HTTPStatusCode": rng.choice(statuses)}})
    return made


def theirs(model: dict[str, Any], answers: list[dict[str, Any]]) -> tuple[str, int] | None:
    """How botocore's own waiter ends, and after how many calls; None: it broke over a body."""
    asked = iter(answers)
    calls = Counter[str]()

    def operation(**_: Any) -> dict[str, Any]:
        calls["all"] += 1
        return next(asked)

    config = botocore.waiter.SingleWaiterConfig(model | {"delay": 0, "maxAttempts": LENGTH})
    try:
        botocore.waiter.Waiter("x", config, operation).wait()
    except botocore.exceptions.WaiterError as error:
        return ("retry" if "Max attempts" in str(error) else "failure"), calls["all"]
    except jmespath.exceptions.JMESPathError:
        return None
    return "success", calls["all"]


def ours(waiter: Waiter, answers: list[dict[str, Any]]) -> tuple[str, int]:
    for number, answer in enumerate(answers, 1):
        error = answer if "Error" in answer and "Code" in answer["Error"] else None
        state = waiter.judge(body=answer, status=answer["ResponseMetadata"]["HTTPStatusCode"], error=error)
        if state != "retry":
            return state, number
    return "retry", len(answers)


def test_thousands_of_sequences_end_alike() -> None:
    rng = random.Random(SEED)
    seen = Counter[str]()
    names = set()
    for name, model in models():
        waiter = Waiter(model)
        for _ in range(SEQUENCES_A_WAITER):
            answers = responses(model, rng)
            expected = theirs(model, answers)
            if expected is None:
                seen["broken"] += 1
                continue
            assert ours(waiter, answers) == expected, f"{name}, seed {SEED}: {answers}"
            seen[expected[0]] += 1
            names.add((name, expected[0]))
    assert sum(seen.values()) > 2_000
    # The generator is worth something only if it reaches the ends, and does so for most models.
    assert seen["success"] > 500
    assert seen["failure"] > 500
    assert seen["retry"] > 50
    assert seen["broken"] < sum(seen.values()) / 20
    assert len({name for name, state in names if state == "success"}) > 0.8 * len({name for name, _ in names})


def dynamodb(script: list[str]) -> Callable[[Asked], Answer]:
    """DescribeTable in DynamoDB's own protocol: a status each time, or an error."""

    def answer(asked: Asked) -> Answer:
        assert asked.headers["x-amz-target"] == "DynamoDB_20120810.DescribeTable"
        word = script.pop(0)
        if word.isupper():
            return Answer(200, {"Table": {"TableName": asked.body["TableName"], "TableStatus": word}})
        return Answer(400, {"__type": f"com.amazonaws.dynamodb.v20120810#{word}", "message": "so"})

    return answer


@pytest.mark.parametrize(
    ("script", "state"),
    [
        (["CREATING", "ACTIVE"], "success"),
        (["ResourceNotFoundException", "CREATING", "ACTIVE"], "success"),
        (["CREATING", "ValidationException"], "failure"),
    ],
)
async def test_a_real_client_and_its_waiter_against_a_server(script: list[str], state: str) -> None:
    with serving(dynamodb(list(script))) as fake:
        session = botocore.session.Session()
        client = session.create_client(
            "dynamodb",
            region_name="eu-central-1",
            endpoint_url=fake.url,
            aws_access_key_id="id",
            aws_secret_access_key="key",  # noqa: S106 - that of a fake
            config=Config(retries={"total_max_attempts": 1}),
        )
        try:
            outcome = "success"
            try:
                client.get_waiter("table_exists").wait(TableName="t", WaiterConfig={"Delay": 0, "MaxAttempts": 9})
            except botocore.exceptions.WaiterError:
                outcome = "failure"
            theirs = len(fake.asked)
            fake.answer = dynamodb(list(script))
            model = botocore.loaders.Loader().load_service_model("dynamodb", "waiters-2")["waiters"]["TableExists"]
            verdict = await ended(WaiterOperation(model, client.describe_table), {"TableName": "t"})
        finally:
            client.close()
    assert outcome == state
    assert type(verdict).__name__ == {"success": "Done", "failure": "Fail"}[state]
    assert len(fake.asked) == 2 * theirs == 2 * len(script)
