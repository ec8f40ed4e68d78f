"""A redirect is judged by the address that sent it, not by the other addresses of its host.

The sockets are real. Only the resolver is scripted, and the network has two more routes: a public address and a
private one lead to the servers of the test.
"""

import socket
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from everpoll.http.guard import names_inner, names_metadata
from everpoll.http.urls import target_of
from everpoll.watches.adapters import HttpFetch, Refused, Request, Response
from everpoll.watches.adapters.azure import AzureOperation
from everpoll.watches.adapters.client import Client
from everpoll.watches.adapters.http202 import Http202
from everpoll.watches.verdicts import Done, Fail, Wait
from watches.adapters.fake_server import Answer, Asked, FakeServer, serving

PUBLIC = "93.184.216.34"
PRIVATE = "127.0.0.2"


class Network:
    """What names resolve to, which places answer, and where connections went."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.down: set[tuple[str, int]] = set()
        self.connected: list[tuple[str, int]] = []


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    made = Network()
    resolve, connect, peer = socket.getaddrinfo, socket.socket.connect, socket.socket.getpeername
    peers: WeakKeyDictionary[socket.socket, Any] = WeakKeyDictionary()

    def getaddrinfo(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host not in made.names:
            return resolve(host, port, *args, **kwargs)
        return [(_family(one), socket.SOCK_STREAM, 6, "", (one, port)) for one in made.names[host].split()]

    def routed(sock: socket.socket, place: Any) -> None:
        if place[:2] in made.down:
            raise ConnectionRefusedError
        made.connected.append(place[:2])
        peers[sock] = place
        connect(sock, ("127.0.0.1", place[1]) if place[0] in (PUBLIC, PRIVATE) else place)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket.socket, "connect", routed)
    # Behind a route, the address that answers is the address that was connected to.
    monkeypatch.setattr(socket.socket, "getpeername", lambda sock: peers.get(sock) or peer(sock))
    return made


def _family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _at(fake: FakeServer, host: str) -> str:
    return fake.url.replace("127.0.0.1", host)


def _leading(to: str) -> Any:
    return lambda asked: Answer(302, headers={"Location": to}) if asked.path == "/start" else Answer(200, ["secret"])


@pytest.mark.parametrize("addresses", [f"{PUBLIC} 127.0.0.1", f"{PUBLIC} 10.0.0.5"])
async def test_a_home_with_a_second_private_address_leads_to_nothing_inside(network: Network, addresses: str) -> None:
    network.names["home.example"] = addresses
    with serving(lambda asked: Answer(200, ["secret"])) as inside, serving(_leading(inside.url)) as home:
        with pytest.raises(Refused, match="a private address"):
            await Client().send(Request(_at(home, "home.example") + "/start", "GET"))
        assert inside.asked == []


async def test_a_handle_of_such_a_home_leads_to_nothing_inside(network: Network) -> None:
    """Between two looks it is not known which address answered: then all of them must be inside."""
    network.names["home.example"] = f"{PUBLIC} 127.0.0.1"
    with serving(lambda asked: Answer(200, ["secret"])) as inside:
        verdict = await Http202().look({"home": "http://home.example/start", "url": inside.url})
    assert isinstance(verdict, Fail)
    assert "a private address" in verdict.reason
    assert inside.asked == []


async def test_a_home_that_answered_from_inside_may_lead_inside(network: Network) -> None:
    """Its public address was not what answered."""
    network.names["home.corp.example"] = f"127.0.0.1 {PUBLIC}"
    with serving(lambda asked: Answer(200, ["report"])) as inside, serving(_leading(inside.url)) as home:
        response = await Client().send(Request(_at(home, "home.corp.example") + "/start", "GET"))
    assert response.json() == ["report"]


async def test_home_leads_to_another_port_of_itself_only_where_it_answered_from(network: Network) -> None:
    """Its public address does not listen there, so that the next one to try would be the private one."""
    network.names["home.example"] = f"{PUBLIC} 127.0.0.1"
    with serving(lambda asked: Answer(200, ["secret"])) as inside:
        port = int(inside.url.rpartition(":")[2])
        network.down.add((PUBLIC, port))
        with (
            serving(_leading(_at(inside, "home.example"))) as home,
            pytest.raises(ConnectionError, match="refused the connection"),
        ):
            await Client().send(Request(_at(home, "home.example") + "/start", "GET"))
    assert inside.asked == []
    assert ("127.0.0.1", port) not in network.connected


async def test_home_leads_to_itself_also_by_way_of_another_host(network: Network) -> None:
    """Which changes nothing: of its addresses, those that are inside are still not tried."""
    network.names |= {"home.example": f"{PUBLIC} 127.0.0.1", "other.example": PUBLIC}
    with serving(lambda asked: Answer(200, ["secret"])) as inside:
        network.down.add((PUBLIC, int(inside.url.rpartition(":")[2])))
        back = _leading(_at(inside, "home.example"))
        with serving(back) as other, serving(_leading(_at(other, "other.example") + "/start")) as home:
            with pytest.raises(ConnectionError, match="refused the connection"):
                await Client().send(Request(_at(home, "home.example") + "/start", "GET"))
            assert len(other.asked) == 1
    assert inside.asked == []


async def test_a_home_with_addresses_of_both_kinds_is_asked_at_any_of_them(network: Network) -> None:
    network.names["home.example"] = f"{PUBLIC} 127.0.0.1"
    with serving(lambda asked: Answer(200, ["mine"])) as home:
        network.down.add((PUBLIC, int(home.url.rpartition(":")[2])))
        url = _at(home, "home.example")
        assert await Http202().look({"home": url, "url": f"{url}/ops/7"}) == Done(["mine"])


async def test_a_service_inside_that_leads_outside_is_not_led_back_inside(network: Network) -> None:
    """The host outside leads then, whatever began the chain."""
    network.names["cdn.example"] = PUBLIC
    with serving(lambda asked: Answer(200, ["secret"])) as inside, serving(_leading(inside.url)) as outside:
        led_back = pytest.raises(Refused, match=r"cdn\.example.* leads to .*a private address")
        with serving(_leading(_at(outside, "cdn.example") + "/start")) as home, led_back:
            await Client().send(Request(home.url.replace("127.0.0.1", PRIVATE) + "/start", "GET"))
        assert len(outside.asked) == 1
        assert inside.asked == []


@pytest.mark.parametrize("status", [202, 303])
async def test_nor_between_two_looks(network: Network, status: int) -> None:
    network.names |= {"status.example": PUBLIC}
    with serving(lambda asked: Answer(200, ["secret"])) as inside:
        with serving(lambda asked: Answer(status, headers={"Location": inside.url})) as outside:
            memory: dict[str, Any] = {}
            place = {"home": f"http://{PRIVATE}/start", "url": _at(outside, "status.example")}
            verdict = await Http202().look(place, memory)
            if status == 202:
                assert isinstance(verdict, Wait)
                verdict = await Http202().look(place, memory)
        assert isinstance(verdict, Fail)
        assert "a private address" in verdict.reason
        assert inside.asked == []


async def test_nor_by_an_azure_operation_that_names_its_result(network: Network) -> None:
    network.names |= {"status.example": PUBLIC}

    def answer(asked: Asked) -> Answer:
        return Answer(200, {"status": "Succeeded", "resourceLocation": inside.url})

    with serving(lambda asked: Answer(200, ["secret"])) as inside, serving(answer) as outside:
        url = _at(outside, "status.example")
        place = {"home": f"http://{PRIVATE}/start", "url": url, "via": "operation", "method": "POST"}
        verdict = await AzureOperation().look(place, {})
        assert isinstance(verdict, Fail)
        assert "a private address" in verdict.reason
        assert inside.asked == []


METADATA = [
    "169.254.169.254",
    "169.254.170.2",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fe80::1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
]


@pytest.mark.parametrize("address", METADATA)
async def test_no_name_leads_to_the_metadata_of_a_cloud(network: Network, address: str) -> None:
    """Not even the user's own: a name says what its resolver says. Trusting the name does not help it."""
    network.names["home.example"] = f"{PUBLIC} {address}"
    for trusted in ([], ["home.example"]):
        verdict = await Http202(trusted=trusted).look("http://home.example/start")
        assert isinstance(verdict, Fail)
        assert "write the address itself" in verdict.reason
    assert network.connected == []


