"""A remote on the internet cannot lead a look to an inner address, nor a request with an effect to another host."""

import socket
from collections.abc import Mapping
from typing import Any

import pytest

from everpoll.http.guard import names_inner
from everpoll.http.urls import target_of
from everpoll.watches.adapters import HttpFetch, Refused, Request, Response
from everpoll.watches.adapters.client import Client
from everpoll.watches.adapters.http202 import Http202
from everpoll.watches.verdicts import Done, Fail
from watches.adapters.fake_server import Answer, serving

HOME = "http://public.example/reports"


class Wire:
    """A client of the user: it answers the start with where to look, and everything else with a value."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.sent: list[tuple[str, str]] = []

    async def __call__(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> Response:
        self.sent.append((method, url))
        return Response(202, {"Location": self.location}) if url == HOME else Response(200, {}, b"[1]")


@pytest.mark.parametrize("location", ["http://10.0.0.5:9200/prod-index", "http://other.example/ops/7"])
async def test_a_cancel_changes_nothing_at_a_host_that_the_user_did_not_name(location: str) -> None:
    wire = Wire(location)
    report = Http202(fetch=wire, cancel_method="DELETE")
    started = await report.start(HOME, "k")
    with pytest.raises(Refused, match=r"DELETE is not sent to http://.*trusted="):
        await report.cancel(started.handle)
    assert wire.sent == [("POST", HOME)]


async def test_another_port_of_the_same_host_is_another_origin_too() -> None:
    with pytest.raises(Refused, match="DELETE is not sent"):
        await Http202(fetch=Wire(""), cancel_method="DELETE").cancel(
            {"home": HOME, "url": "http://public.example:9200/x"}
        )


async def test_a_host_that_the_user_trusts_may_be_asked_to_cancel() -> None:
    wire = Wire("http://10.0.0.5/ops/7")
    report = Http202(fetch=wire, cancel_method="DELETE", trusted=["10.0.0.5"])
    await report.cancel((await report.start(HOME, "k")).handle)
    assert wire.sent[-1] == ("DELETE", "http://10.0.0.5/ops/7")


INSIDE = [
    "http://169.254.169.254/latest/meta-data/",
    "http://10.0.0.5/x",
    "http://192.168.1.1/x",
    "http://127.0.0.1:9200/x",
    "http://127.1/x",
    "http://2130706433/x",
    "http://localhost/x",
    "http://db.localhost./x",
    "http://0.0.0.0/x",
    "http://100.64.0.1/x",
    "http://224.0.0.1/x",
    "http://240.0.0.1/x",
    "http://[::1]/x",
    "http://[::ffff:10.0.0.5]/x",
    "http://[64:ff9b::a00:5]/x",
    "http://[2002:a00:5::1]/x",
    "http://[fe80::1]/x",
    "http://[fd00::1]/x",
]


@pytest.mark.parametrize("url", INSIDE)
async def test_a_look_is_not_led_inside_whatever_the_client(url: str) -> None:
    wire = Wire(url)
    verdict = await Http202(fetch=wire).look({"home": HOME, "url": url})
    assert isinstance(verdict, Fail)
    assert "a private address" in verdict.reason
    assert wire.sent == []


@pytest.mark.parametrize("url", ["http://8.8.8.8/x", "http://[2606:4700::1111]/x", "http://other.example/x"])
async def test_what_is_outside_is_asked(url: str) -> None:
    assert await Http202(fetch=Wire(url)).look({"home": HOME, "url": url}) == Done([1])
    assert not names_inner(target_of(url))


async def test_a_service_inside_may_lead_to_another() -> None:
    verdict = await Http202(fetch=Wire("")).look({"home": "http://10.0.0.1/a", "url": "http://10.0.0.2/b"})
    assert verdict == Done([1])


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What the resolver answers, by name, one after the other; the last one for ever. Addresses are themselves."""
    known: dict[str, list[str]] = {}
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host not in known:
            return real(host, port, *args, **kwargs)
        found = known[host].pop(0) if len(known[host]) > 1 else known[host][0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found.split()]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return known


async def test_a_name_that_leads_inside_is_refused_by_the_default_client(names: dict[str, list[str]]) -> None:
    names |= {"public.example": ["93.184.216.34"], "evil.example": ["93.184.216.35 127.0.0.1", "127.0.0.1"]}
    with serving(lambda asked: Answer(200)) as fake:
        place = {"home": HOME, "url": fake.url.replace("127.0.0.1", "evil.example")}
        verdict = await Http202().look(place)
        assert isinstance(verdict, Fail)
        assert "a private address" in verdict.reason
        assert fake.asked == []
        assert await Http202(trusted=["evil.example"]).look(place) == Done(None)


async def test_a_name_that_changes_its_mind_gains_nothing(
    names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resolved once: what was checked is what is connected to."""
    places: list[Any] = []

    def connect(_: socket.socket, place: Any) -> None:
        places.append(place)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket.socket, "connect", connect)
    names |= {"public.example": ["93.184.216.34"], "evil.example": ["93.184.216.35", "127.0.0.1"]}
    with pytest.raises(ConnectionError, match="refused the connection"):
        await Http202().look({"home": HOME, "url": "http://evil.example:9200/x"})
    assert places == [("93.184.216.35", 9200)]
    assert names["evil.example"] == ["127.0.0.1"], "asked for once"


async def test_names_of_services_inside_may_lead_to_each_other(names: dict[str, list[str]]) -> None:
    names |= {"reports.corp.example": ["127.0.0.1"], "files.corp.example": ["127.0.0.1"]}
    with serving(lambda asked: Answer(200, {"host": asked.headers["host"]})) as fake:
        home, url = (fake.url.replace("127.0.0.1", f"{name}.corp.example") for name in ("reports", "files"))
        verdict = await Http202().look({"home": home, "url": url})
    assert isinstance(verdict, Done)
    assert verdict.value["host"].startswith("files.corp.example:"), "the name is sent, not the address"


async def test_a_home_that_is_not_found_is_outside(names: dict[str, list[str]]) -> None:
    home = "http://missing.invalid/x"
    with serving(lambda asked: Answer(200)) as fake, pytest.raises(Refused, match="a private address"):
        await HttpFetch().led_by(home)("GET", fake.url, headers={})


async def test_what_was_to_be_sent_stays_at_home_after_a_redirect() -> None:
    """A GET with a body, led to another host, arrives without it."""
    sent: list[tuple[str, bytes | None, Any]] = []

    async def fetch(method: str, url: str, *, headers: Any, body: bytes | None = None) -> Response:
        sent.append((url, body, headers.get("X-Tenant")))
        return Response(302, {"Location": "https://cdn.example.net/f"}) if "api" in url else Response(200)

    home = "https://api.example.com/start"
    await Client(fetch).send(Request(home, "GET", {"query": "mine"}, {"X-Tenant": "t-1"}))
    assert sent == [(home, b'{"query":"mine"}', "t-1"), ("https://cdn.example.net/f", None, None)]
