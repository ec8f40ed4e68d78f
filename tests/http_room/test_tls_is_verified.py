"""TLS: the other side is verified, its certificate's expiry is told, and what is wrong is said in words."""

import asyncio
import ssl
import time
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from everpoll.http import HttpClient, Kind, NotAsked, NotReached, Request, Tls
from everpoll.http.certificates import expires_at
from http_room.certificates_for_tests import Authority
from http_room.loopback import LIMIT_S, Loopback, answer, by_path, listening, say

PLAIN = answer(200, b"fine")
DAY_S = 86_400


async def reported(client: HttpClient, request: Request) -> str:
    with pytest.raises(NotReached) as error:
        await client.send(request)
    assert error.value.kind is Kind.TLS
    return str(error.value)


async def test_an_answer_tells_when_the_certificate_expires(client: HttpClient, authority: Authority) -> None:
    async with Loopback(say(PLAIN), authority.serving("127.0.0.1", days=20)) as remote:
        for _ in range(2):
            got = await client.send(Request(remote.url, tls=Tls(ca_file=authority.path)))
            assert got.body == b"fine"
            assert got.certificate_expires_at is not None
            assert abs(got.certificate_expires_at - time.time() - 20 * DAY_S) < 60
    assert remote.connections == 1


async def test_a_server_that_is_not_trusted_gets_nothing(client: HttpClient, authority: Authority) -> None:
    async with Loopback(say(PLAIN), authority.serving("127.0.0.1", days=20)) as remote:
        said = await reported(client, Request(remote.url, headers={"X-Key": "${TOKEN}"}))
        assert "authority that is not trusted" in said
    assert remote.asked == []


@pytest.mark.parametrize(("days", "words"), [(-3.5, "3 days ago"), (-1.2, "1 day ago"), (-0.09, "2h")])
async def test_an_expired_certificate_is_said_so_with_its_date(
    client: HttpClient, authority: Authority, days: float, words: str
) -> None:
    async with Loopback(say(PLAIN), authority.serving("127.0.0.1", days=days)) as remote:
        said = await reported(client, Request(remote.url, tls=Tls(ca_file=authority.path), timeout_s=LIMIT_S))
    assert f"127.0.0.1:{remote.port}: its certificate expired {words}" in said
    assert remote.asked == []


async def test_a_certificate_of_another_host_is_said_so(client: HttpClient, authority: Authority) -> None:
    async with Loopback(say(PLAIN), authority.serving("other.example", days=20)) as remote:
        said = await reported(client, Request(remote.url, tls=Tls(ca_file=authority.path)))
        assert "belongs to another host, and not to 127.0.0.1" in said
        renamed = Tls(ca_file=authority.path, server_name="other.example")
        assert (await client.send(Request(remote.url, tls=renamed))).status == 200


async def test_a_certificate_that_is_not_valid_yet_is_said_so(client: HttpClient, authority: Authority) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.vouch("127.0.0.1", days=20, since_days=-5))
    async with Loopback(say(PLAIN), context) as remote:
        said = await reported(client, Request(remote.url, tls=Tls(ca_file=authority.path)))
    assert "not valid yet" in said


async def test_a_self_signed_certificate_is_said_so(client: HttpClient, authority: Authority) -> None:
    async with Loopback(say(PLAIN), authority.serving_itself()) as remote:
        assert "self-signed" in await reported(client, Request(remote.url))


async def test_a_server_without_tls_is_said_so(client: HttpClient) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()

    async with listening(talk) as port:
        assert "does not speak TLS" in await reported(client, Request(f"https://127.0.0.1:{port}/"))


async def test_a_handshake_that_never_ends_costs_the_timeout(client: HttpClient) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with listening(talk) as port:
        with pytest.raises(NotReached, match="did not answer within 100ms") as error:
            await client.send(Request(f"https://127.0.0.1:{port}/", timeout_s=0.1))
    assert error.value.kind is Kind.TIMED_OUT


async def test_a_client_certificate_is_shown_to_the_origin_only(client: HttpClient, authority: Authority) -> None:
    mine = authority.vouch("me", days=20)
    tls = Tls(ca_file=authority.path, certificate_file=mine)
    wants_one = authority.serving("127.0.0.1", days=20, client_ca=authority.path)
    async with Loopback(say(PLAIN), wants_one) as other, Loopback(say(PLAIN), wants_one) as home:
        assert (await client.send(Request(home.url, tls=tls))).status == 200
        home.talk = by_path({"/a": answer(302, b"", {"Location": f"{other.url}/b"})})
        with pytest.raises(NotReached):
            await client.send(Request(f"{home.url}/a", tls=tls))
    assert other.asked == []


async def test_connections_with_other_trust_are_not_shared(client: HttpClient, authority: Authority) -> None:
    async with Loopback(say(PLAIN), authority.serving("127.0.0.1", days=20)) as remote:
        await client.send(Request(remote.url, tls=Tls(ca_file=authority.path)))
        await reported(client, Request(remote.url))


async def test_files_that_cannot_be_used_are_named(client: HttpClient, authority: Authority, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("nothing")
    for tls in (
        Tls(ca_file="/nowhere/ca.pem"),
        Tls(ca_file=str(garbage)),
        Tls(certificate_file="/nowhere/me.pem"),
        Tls(certificate_file=authority.path),
    ):
        with pytest.raises(NotAsked, match=r"_file='.*' cannot be used: "):
            await client.send(Request("https://127.0.0.1:1/", tls=tls))


async def test_a_context_of_the_users_own_is_used(client: HttpClient, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=authority.path)
    async with Loopback(say(PLAIN), authority.serving("127.0.0.1", days=20)) as remote:
        assert (await client.send(Request(remote.url, tls=context))).status == 200


async def test_a_redirect_from_https_to_http_goes_without_credentials(client: HttpClient, authority: Authority) -> None:
    async with Loopback(say(PLAIN)) as plain:
        moved = answer(301, b"", {"Location": f"{plain.url}/x"})
        async with Loopback(say(moved), authority.serving("127.0.0.1", days=20)) as secure:
            request = Request(secure.url, headers={"Authorization": "Bearer x"}, tls=Tls(ca_file=authority.path))
            assert (await client.send(request)).body == b"fine"
    assert "authorization" in secure.asked[0].headers
    assert "authorization" not in plain.asked[0].headers


def test_the_expiry_is_read_from_the_certificate(authority: Authority) -> None:
    for days in (-100.0, 1.0, 9000.0, 40_000.0):
        pem = Path(authority.vouch("127.0.0.1", days=days, since_days=200)).read_bytes()
        made = x509.load_pem_x509_certificate(pem)
        der = ssl.PEM_cert_to_DER_cert(pem[pem.index(b"-----BEGIN CERT") :].decode())
        assert expires_at(der) == made.not_valid_after_utc.timestamp()


@given(data=st.data())
def test_no_certificate_crashes_the_reader(authority: Authority, data: st.DataObject) -> None:
    der = bytearray(ssl.PEM_cert_to_DER_cert(Path(authority.path).read_text()))
    for _ in range(data.draw(st.integers(0, 5))):
        der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))
    found = expires_at(bytes(der[: data.draw(st.integers(0, len(der)))]))
    assert found is None or isinstance(found, float)