@pytest.mark.parametrize("address", METADATA)
async def test_a_service_inside_does_not_lead_to_metadata_either(network: Network, address: str) -> None:
    url = f"http://[{address}]/x" if ":" in address else f"http://{address}/x"
    verdict = await Http202().look({"home": f"http://{PRIVATE}/start", "url": url})
    assert isinstance(verdict, Fail)
    assert "metadata" in verdict.reason
    verdict = await Http202(fetch=_not_to_be_asked).look({"home": f"http://{PRIVATE}/start", "url": url})
    assert isinstance(verdict, Fail)
    assert "metadata" in verdict.reason
    assert network.connected == []
    assert names_metadata(target_of(url))
    assert names_inner(target_of(url))


async def test_metadata_that_the_user_named_is_asked(network: Network) -> None:
    network.down.add(("169.254.169.254", 80))
    with pytest.raises(ConnectionError, match="refused the connection"):
        await Http202().look("http://169.254.169.254/latest/meta-data/")
    place = {"home": f"http://{PRIVATE}/start", "url": "http://169.254.169.254/x"}
    with pytest.raises(ConnectionError, match="refused the connection"):
        await Http202(trusted=["169.254.169.254"]).look(place)


@pytest.mark.parametrize("url", ["http://[::127.0.0.1]/x", "http://[fec0::1]/x", "http://[64:ff9b:1::a00:5]/x"])
async def test_old_and_local_forms_of_addresses_are_inside_too(url: str) -> None:
    assert names_inner(target_of(url))
    with pytest.raises(Refused, match="a private address"):
        await HttpFetch().led_by("http://8.8.8.8/", "8.8.8.8")("GET", url, headers={})


async def _not_to_be_asked(method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None) -> Response:
    raise AssertionError(url)
