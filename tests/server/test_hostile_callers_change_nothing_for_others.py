"""What a hostile caller sends breaks no list, holds no connection for ever, and forges nothing in logs."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import httpx
import pytest

from everpoll import Everpoll
from everpoll.server import asgi, reading, silent_connections
from everpoll.server.answers import encoded
from everpoll.server.route import ApiCall
from everpoll.server.route_table import ROUTES
from everpoll.server.silent_connections import SilentConnections
from server.site import TOKEN, Site, example_app, site


def nested(levels: int, inner: Any) -> Any:
    for _ in range(levels):
        inner = [inner]
    return inner


def _any_app(url: str) -> Everpoll:
    app = Everpoll(url)

    @app.job()
    async def keep(value: Any) -> None: ...

    return app


async def test_a_job_that_is_nested_deep_does_not_break_the_list(url: str) -> None:
    """Code may enqueue what HTTP refuses: it is shown cut, beside the others, with its long number exact."""
    app = _any_app(url)
    async with site(app, works=False) as here:
        await app.jobs["keep"].enqueue(nested(600, 2**60))
        plain = await app.jobs["keep"].enqueue(2**60)
        page = await here.get("/api/jobs")
        assert page["items"][0]["id"] == plain.id
        assert page["items"][0]["args"] == [str(2**60)]
        assert (await here.http.get(f"/api/jobs/{page['items'][1]['id']}")).status_code == 200


async def test_a_body_that_is_nested_deep_is_refused(url: str) -> None:
    """A hundred levels are enough for any argument, and cost no interpreter its stack."""
    async with site(_any_app(url), works=False) as here:
        allowed = {"name": "keep", "args": [nested(90, "[{")]}
        assert (await here.http.post("/api/jobs", json=allowed)).status_code == 201
        many = {"name": "keep", "args": [[[] for _ in range(500)]]}
        assert (await here.http.post("/api/jobs", json=many)).status_code == 201
        for levels in (110, 900):
            refused = await here.http.post("/api/jobs", json={"name": "keep", "args": [nested(levels, 1)]})
            assert (refused.status_code, refused.headers["content-type"]) == (400, "application/problem+json")


def test_a_long_number_is_exact_however_deep_it_is() -> None:
    """The way down does not recurse: 400 levels of our own code would end the interpreter's stack."""
    text = encoded({"a": nested(400, {"number": 2**60, "small": 7, "is": True})})
    assert str(2**60).join('""').encode() in text
    assert b'"small":7,"is":true' in text


