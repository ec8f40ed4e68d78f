"""Tokens, the session cookie, Host and Origin: which callers are answered, and what no caller gets to see."""

import logging
from html import escape, unescape
from http.cookies import SimpleCookie
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from everpoll import BadInput, Everpoll
from everpoll.server.access import COOKIE, Access
from everpoll.server.route import Route
from everpoll.server.route_table import ROUTES
from everpoll.server.running import HttpServer
from server.site import READ_TOKEN, TOKEN, environment, example_app, site

PUBLIC = {"/health", "/api/beat/{token}"}
HTML = {"Accept": "text/html,*/*"}


def _path(route: Route) -> str:
    return route.path.replace("{id}", "1").replace("{name}", "billing").replace("{token}", "t" * 20)


def _client(
    app: Everpoll, client: str = "127.0.0.1", base: str = "http://localhost", **options: Any
) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app.asgi(**options), client=(client, 1234))
    return httpx.AsyncClient(transport=transport, base_url=base)


async def test_every_call_needs_a_token_but_health_and_heartbeats() -> None:
    app = example_app("memory://")
    async with _client(app, token=TOKEN) as http:
        for route in ROUTES:
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
                answer = await http.request(route.method, _path(route), headers=headers)
                if route.path in PUBLIC:
                    assert answer.status_code != 401, route.path
                else:
                    assert answer.status_code == 401, (route.method, route.path)
                    assert answer.headers["content-type"] == "application/problem+json"
                    assert answer.headers["www-authenticate"] == "Bearer"
        for path in ("/", "/nothing", "/login", "/jobs/7", "/favicon.ico"):
            assert (await http.get(path)).status_code == 401, path
    await app.close()


async def test_a_token_in_the_url_counts_for_nothing() -> None:
    app = example_app("memory://")
    async with _client(app, token=TOKEN) as http:
        for name in ("token", "access_token", "Authorization"):
            assert (await http.get(f"/api/loops?{name}={TOKEN}")).status_code == 401
    await app.close()


async def test_a_read_token_reads_and_changes_nothing() -> None:
    app = example_app("memory://")
    with environment(EVERPOLL_TOKEN=TOKEN, EVERPOLL_READ_TOKEN=READ_TOKEN):
        client = _client(app)
    async with client as http:
        reader = {"Authorization": f"Bearer {READ_TOKEN}"}
        assert (await http.get("/api/loops", headers=reader)).status_code == 200
        for route in ROUTES:
            if route.access == "write":
                answer = await http.request(route.method, _path(route), headers=reader)
                assert answer.status_code == 403, route.path
        writer = {"Authorization": f"Bearer {TOKEN}"}
        assert (await http.post("/api/loops/refresh/pause", headers=writer)).status_code == 200
    await app.close()


async def test_an_app_that_only_reads_refuses_changes_of_every_caller() -> None:
    app = example_app("memory://")
    async with _client(app, read_only=True) as http:
        assert (await http.get("/api/loops")).status_code == 200
        assert (await http.post("/api/loops/refresh/pause")).status_code == 403
    await app.close()


async def test_the_login_page_gives_a_strict_cookie() -> None:
    app = example_app("memory://")
    async with site(app) as here, here.client() as http:
        page = await http.get("/", headers=HTML)
        assert page.status_code == 401
        assert 'action="/login"' in page.text
        assert "<script" not in page.text
        assert "<style" not in page.text
        assert "style=" not in page.text
        refused = await http.post("/login", data={"token": "wrong"})
        assert refused.status_code == 401
        assert COOKIE not in refused.cookies
        welcome = await http.post("/login", data={"token": TOKEN}, headers={"Origin": here.server.url})
        assert welcome.status_code == 303
        cookie = SimpleCookie(welcome.headers["set-cookie"])[COOKIE]
        assert cookie["httponly"]
        assert cookie["samesite"].lower() == "strict"
        assert TOKEN not in cookie.value
        assert (await http.get("/api/jobs")).status_code == 200
        assert (await http.post("/api/loops/refresh/pause")).status_code == 200
        bye = await http.post("/logout")
        assert bye.status_code == 303
        assert (await http.get("/api/jobs")).status_code == 401


@pytest.mark.parametrize("prefix", ["", "/polls"])
async def test_logging_in_leads_back_to_the_page_that_was_asked_for(prefix: str) -> None:
    """Its filters included, after a wrong token as well, and never to another server."""
    app = example_app("memory://")
    async with _client(app, prefix=prefix, token=TOKEN) as http:
        page = await http.get(f"{prefix}/queues/a%2Fb?state=failed&q=%22x", headers=HTML)
        back = unescape(page.text.partition('name="back" value="')[2].partition('"')[0])
        assert back == "/queues/a%2Fb?state=failed&q=%22x"
        again = await http.post(f"{prefix}/login", data={"token": "wrong", "back": back})
        assert escape(back) in again.text
        welcome = await http.post(f"{prefix}/login", data={"token": TOKEN, "back": back})
        assert welcome.headers["location"] == f"{prefix}{back}"
        for foreign in ("//evil.example", "/\\evil.example", "https://evil.example", "/\r\nSet-Cookie: a=b", ""):
            answer = await http.post(f"{prefix}/login", data={"token": TOKEN, "back": foreign})
            assert answer.headers["location"] == f"{prefix}/", foreign
    await app.close()


