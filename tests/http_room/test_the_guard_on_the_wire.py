"""What was checked is what is connected to; a redirect leads to no private address, whatever names say."""

import asyncio
import socket
import threading

import pytest

from everpoll.http import HttpClient, Kind, NotReached, Reach, Request
from http_room.loopback import LIMIT_S, Asked, Loopback, answer, say
from http_room.scripted_network import PRIVATE, PUBLIC, Network

SECRET = answer(200, b"secret")


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    return Network(monkeypatch)


def moved(location: str) -> bytes:
    return answer(302, b"", {"Location": location})


async def refused(client: HttpClient, url: str) -> str:
    with pytest.raises(NotReached) as error:
        await client.send(Request(url, timeout_s=LIMIT_S))
    assert error.value.kind is Kind.ADDRESS
    return str(error.value)


async def test_a_host_that_the_user_named_may_be_private(client: HttpClient, network: Network) -> None:
    network.names["app.internal"] = PRIVATE
    async with Loopback(say(SECRET)) as remote:
        for host in ("app.internal", "127.0.0.1", "localhost", "127.1", PRIVATE):
            assert (await client.send(Request(remote.at(host)))).body == b"secret"
    assert remote.asked[0].headers["host"] == f"app.internal:{remote.port}", "the name is sent, not the address"


@pytest.mark.parametrize("named", [PUBLIC, PRIVATE])
@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "2130706433", "evil.example", "[::ffff:127.0.0.1]", "[::1]"]
)
async def test_a_redirect_to_a_private_address_is_refused_also_where_the_host_is_private(
    client: HttpClient, network: Network, named: str, host: str
) -> None:
    network.names |= {"home.example": named, "evil.example": f"{PUBLIC} 127.0.0.1"}
    async with Loopback(say(SECRET)) as inside, Loopback(say(moved(inside.at(host)))) as home:
        assert "an answer must not lead there" in await refused(client, home.at("home.example"))
        assert (len(home.asked), inside.asked, inside.connections) == (1, [], 0)


@pytest.mark.parametrize("host", ["169.254.169.254", "[fd00:ec2::254]", "[fe80::1]", "evil.example", "100.100.100.200"])
async def test_a_redirect_to_metadata_is_refused(client: HttpClient, network: Network, host: str) -> None:
    network.names |= {"home.example": PRIVATE, "evil.example": f"{PUBLIC} 169.254.169.254"}
    async with Loopback(say(moved(f"http://{host}/latest/meta-data/"))) as home:
        await refused(client, home.at("home.example"))
    assert network.connected == [PRIVATE]


async def test_no_name_leads_to_metadata_but_the_address_itself_does(client: HttpClient, network: Network) -> None:
    network.names["home.example"] = f"{PUBLIC} 169.254.169.254"
    assert "write the address itself" in await refused(client, "http://home.example/")
    assert network.connected == []
    network.down.add("169.254.169.254")
    with pytest.raises(NotReached, match="refused the connection"):
        await client.send(Request("http://169.254.169.254/"))


async def test_a_kept_connection_to_a_private_host_serves_no_redirect(client: HttpClient, network: Network) -> None:
    """It was opened because the user named that host: an answer of another one must not ride on it."""
    network.names |= {"app.internal": PRIVATE, "home.example": PUBLIC}
    async with Loopback(say(SECRET)) as inside, Loopback(say(moved(inside.at("app.internal")))) as home:
        assert (await client.send(Request(inside.at("app.internal")))).body == b"secret"
        await refused(client, home.at("home.example"))
        assert len(inside.asked) == 1


async def test_a_name_that_changes_its_answer_gains_nothing(client: HttpClient, network: Network) -> None:
    """Looked up once for a hop: what was checked is what is connected to."""
    network.names |= {"home.example": PRIVATE, "evil.example": f"{PUBLIC},127.0.0.1"}
    network.down.add(PUBLIC)
    async with Loopback(say(SECRET)) as inside, Loopback(say(moved(inside.at("evil.example")))) as home:
        with pytest.raises(NotReached, match="refused the connection"):
            await client.send(Request(home.at("home.example")))
    assert network.looked_up.count("evil.example") == 1
    assert network.connected == [PRIVATE, PUBLIC]


async def test_a_host_with_addresses_of_both_kinds_leads_to_its_public_ones(
    client: HttpClient, network: Network
) -> None:
    """It answered from outside: another port of its private address must not be the next to try."""
    network.names["home.example"] = f"{PUBLIC} 127.0.0.1"
    async with Loopback(say(SECRET)) as inside, Loopback(say(moved(inside.at("home.example")))) as home:
        network.connected.clear()
        await client.send(Request(home.at("home.example")))
        assert network.connected == [PUBLIC, PUBLIC]


async def test_a_request_for_public_addresses_only(client: HttpClient, network: Network) -> None:
    """For rooms in which strangers name the hosts."""
    network.names["app.internal"] = PRIVATE
    for url in ("http://app.internal/", "http://127.0.0.1/", "http://localhost/", "http://169.254.169.254/"):
        with pytest.raises(NotReached) as error:
            await client.send(Request(url, reach=Reach.PUBLIC))
        assert error.value.kind is Kind.ADDRESS
    assert network.connected == []


async def test_the_next_address_is_tried_where_one_refuses(client: HttpClient, network: Network) -> None:
    network.names["two.internal"] = f"10.9.9.9 {PRIVATE}"
    network.down.add("10.9.9.9")
    async with Loopback(say(SECRET)) as remote:
        assert (await client.send(Request(remote.at("two.internal")))).status == 200
    assert network.connected == ["10.9.9.9", PRIVATE]


async def test_a_name_without_an_address_is_said_so(client: HttpClient, network: Network) -> None:
    with pytest.raises(NotReached, match=r"the name nowhere\.invalid (has no address|cannot be looked up)") as error:
        await client.send(Request("http://nowhere.invalid/"))
    assert error.value.kind is Kind.DNS


async def test_a_look_up_that_hangs_costs_the_timeout(client: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def hang(*_: object, **__: object) -> None:
        over.wait(LIMIT_S)
        raise socket.gaierror(socket.EAI_AGAIN, "too late")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        with pytest.raises(NotReached, match=r"the name slow\.example was not looked up within 50ms") as error:
            await client.send(Request("http://slow.example/", timeout_s=0.05))
    finally:
        over.set()
    assert error.value.kind is Kind.TIMED_OUT


async def test_redirects_share_the_deadline(client: HttpClient) -> None:
    async def talk(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.path == "/last":
            await asyncio.Event().wait()
        writer.write(moved("/last"))

    async with Loopback(talk) as remote:
        with pytest.raises(NotReached, match=r"/last did not answer within 2s") as error:
            # Enough for the first hop, whatever else the machine does.
            await client.send(Request(f"{remote.url}/first", timeout_s=2.0))
    assert error.value.kind is Kind.TIMED_OUT