async def test_a_fault_logs_neither_a_token_nor_a_line_of_the_caller(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the route: what stands in a path is a secret, or a line break."""

    async def fail(_call: ApiCall) -> None:
        raise RuntimeError("a fault of ours")

    broken = [one for one in ROUTES if one.path == "/api/beat/{token}"]
    monkeypatch.setattr(asgi, "ROUTES", [replace(one, handler=fail) for one in broken])
    async with site(example_app("memory://"), works=False) as here:
        with caplog.at_level(logging.ERROR, "everpoll.server"):
            for name in ("a-secret-token", "x%0AERROR%20forged"):
                assert (await here.http.get(f"/api/beat/{name}")).status_code == 500
    reported = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert reported == ["GET /api/beat/{token} failed"] * 2


async def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that announces a body and sends half of it is answered, and its connection closed."""
    monkeypatch.setattr(reading, "BODY_S", 0.05)
    async with site(example_app("memory://"), works=False) as here:
        head = (
            f"POST /api/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 99\r\n\r\n"
        )
        answer = await _sent(here, head.encode() + b'{"name":')
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"application/problem+json" in answer


@pytest.mark.parametrize("written", ["garbage", "10.0.0.1", "localhost.evil.example", "unknown"])
async def test_without_a_token_a_forwarded_caller_is_refused(written: str) -> None:
    """A proxy on this machine passes on what it knows of the caller: only an address of this machine is let in."""
    async with site(example_app("memory://"), token=None, works=False) as here:
        assert (await here.http.get("/api/loops", headers={"X-Forwarded-For": "127.0.0.1"})).status_code == 200
        assert (await here.http.get("/api/loops", headers={"X-Forwarded-For": written})).status_code == 403


async def test_an_actor_is_an_address_or_nothing(url: str) -> None:
    """What a proxy passes on as the caller stands in the log of actions: text of any sort does not."""
    async with site(example_app(url), works=False) as here:
        for queue, written, by in (
            ("one", "10.1.2.3", "HTTP from 10.1.2.3"),
            ("other", "x\tretried by anna" * 50, "HTTP"),
        ):
            paused = await here.http.post(f"/api/queues/{queue}/pause", headers={"X-Forwarded-For": written})
            assert paused.status_code == 200
            [entry] = (await here.get("/api/log", kind="queue", name=queue))["items"]
            assert entry["body"]["by"] == by


async def test_a_long_name_in_a_path_is_a_view_or_nothing() -> None:
    """No file system has a name of 300 characters, and the id of a run may: its view must open all the same."""
    async with site(example_app("memory://"), works=False) as here:
        for name in ("a" * 300, "%E2%98%83" * 100, "a" * 30_000):
            answer = await here.http.get(f"/runs/{name}", headers={"Accept": "text/html"})
            assert answer.status_code in {200, 404}, "404 where the dashboard was not built"
            assert (await here.http.get(f"/{name}")).status_code == 404


async def test_a_request_with_two_hosts_is_refused() -> None:
    """A proxy in front may have judged the other one."""
    async with site(example_app("memory://"), works=False) as here:
        for hosts in (["127.0.0.1", "evil.example"], ["127.0.0.1", "127.0.0.1"]):
            lines = ["GET /api/loops HTTP/1.1", *(f"Host: {one}" for one in hosts), "Connection: close", "", ""]
            answer = await _sent(here, "\r\n".join(lines).encode())
            assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "body", ["&".join(f"field{number}=1" for number in range(20)), "token=" + "x" * 20_000, "\xff=%ff"]
)
async def test_a_form_that_is_not_the_login_form_is_a_wrong_token(body: str, caplog: pytest.LogCaptureFixture) -> None:
    """Callers without a token may send it: the server logs no error."""
    async with site(example_app("memory://"), works=False) as here, here.client() as stranger:
        answer = await stranger.post("/login", content=body.encode("latin-1"))
        assert answer.status_code == 401
        assert "That token is not known here." in answer.text
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_filter_that_cannot_be_used_is_no_fault_of_a_bulk_action(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with site(_any_app(url), works=False) as here:
        for wanted in ({"q": "\0"}, {"error": "x" * 300}):
            refused = await here.http.post("/api/jobs/bulk", json={"action": "cancel", "filter": wanted})
            assert (refused.status_code, refused.json()["argument"]) == (422, next(iter(wanted)))
        before_all = {"action": "cancel", "filter": {"ended_from": "0001-01-01T00:00:00+14:00"}}
        assert (await here.http.post("/api/jobs/bulk", json=before_all)).status_code in {200, 422}
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_path_beside_the_mount_is_not_one_below_it() -> None:
    """A slash that is written %2F is part of a name: a proxy in front may have let the path pass for that."""
    app = example_app("memory://")
    transport = httpx.ASGITransport(app.asgi(prefix="/polls", token=TOKEN))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
        for below in ("/polls/api/loops", "/p%6Flls/api/loops"):
            assert (await http.get(below)).status_code == 200, below
        beside = ("/polls%2Fx/api/loops", "/polls%2Fapi/loops", "/polls/x/api/loops", "/pollsx/api/loops", "/api/loops")
        for path in (*beside, "/x/..%2Fpolls/api/loops", "//polls/api/loops", "/polls//api/loops"):
            assert (await http.get(path)).status_code == 404, path
    await app.close()


@pytest.mark.parametrize("before", [b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"])
@pytest.mark.parametrize("text", [b"", b"GET", b"GET /health HTTP/1.1\r\nHost: localh"])
async def test_a_request_that_does_not_come_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, before: bytes, text: bytes
) -> None:
    """Neither the first of a connection nor a later one; callers without a token can open connections, too."""
    monkeypatch.setattr(silent_connections, "REQUEST_S", 0.1)
    monkeypatch.setattr(silent_connections, "LOOK_S", 0.05)
    async with site(example_app("memory://"), works=False) as here:
        try:
            answer = await _sent(here, before + text)
        except ConnectionResetError:
            answer = before
        assert answer.startswith(b"HTTP/1.1 200 ") or answer == before


class _Cycle:
    """A request of a connection."""

    def __init__(self, response_complete: bool) -> None:
        self.response_complete = response_complete


class _Transport(asyncio.BaseTransport):
    """A transport that tells whether it was closed."""

    _is_closing = False

    def close(self) -> None:
        self._is_closing = True

    def is_closing(self) -> bool:
        return self._is_closing


class _Connection:
    """A connection as uvicorn has it."""

    def __init__(self, cycle: _Cycle | None) -> None:
        self.cycle = cycle
        self.transport = _Transport()


def test_a_connection_with_requests_or_an_answer_under_way_stays() -> None:
    """What counts is the time since the last request, and a stream is an answer under way."""
    busy, streaming, silent = (_Connection(one) for one in (_Cycle(True), _Cycle(False), None))
    watch = SilentConnections([busy, streaming, silent])
    for now in range(0, 60, 5):
        busy.cycle = _Cycle(True)
        watch.look(float(now))
    assert [one.transport.is_closing() for one in (busy, streaming, silent)] == [False, False, True]


async def _sent(here: Site, text: bytes) -> bytes:
    port = int(here.server.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(text)
        async with asyncio.timeout(60):
            return await reader.read()
    finally:
        writer.close()
