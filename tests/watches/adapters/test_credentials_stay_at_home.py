"""What a remote says may move where we look, never make us leave HTTPS, hand over credentials, or run in circles."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll.errors import BadInput
from everpoll.http.urls import shown
from everpoll.watches.adapters import HttpError, Refused, Request, Response
from everpoll.watches.adapters.addresses import checked, joined, may_carry_credentials, resolved
from everpoll.watches.adapters.client import Client
from everpoll.watches.faults import fault_of

SECRET = "Bearer sk-very-secret-1234"  # noqa: S105 - that of a test
HOME = "https://api.example.com/start"


class Wire:
    """A `Fetch` that answers by URL, and remembers who got which headers."""

    def __init__(self, answers: Mapping[str, Response]) -> None:
        self.answers = answers
        self.sent: list[tuple[str, Mapping[str, str]]] = []

    async def __call__(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> Response:
        self.sent.append((url, dict(headers)))
        return self.answers[url]


def moved(to: str, status: int = 302) -> Response:
    return Response(status, {"Location": to})


async def send(answers: Mapping[str, Response], *, trusted: tuple[str, ...] = ()) -> tuple[Response, Wire]:
    wire = Wire(answers)
    client = Client(wire, {"Authorization": SECRET}, trusted=trusted)
    return await client.send(Request(HOME, "GET")), wire


async def test_credentials_go_to_the_host_that_the_user_named_and_to_no_other() -> None:
    answers = {
        HOME: moved("/next"),
        "https://api.example.com/next": moved("https://cdn.example.net/file"),
        "https://cdn.example.net/file": Response(200, {}, b"[1]"),
    }
    response, wire = await send(answers)
    assert response.json() == [1]
    assert response.url == "https://cdn.example.net/file"
    assert [headers.get("Authorization") for _, headers in wire.sent] == [SECRET, SECRET, None]


async def test_hosts_that_the_user_trusts_get_them_too() -> None:
    answers = {HOME: moved("https://eu.example.net/op"), "https://eu.example.net/op": Response(200)}
    _, wire = await send(answers, trusted=("EU.example.net",))
    assert [headers.get("Authorization") for _, headers in wire.sent] == [SECRET, SECRET]


@pytest.mark.parametrize(
    "target",
    [
        "http://api.example.com/next",
        "http://other.example.com/",
        "file:///etc/passwd",
        "ftp://api.example.com/x",
        "https://user:hunter2@api.example.com/x",
        "https://api.example.com:99999/x",
        "https://api.example.com/a b\r\nX: y",
        "https://[half/x",
    ],
)
async def test_redirects_that_lead_astray_are_refused(target: str) -> None:
    with pytest.raises(Refused) as refusal:
        await send({HOME: moved(target)})
    assert "hunter2" not in str(refusal.value)


def test_what_was_refused_is_not_tried_again() -> None:
    assert fault_of(Refused("redirect loop")) == "fatal"


async def test_https_is_not_left_in_two_steps_either() -> None:
    home = "http://plain.example.com/start"
    wire = Wire({home: moved("https://a.example.com/x"), "https://a.example.com/x": moved("http://a.example.com/y")})
    with pytest.raises(Refused, match="plain HTTP"):
        await Client(wire).send(Request(home, "GET"))


async def test_circles_and_endless_chains_are_refused() -> None:
    with pytest.raises(Refused, match="redirect loop"):
        await send({HOME: moved("/b"), "https://api.example.com/b": moved("/start")})
    chain = {f"https://api.example.com/{n}": moved(f"/{n + 1}") for n in range(20)}
    with pytest.raises(Refused, match="too many redirects"):
        await send({HOME: moved("/0"), **chain})


async def test_a_chain_is_as_long_as_was_allowed_and_not_longer() -> None:
    chain = {f"https://api.example.com/{n}": moved(f"/{n + 1}") for n in range(3)}
    answers = {HOME: moved("/0"), **chain, "https://api.example.com/3": Response(200)}
    for redirects, is_enough in ((4, True), (3, False)):
        client = Client(Wire(answers), redirects=redirects)
        if is_enough:
            assert (await client.send(Request(HOME, "GET"))).status == 200
        else:
            with pytest.raises(Refused, match="too many redirects"):
                await client.send(Request(HOME, "GET"))


async def test_headers_of_one_request_stay_at_home_as_well() -> None:
    wire = Wire({HOME: moved("https://cdn.example.net/file"), "https://cdn.example.net/file": Response(200)})
    await Client(wire).send(Request(HOME, "GET", headers={"X-Tenant-Key": "k-1234"}))
    assert [headers.get("X-Tenant-Key") for _, headers in wire.sent] == ["k-1234", None]


async def test_only_reads_follow_redirects() -> None:
    """A POST that is sent on might do its work twice."""
    wire = Wire({HOME: moved("/b", 307)})
    with pytest.raises(HttpError, match="307"):
        await Client(wire).accepted(Request(HOME, "POST", {"a": 1}))
    assert len(wire.sent) == 1


async def test_a_secret_that_the_remote_repeats_is_masked() -> None:
    body = b'{"error": {"message": "Incorrect key sk-very-secret-1234 provided"}}'
    with pytest.raises(HttpError) as error:
        await Client(Wire({HOME: Response(401, {}, body)}), {"Authorization": SECRET}).accepted(Request(HOME, "GET"))
    assert "sk-very-secret" not in str(error.value)
    assert b"sk-very-secret" not in error.value.response.body
    assert "Incorrect key *** provided" in str(error.value)


async def test_a_body_beyond_the_limit_is_refused_whatever_the_client() -> None:
    with pytest.raises(Refused, match="more than 10 bytes"):
        await Client(Wire({HOME: Response(200, {}, b"x" * 11)}), max_bytes=10).send(Request(HOME, "GET"))


async def test_headers_may_be_asked_for_each_time() -> None:
    tokens = iter(["one", "two"])
    wire = Wire({HOME: Response(200)})
    client = Client(wire, lambda: {"Authorization": next(tokens)})
    await client.send(Request(HOME, "GET"))
    await client.send(Request(HOME, "GET"))
    assert [headers["Authorization"] for _, headers in wire.sent] == ["one", "two"]


async def test_headers_may_be_asked_for_asynchronously() -> None:
    async def token() -> dict[str, str]:
        return {"Authorization": "fresh"}

    wire = Wire({HOME: Response(200)})
    await Client(wire, token).send(Request(HOME, "GET"))
    assert wire.sent[0][1]["Authorization"] == "fresh"


@pytest.mark.parametrize(
    ("home", "url", "carried"),
    [
        ("https://a.example/x", "https://a.example/y", True),
        ("https://a.example/x", "https://a.example:443/y", True),
        ("https://a.example/x", "https://a.example:8443/y", False),
        ("https://a.example/x", "https://b.a.example/y", False),
        ("https://a.example/x", "https://a.example.evil.example/y", False),
        ("http://a.example/x", "https://a.example/y", True),
        ("http://a.example:8080/x", "https://a.example/y", False),
        ("https://A.example/x", "https://a.EXAMPLE/y", True),
    ],
)
def test_the_same_origin_is_home(home: str, url: str, carried: bool) -> None:
    assert may_carry_credentials(url, home=home) is carried


async def test_a_trusted_host_is_recognised_however_it_is_written() -> None:
    for trusted, url in (("CDN.example.net.", "https://cdn.example.net/f"), ("::1", "http://[0:0::1]/f")):
        home = url.partition("://")[0] + "://api.example.com/start"
        wire = Wire({home: moved(url), url: Response(200)})
        await Client(wire, {"Authorization": SECRET}, trusted=[trusted]).send(Request(home, "GET"))
        assert wire.sent[1][1]["Authorization"] == SECRET
    with pytest.raises(BadInput, match="is not a valid host name"):
        Client(trusted=["https://x/"])


def test_a_url_is_shown_without_what_may_be_secret() -> None:
    assert shown("https://user:word@a.example:8443/path?sig=secret#frag") == "https://a.example:8443/path?…"
    assert shown("https://[::1]:80/x") == "https://[::1]:80/x"
    assert "secret" not in shown("https://[broken?sig=secret")


def test_relative_locations_start_from_what_was_asked() -> None:
    assert resolved("https://a.example/v1/jobs?x=1", "7") == "https://a.example/v1/7"
    assert resolved("https://a.example/v1/jobs", "/ops/7#top") == "https://a.example/ops/7"
    assert resolved("https://a.example/v1/jobs", "//b.example/7") == "https://b.example/7"
    assert resolved("https://a.example/v1/jobs", "?id=7") == "https://a.example/v1/jobs?id=7"


@pytest.mark.parametrize("segment", ["", ".", ".."])
def test_a_name_cannot_leave_its_base(segment: str) -> None:
    with pytest.raises(Refused):
        joined("https://a.example/v1", "batches", segment)
    assert joined("https://a.example/v1/", "x/../y?z#") == "https://a.example/v1/x%2F..%2Fy%3Fz%23"


@settings(derandomize=True, deadline=None)
@given(st.text(max_size=80), st.text(max_size=80))
def test_whatever_a_remote_writes_is_refused_or_a_url_of_http(base: str, location: str) -> None:
    try:
        url = checked(resolved(f"https://a.example/{base}", location), home=HOME)
    except Refused:
        return
    assert url.startswith("https://")