async def test_a_cookie_of_the_read_token_only_reads_and_none_can_be_made_up() -> None:
    access = Access(TOKEN, READ_TOKEN)
    now = 1_000_000.0
    read = access.session("read", now)
    made_up = [
        read.replace("read", "write", 1),
        read[:-1] + "0",
        f"write.99999999999.{'0' * 64}",
        "write.1.x",
        "-" * 80,
    ]
    made_up += [Access("another").session("write", now), Access(TOKEN).session("read", now)]
    for value, role in [(read, "read"), *((one, None) for one in made_up)]:
        request = _request(cookie=f"{COOKIE}={value}")
        assert access.role_of(request, now) == role, value
    assert access.role_of(_request(cookie=f"{COOKIE}={read}"), now + 8 * 86_400) is None


def _request(**headers: str) -> Any:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": raw, "query_string": b""})


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "", "a b", "10.1.2.3"]
)
async def test_a_foreign_host_is_refused(host: str) -> None:
    app = example_app("memory://")
    async with _client(app) as http:
        assert (await http.get("/api/loops", headers={"Host": host})).status_code == 400
        assert (await http.get("/health", headers={"Host": host})).status_code == 400
    await app.close()


@pytest.mark.parametrize("host", ["localhost", "localhost:8787", "127.0.0.1:8787", "[::1]:8787", "LOCALHOST"])
async def test_names_of_this_machine_are_known(host: str) -> None:
    app = example_app("memory://")
    async with _client(app) as http:
        assert (await http.get("/api/loops", headers={"Host": host})).status_code == 200
    await app.close()


async def test_a_server_with_a_token_knows_the_names_that_it_was_given() -> None:
    app = example_app("memory://")
    async with site(app) as here:
        assert (await here.http.get("/api/loops", headers={"Host": "evil.example"})).status_code == 400
    with environment(EVERPOLL_TOKEN=TOKEN):
        server = HttpServer(app, "0.0.0.0", 0, allowed_hosts=["Polls.Example.com"])  # noqa: S104 - with a token
    async with httpx.AsyncClient(transport=httpx.ASGITransport(server.http_app), base_url="http://x") as http:
        token = {"Authorization": f"Bearer {TOKEN}"}
        assert (await http.get("/api/loops", headers={"Host": "polls.example.com", **token})).status_code == 200
        assert (await http.get("/api/loops", headers={"Host": "other.example.com", **token})).status_code == 400
    await app.close()


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:1", "https://localhost.evil.example"]
)
async def test_a_change_from_a_page_of_another_site_is_refused(origin: str) -> None:
    app = example_app("memory://")
    async with _client(app) as http:
        assert (await http.post("/api/loops/refresh/pause", headers={"Origin": origin})).status_code == 403
        assert (await http.get("/api/loops", headers={"Origin": origin})).status_code == 200
        fetched = {"Sec-Fetch-Site": "cross-site"}
        assert (await http.post("/api/loops/refresh/pause", headers=fetched)).status_code == 403
        for allowed in ({}, {"Origin": "http://localhost"}, {"Sec-Fetch-Site": "same-origin"}):
            assert (await http.post("/api/loops/refresh/pause", headers=allowed)).status_code == 200
    await app.close()


async def test_without_a_token_callers_on_other_machines_are_refused() -> None:
    app = example_app("memory://")
    async with _client(app, client="10.1.2.3") as http:
        assert (await http.get("/api/loops")).status_code == 403
        assert (await http.get("/health")).status_code == 403
    async with _client(app, client="10.1.2.3", token=TOKEN) as http:
        assert (await http.get("/api/loops", headers={"Authorization": f"Bearer {TOKEN}"})).status_code == 200
    await app.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "::", "example.com"])  # noqa: S104 - is refused
def test_another_address_than_loopback_needs_a_token(host: str) -> None:
    app = example_app("memory://")
    with environment(EVERPOLL_TOKEN=None, EVERPOLL_READ_TOKEN=None), pytest.raises(BadInput, match="EVERPOLL_TOKEN"):
        HttpServer(app, host)
    with environment(EVERPOLL_TOKEN=TOKEN):
        HttpServer(app, host)


@pytest.mark.parametrize("token", [" ", "a b\n", "tökén", "x" * 1001])
def test_a_token_that_cannot_be_sent_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(BadInput) as refused:
        example_app("memory://").asgi(token=token)
    assert token.strip() == "" or token not in str(refused.value)


async def test_every_answer_has_the_headers_that_keep_pages_safe() -> None:
    app = example_app("memory://")
    async with _client(app, token=TOKEN) as http:
        token = {"Authorization": f"Bearer {TOKEN}"}
        for answer in (
            await http.get("/api/loops", headers=token),
            await http.get("/", headers=token),
            await http.get("/", headers=HTML),
            await http.get("/nothing", headers=token),
        ):
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'self'")
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
    await app.close()


async def test_no_token_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    app = example_app("memory://")
    async with site(app) as here, here.client() as http:
        await http.get("/api/loops", headers={"Authorization": f"Bearer {TOKEN}x"})
        await http.get(f"/api/loops?token={TOKEN}")
        await http.post("/login", data={"token": TOKEN})
        await http.get(f"/api/beat/{TOKEN}")
    mine = [record for record in caplog.records if not record.name.startswith("http")]  # the client's own
    assert mine
    assert not [record for record in mine if TOKEN in record.getMessage()]
