"""`app.asgi()` answers under any prefix, in FastAPI, Starlette and Django, without a lifespan of its host."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from everpoll import Everpoll
from server.site import TOKEN, example_app, until

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
DJANGO = """
import asyncio, os, sys
import django
from django.conf import settings
from django.http import HttpResponse
from django.urls import path
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], DEBUG=False, SECRET_KEY="tests")
django.setup()
from django.core.asgi import get_asgi_application
from everpoll import Everpoll

polls = Everpoll({url!r})

@polls.job()
async def audit(url: str): ...

urlpatterns = [path("hello", lambda request: HttpResponse("hello"))]
pages, everpoll = get_asgi_application(), polls.asgi(prefix="/polls", token={token!r})

async def application(scope, receive, send):
    mounted = scope["type"] == "http" and scope["path"].startswith("/polls")
    await (everpoll if mounted else pages)(scope, receive, send)

import httpx

async def main():
    transport = httpx.ASGITransport(application)
    headers = {{"Authorization": "Bearer " + {token!r}}}
    async with httpx.AsyncClient(transport=transport, base_url="http://shop.example.com", headers=headers) as http:
        assert (await http.get("/hello")).text == "hello"
        answer = await http.post("/polls/api/jobs", json={{"name": "audit", "args": ["x"]}})
        assert answer.status_code == 201, answer.text
        assert len((await http.get("/polls/api/jobs")).json()["items"]) == 1
        assert (await http.get("/polls/api/nothing")).headers["content-type"] == "application/problem+json"
        assert (await http.get("/api/jobs")).status_code == 404
    await polls.close()

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def _served(frame: Any, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A frame behind uvicorn, as it is deployed."""
    server = uvicorn.Server(uvicorn.Config(frame, port=0, log_level="warning", **options))
    serving = asyncio.create_task(server.serve())

    async def is_up() -> bool:
        return server.started

    await until(is_up)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=HEADERS, timeout=60) as http:
        yield http
    server.should_exit = True
    await serving


async def _check(http: httpx.AsyncClient, prefix: str) -> None:
    started = await http.post(f"{prefix}/api/jobs", json={"name": "audit", "args": ["x"], "delay": "1h"})
    assert started.status_code == 201, started.text
    assert [one["id"] for one in (await http.get(f"{prefix}/api/jobs")).json()["items"]] == [started.json()["id"]]
    assert (await http.get(f"{prefix}/health")).json()["healthy"]
    page = await http.get(f"{prefix}/", headers={"Accept": "text/html", "Authorization": ""})
    assert page.status_code == 401
    assert f'action="{prefix}/login"' in page.text
    welcome = await http.post(f"{prefix}/login", data={"token": TOKEN}, headers={"Authorization": ""})
    assert welcome.headers["location"] == f"{prefix}/"
    assert f"Path={prefix or '/'};" in welcome.headers["set-cookie"] + ";"
    missing = await http.get(f"{prefix}/api/services/a%2Fb")
    assert "a/b" in missing.json()["detail"]


@pytest.mark.parametrize("prefix", ["", "/polls", "/a/b/polls"])
async def test_in_fastapi(prefix: str, url: str) -> None:
    app = example_app(url)
    frame = FastAPI()
    frame.mount(prefix, app.asgi(token=TOKEN))
    async with _served(frame) as http:
        await _check(http, prefix)
    await app.close()


async def test_in_starlette_beside_a_worker(url: str) -> None:
    app = example_app(url)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with app:
            yield

    frame = Starlette(routes=[Mount("/polls", app.asgi(token=TOKEN))], lifespan=lifespan)
    async with _served(frame) as http:
        await _check(http, "/polls")
        done = await http.post("/polls/api/jobs", json={"name": "audit", "args": ["y"]})

        async def is_done() -> bool:
            job = (await http.get(f"/polls/api/jobs/{done.json()['id']}")).json()
            return bool(job["state"] == "done")

        await until(is_done)


async def test_behind_a_proxy_that_cuts_its_path(url: str) -> None:
    app = example_app(url)
    async with _served(app.asgi(token=TOKEN), root_path="/tools/polls") as http:
        page = await http.get("/", headers={"Accept": "text/html", "Authorization": ""})
        assert 'action="/tools/polls/login"' in page.text
        assert (await http.get("/api/jobs")).status_code == 200
    await app.close()


async def test_alone_with_a_prefix(url: str) -> None:
    app = example_app(url)
    async with _served(app.asgi(prefix="polls/", token=TOKEN)) as http:
        await _check(http, "/polls")
        assert (await http.get("/api/jobs")).status_code == 404
        assert (await http.get("/pollsapi/jobs")).status_code == 404
    await app.close()


def test_in_the_test_client_of_a_frame() -> None:
    app = Everpoll("memory://")
    frame = FastAPI()
    frame.mount("/polls", app.asgi())
    http = TestClient(frame)
    assert http.get("/polls/api/jobs").json() == {"items": [], "after": None}


def test_in_django(tmp_path: Path) -> None:
    program = tmp_path / "pages.py"
    program.write_text(DJANGO.format(url=f"sqlite:///{tmp_path / 'tasks.db'}", token=TOKEN))
    subprocess.run([sys.executable, str(program)], check=True, timeout=120)
