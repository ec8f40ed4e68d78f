"""TCP, TLS and DNS checks: a result, or the same error in words that a request has."""

import asyncio
import time

import pytest

from everpoll.errors import BadInput
from everpoll.http import Kind, NotReached, Reach, Tls, check_dns, check_tcp, check_tls
from http_room.certificates_for_tests import Authority
from http_room.loopback import LIMIT_S, Loopback, answer, listening, say
from http_room.scripted_network import PRIVATE, PUBLIC, Network
from servers.ports import reserved_port

DAY_S = 86_400


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    return Network(monkeypatch)


async def forever(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def test_a_port_that_takes_connections() -> None:
    async with listening(forever) as port:
        result = await check_tcp("127.0.0.1", port)
        assert (await check_tcp("localhost", port)).address == "127.0.0.1"
    assert result.address == "127.0.0.1"
    assert 0 < result.latency_s < LIMIT_S


async def test_a_port_that_refuses() -> None:
    port = reserved_port()
    for check in (check_tcp, check_tls):
        with pytest.raises(NotReached, match=f"127.0.0.1:{port} refused the connection") as error:
            await check("127.0.0.1", port)
        assert error.value.kind is Kind.REFUSED


async def test_the_guard_holds_for_checks_too(network: Network) -> None:
    network.names |= {"inside.example": f"{PUBLIC} {PRIVATE}", "metadata.example": "169.254.169.254"}
    for host, reach in (
        ("inside.example", Reach.PUBLIC),
        ("localhost", Reach.PUBLIC),
        ("metadata.example", Reach.NAMED),
    ):
        for check in (check_tcp, check_tls):
            with pytest.raises(NotReached) as error:
                await check(host, 80, reach=reach)
            assert error.value.kind is Kind.ADDRESS
    assert network.connected == []


async def test_a_handshake_tells_what_was_verified(authority: Authority) -> None:
    async with Loopback(say(answer()), authority.serving("127.0.0.1", days=30)) as remote:
        result = await check_tls("127.0.0.1", remote.port, tls=Tls(ca_file=authority.path))
    assert (result.address, result.subject, result.names) == ("127.0.0.1", "127.0.0.1", ("127.0.0.1",))
    assert (result.issuer, result.protocol) == ("The authority of a test", "TLSv1.3")
    assert result.cipher
    assert result.certificate_expires_at is not None
    assert abs(result.certificate_expires_at - time.time() - 30 * DAY_S) < 60
    assert result.first_expires_at == min(result.chain_expires_at)


async def test_a_handshake_that_fails_is_told_in_words(authority: Authority) -> None:
    async with Loopback(say(answer()), authority.serving("127.0.0.1", days=-3.5)) as remote:
        with pytest.raises(NotReached, match="its certificate expired 3 days ago") as error:
            await check_tls("127.0.0.1", remote.port, tls=Tls(ca_file=authority.path), timeout_s=LIMIT_S)
    assert error.value.kind is Kind.TLS


async def test_a_handshake_that_never_ends_costs_the_timeout() -> None:
    async with listening(forever) as port:
        with pytest.raises(NotReached, match="the TLS handshake took longer than 100ms") as error:
            await check_tls("127.0.0.1", port, timeout_s=0.1)
    assert error.value.kind is Kind.TIMED_OUT


async def test_a_connection_that_is_broken_off_in_the_handshake() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)

    async with listening(talk) as port:
        with pytest.raises(NotReached) as error:
            await check_tls("127.0.0.1", port)
    assert error.value.kind in (Kind.REFUSED, Kind.TLS)


async def test_a_name_resolves_to_its_addresses(network: Network) -> None:
    network.names["two.example"] = f"{PUBLIC} 2606:4700::1111"
    assert (await check_dns("two.example")).addresses == (PUBLIC, "2606:4700::1111")
    assert (await check_dns("two.example", record="A")).addresses == (PUBLIC,)
    assert (await check_dns("two.example", record="AAAA")).addresses == ("2606:4700::1111",)
    network.names["one.example"] = PUBLIC
    with pytest.raises(NotReached, match=r"one\.example has no AAAA record") as error:
        await check_dns("one.example", record="AAAA")
    assert error.value.kind is Kind.DNS


@pytest.mark.parametrize(
    ("host", "port"), [("", 80), ("http://x", 80), ("x:y@z", 80), ("x", 0), ("x", 65_536), ("a..b", 1)]
)
async def test_what_is_no_place_is_refused(host: str, port: int) -> None:
    with pytest.raises(BadInput):
        await check_tcp(host, port)
    with pytest.raises(BadInput):
        await check_tls(host, port)


async def test_a_timeout_must_be_a_time() -> None:
    for timeout_s in (0, -1, float("nan"), float("inf")):
        with pytest.raises(BadInput, match="timeout_s="):
            await check_tcp("127.0.0.1", 80, timeout_s=timeout_s)
        with pytest.raises(BadInput, match="timeout_s="):
            await check_dns("localhost", timeout_s=timeout_s)
