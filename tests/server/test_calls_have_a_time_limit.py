"""A list that the database does not answer is a problem document after two seconds, whatever the database does."""

import asyncio
import inspect
from typing import Any

import pytest

from everpoll.server import asgi
from everpoll.server.route_table import ROUTES
from everpoll.server.shapes import Page
from server.site import example_app, site

LIMIT_S = 2.0
LONGER = {"/api/tables": 10.0, "/api/doctor": 60.0, "/api/jobs/bulk": 30.0, "/api/services/{name}/check": None}
"""Each with its reason in the reference of the HTTP interface; a check waits for a look."""
FROM_MEMORY = {"/api/tables"}


def _hang(patch: pytest.MonkeyPatch, place: Any) -> None:
    """Have no asynchronous method of an object answer any more."""

    async def never(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    for name, _ in inspect.getmembers(type(place), inspect.iscoroutinefunction):
        if not name.startswith("_") and name not in {"open", "close"}:
            patch.setattr(place, name, never)


def _is_list(answer: Any) -> bool:
    return inspect.isclass(answer) and issubclass(answer, Page)


def test_longer_limits_than_two_seconds_are_few() -> None:
    limits = {
        route.path: route.limit_s
        for route in ROUTES
        if route.path.startswith("/api/") and route.media == "application/json" and route.limit_s != LIMIT_S
    }
    assert limits == LONGER


async def test_every_list_of_a_database_that_hangs_is_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "ROUTES", ROUTES)  # as users have them
    lists = [one.path for one in ROUTES if one.method == "GET" and "{" not in one.path and _is_list(one.answer)]
    assert {"/api/jobs", "/api/runs", "/api/services", "/api/incidents", "/api/log"} <= set(lists)
    paths = [*lists, "/api/jobs/causes", "/api/series?of=throughput&range=1h", "/api/graph", "/api/jobs/1"]
    async with site(example_app("memory://"), works=False) as here:
        store = await here.app.store()
        with monkeypatch.context() as patch:
            _hang(patch, store)
            _hang(patch, store.health)
            answers = await asyncio.gather(*(here.http.get(path) for path in paths))
    for path, answer in zip(paths, answers, strict=True):
        if path not in FROM_MEMORY:
            assert (path, answer.status_code) == (path, 503)
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["detail"] == "the database took longer than 2.0 s"
