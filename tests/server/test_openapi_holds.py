"""The OpenAPI document says what the server does: no 5xx, no undocumented answer, whatever is sent."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import CHECKS
from schemathesis.generation import GenerationMode

from everpoll.server.openapi import document
from everpoll.server.route import Route
from everpoll.server.route_table import ROUTES
from server.site import TOKEN, example_app, site

NOT_WALKED = {"follow_events", "follow_changes", "follow_run", "check_service"}
"""Streams do not end, and a look that is asked for takes its time: `test_events_are_seen_once`, `test_streams_end` and
`test_operators_of_services_are_named` call them."""
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
NOT_SAID = "positive_data_acceptance"
"""A document cannot say everything that a value must be: a known name, a duration, an address."""
EXAMPLES, WRONG_EXAMPLES = 10, 4
# The server is a thread of this process and draws random numbers of its own, also while a strategy is at work.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")


@pytest.fixture
def address(url: str) -> Iterator[str]:
    """A server in a thread of its own: the walk over the document is a plain function."""
    started, ended = threading.Event(), asyncio.Event()
    found: list[str] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        async with site(example_app(url)) as here:
            await here.app.jobs["audit"].enqueue("https://example.com")
            await here.app.watches["export"].begin({}, id="r1")
            found.append(here.server.url)
            started.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(60)
    yield found[0]
    loops[0].call_soon_threadsafe(ended.set)
    thread.join(60)


def test_no_answer_is_undocumented(address: str) -> None:
    _walk(address, EXAMPLES, GenerationMode.POSITIVE)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_no_wrong_call_is_accepted_or_breaks_anything(address: str) -> None:
    """What the document forbids is refused before any database is asked: one of them is enough."""
    assert 422 in _walk(address, WRONG_EXAMPLES, GenerationMode.NEGATIVE)


@pytest.mark.prove
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_answer_is_undocumented_however_long_one_looks(address: str, mode: GenerationMode) -> None:
    _walk(address, 500, mode)


def _walk(address: str, examples: int, mode: GenerationMode) -> set[int]:
    """Call every operation; return the statuses of the answers."""
    statuses: set[int] = set()
    made = httpx.get(f"{address}/openapi.json", headers=AUTHORIZED).json()
    schema: Any = schemathesis.openapi.from_dict(made)
    schema.config.update(base_url=address)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) == len(ROUTES)
    for operation in operations:
        if operation.definition.raw["operationId"] not in NOT_WALKED:
            _try(operation, examples, mode, statuses)
    return statuses


def _try(operation: Any, examples: int, mode: GenerationMode, statuses: set[int]) -> None:
    excluded = [check for check in CHECKS.get_all() if check.__name__ == NOT_SAID]
    assert excluded

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def call(case: Any) -> None:
        answer = case.call(headers=AUTHORIZED, timeout=60)
        statuses.add(answer.status_code)
        case.validate_response(answer, excluded_checks=excluded)

    try:
        call()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE, "a call without parameters and body cannot be called wrongly"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_call_has_an_example_that_fits(route: Route) -> None:
    made = document(ROUTES)
    operation = made["paths"][route.path][route.method.lower()]
    contents = [operation["responses"][str(route.status)].get("content", {})]
    contents += [operation["requestBody"]["content"]] if "requestBody" in operation else []
    jsons = [one for content in contents for kind, one in content.items() if "json" in kind]
    examples = [(one["schema"], one["example"]) for one in jsons]
    if route.status != 204 and route.media == "application/json":
        assert examples
    for schema, example in examples:
        validator = jsonschema_rs.validator_for({**schema, "components": made["components"]})
        assert validator.is_valid(example), [str(error) for error in validator.iter_errors(example)]


def test_names_of_calls_are_unique() -> None:
    names = [route.handler.__name__ for route in ROUTES]
    assert len(set(names)) == len(names)
