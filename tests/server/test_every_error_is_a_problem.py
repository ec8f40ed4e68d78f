"""Whatever goes wrong, the answer is a problem document with the right status, and says what to do."""

import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from everpoll import Everpoll
from server.site import Site, example_app, site, until

PROBLEM = "application/problem+json"


def _checked(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == PROBLEM
    document: dict[str, Any] = answer.json()
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    return document


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/api",
        "/api/nothing",
        "/api/jobs/99",
        "/api/jobs/x",
        "/api/jobs/-1",
        "/api/jobs/99999999999999999999",
        "/api/jobs/1%00",
        "/api/runs/a:b",
        "/api/runs/%00:b",
        "/api/services/none",
        "/api/services/a%2Fb%00",
        "/api/beat/" + "x" * 20,
        "/api/jobs/%ff",
    ],
)
async def test_what_is_not_there(path: str) -> None:
    async with site(example_app("memory://")) as here:
        _checked(await here.http.get(path), 404)


async def test_a_method_that_a_path_does_not_have() -> None:
    async with site(example_app("memory://")) as here:
        for method, path, allowed in [
            ("DELETE", "/api/jobs", "GET, HEAD, POST"),
            ("PUT", "/api/services/billing", "DELETE, GET, HEAD, PATCH"),
            ("GET", "/api/jobs/1/cancel", "POST"),
            ("OPTIONS", "/health", "GET, HEAD"),
            ("TRACE", "/api/loops", "GET, HEAD"),
        ]:
            answer = await here.http.request(method, path)
            _checked(answer, 405)
            assert answer.headers["allow"] == allowed


async def test_a_body_of_more_than_a_mebibyte() -> None:
    async with site(example_app("memory://")) as here:
        body = b'{"name": "audit", "args": ["' + b"x" * 2**20 + b'"]}'
        _checked(await here.http.post("/api/jobs", content=body), 413)

        async def parts() -> Any:
            for start in range(0, len(body), 50_000):
                yield body[start : start + 50_000]

        _checked(await here.http.post("/api/jobs", content=parts()), 413)
        fits = b'{"name": "audit", "args": ["' + b"x" * 900_000 + b'"]}'
        assert (await here.http.post("/api/jobs", content=fits)).status_code == 201


@pytest.mark.parametrize(
    "body", [b"", b"{", b"nonsense", b'{"name": "\xff"}', b'{"args": ' + b"[" * 100_000, b'{"name": "\\ud800"}']
)
async def test_a_body_that_is_not_json(body: bytes) -> None:
    async with site(example_app("memory://")) as here:
        _checked(await here.http.post("/api/jobs", content=body), 400)


@pytest.mark.parametrize(
    ("path", "argument"),
    [
        ("/api/jobs?limit=0", "limit"),
        ("/api/jobs?limit=x", "limit"),
        ("/api/jobs?limit=1001", "limit"),
        ("/api/jobs?state=odd", "state"),
        ("/api/jobs?after=x", "after"),
        ("/api/jobs?odd=1", "odd"),
        ("/api/jobs?name=a&name=b", "name"),
        ("/api/jobs?name=%00", "name"),
        ("/api/jobs?name=%ff", None),
        ("/api/services/billing/history?range=soon", "range"),
        ("/api/services/billing/history?range=9999d", "range"),
        ("/api/services/billing/history?range=1d&step=year", "step"),
        ("/api/services/billing/history?range=1y&step=minute", "range"),
        ("/api/services/billing/history?range=300d&step=minute", "step"),
    ],
)
async def test_a_parameter_that_cannot_be_used(path: str, argument: str | None) -> None:
    async with site(example_app("memory://")) as here:
        assert _checked(await here.http.get(path), 422).get("argument") == argument


@pytest.mark.parametrize(
    ("body", "argument"),
    [
        ({"args": []}, "name"),
        ({"name": ""}, "name"),
        ({"name": "nothing"}, "name"),
        ({"name": "audit", "odd": 1}, "odd"),
        ({"name": "audit", "args": {}}, "args"),
        ({"name": "audit", "args": [5]}, "url"),
        ({"name": "audit", "args": ["x", "deep"]}, "depth"),
        ({"name": "audit", "kwargs": {"url": "x", "depth": None}}, "depth"),
        ({"name": "audit"}, "url"),
        ({"name": "audit", "args": ["x"], "delay": "soon"}, "delay"),
        ({"name": "audit", "args": ["x"], "priority": 2**40}, "priority"),
        ({"name": "audit", "args": ["x"], "key": "a\0b"}, "key"),
    ],
)
async def test_an_argument_that_cannot_be_used(body: dict[str, Any], argument: str) -> None:
    async with site(example_app("memory://")) as here:
        assert _checked(await here.http.post("/api/jobs", json=body), 422)["argument"] == argument


async def test_conflicts_say_why(url: str) -> None:
    async with site(example_app(url)) as here:
        done = await here.post("/api/jobs", {"name": "audit", "args": ["x"], "key": "k"}, 201)
        path = f"/api/jobs/{done['id']}"
        await until(lambda: _state(here, path, "done"))
        assert "done" in _checked(await here.http.post(f"{path}/cancel"), 409)["detail"]
        holder = await here.post("/api/jobs", {"name": "audit", "args": ["x"], "key": "k", "delay": "1h"}, 201)
        refused = _checked(await here.http.post(f"{path}/retry"), 409)
        assert refused["holder"] == holder["id"]
        assert str(holder["id"]) in refused["detail"]
        assert "not ended" in _checked(await here.http.post(f"/api/jobs/{holder['id']}/retry"), 409)["detail"]


async def _state(here: Site, path: str, state: str) -> bool:
    return bool((await here.get(path))["state"] == state)


async def test_a_fault_of_our_own_shows_nothing_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = example_app("memory://")
    async with site(app) as here:

        async def fail() -> None:
            raise RuntimeError("the password is hunter2")

        monkeypatch.setattr(app, "store", fail)
        with caplog.at_level(logging.ERROR, "everpoll.server"):
            document = _checked(await here.http.get("/api/jobs"), 500)
        assert "hunter2" not in str(document)
        assert "GET /api/jobs failed" in caplog.text


@pytest.mark.parametrize("address", ["sqlite:///{folder}/missing/tasks.db", "postgresql://127.0.0.1:1/tasks"])
async def test_a_database_that_is_away(tmp_path: Path, address: str) -> None:
    app = Everpoll(address.format(folder=tmp_path))
    async with site(app, works=False) as here:
        answer = await here.http.get("/api/jobs")
        _checked(answer, 503)
