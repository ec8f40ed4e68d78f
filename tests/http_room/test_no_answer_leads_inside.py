"""The guard: a host that the user named may be private; an answer leads to no private address, in no form of it."""

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everpoll.http import Headers, Kind, NotReached, Reach, Request
from everpoll.http.address_ranges import Ip, IpAddress, is_inner, is_metadata
from everpoll.http.guard import allow_name, allowed, names_inner, names_metadata
from everpoll.http.redirects import Chain, Hop
from everpoll.http.urls import target_of

PUBLIC, PRIVATE, METADATA = "93.184.216.34", "10.0.0.5", "169.254.169.254"


def at(*ips: str) -> list[IpAddress]:
    return [IpAddress(socket.AF_INET6 if ":" in ip else socket.AF_INET, (ip, 80)) for ip in ips]


def refused(host: str, reach: Reach, *ips: str) -> bool:
    url = f"http://[{host}]/" if ":" in host else f"http://{host}/"
    target = target_of(url)
    try:
        allow_name(target, reach)
        allowed(target, reach, at(*(ips or (target.host,))))
    except NotReached as error:
        return error.kind is Kind.ADDRESS
    return False


WRITTEN_INSIDE = [
    "10.0.0.5",
    "192.168.1.1",
    "172.16.0.1",
    "127.0.0.1",
    "127.0.0.1.",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "\uff11\uff12\uff17.0.0.1",
    "127\u30020\u30020\u30021",
    "\uff12\uff11\uff13\uff10\uff17\uff10\uff16\uff14\uff13\uff13",
    "localhost",
    "LOCALHOST.",
    "db.localhost",
    "0.0.0.0",  # noqa: S104 - not bound to
    "0",
    "100.64.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "::ffff:10.0.0.5",
    "::ffff:a00:5",
    "::127.0.0.1",
    "64:ff9b::a00:5",
    "64:ff9b:1::a00:5",
    "2002:a00:5::1",
    "2001:0:4136:e378:8000:63bf:f5ff:fffa",
    "fe80::1",
    "fec0::1",
    "fd00::1",
    "ff02::1",
]


@pytest.mark.parametrize("host", WRITTEN_INSIDE)
def test_an_address_inside_is_recognised_however_it_is_written(host: str) -> None:
    url = f"http://[{host}]/" if ":" in host else f"http://{host}/"
    assert names_inner(target_of(url))
    assert refused(host, Reach.PUBLIC)
    assert refused(host, Reach.PUBLIC_PART)


@pytest.mark.parametrize("host", [PUBLIC, "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_an_address_outside_is_asked(host: str) -> None:
    assert not any(refused(host, reach) for reach in Reach)


@given(st.ip_addresses(v=4))
def test_every_form_of_an_ipv4_address_is_judged_alike(ip: ipaddress.IPv4Address) -> None:
    number, octets = int(ip), ip.packed
    forms = [
        str(number),
        hex(number),
        ".".join(f"0{one:o}" for one in octets),
        ".".join(hex(one) for one in octets),
        f"{octets[0]}.{number & 0xFFFFFF}",
        f"{ip}.",
    ]
    embedding = [
        f"::ffff:{ip}",
        f"64:ff9b::{ip}",
        f"2002:{octets[0]:02x}{octets[1]:02x}:{octets[2]:02x}{octets[3]:02x}::1",
    ]
    for form in forms:
        assert target_of(f"http://{form}/").host == str(ip)
    for reach in (Reach.PUBLIC, Reach.INSIDE):
        assert {refused(form, reach) for form in forms + embedding} == {refused(str(ip), reach)}


@given(st.ip_addresses())
def test_what_the_standard_library_calls_private_is_never_outside(ip: Ip) -> None:
    if ip.is_private or ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_reserved or ip.is_unspecified:
        # These are reserved, and lead to the IPv4 address in them.
        leads_to_ipv4 = any(ip in ipaddress.ip_network(one) for one in ("64:ff9b::/96", "::ffff:0:0/96", "2002::/16"))
        assert is_inner(str(ip)) or leads_to_ipv4
    if ip.is_link_local:
        assert is_metadata(str(ip))


def test_a_host_that_the_user_named_may_be_private() -> None:
    assert not refused(PRIVATE, Reach.NAMED)
    assert not refused("db.internal", Reach.NAMED, PRIVATE, PUBLIC)
    assert not refused("localhost", Reach.NAMED, "127.0.0.1", "::1")


def test_one_private_address_of_several_refuses_a_name_that_an_answer_named() -> None:
    assert refused("evil.example", Reach.PUBLIC, PUBLIC, PRIVATE)
    assert not refused("cdn.example", Reach.PUBLIC, PUBLIC, "8.8.8.8")


def test_a_host_that_answered_from_outside_is_asked_at_its_addresses_outside_only() -> None:
    found = allowed(target_of("http://home.example/"), Reach.PUBLIC_PART, at(PUBLIC, PRIVATE, "8.8.8.8"))
    assert [one.ip for one in found] == [PUBLIC, "8.8.8.8"]


METADATA_ADDRESSES = [
    METADATA,
    "169.254.170.2",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fe80::1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2852039166",
]


@pytest.mark.parametrize("address", METADATA_ADDRESSES)
def test_metadata_is_asked_only_as_the_address_that_the_user_wrote(address: str) -> None:
    url = f"http://[{address}]/" if ":" in address else f"http://{address}/"
    assert names_metadata(target_of(url))
    assert not refused(address, Reach.NAMED)
    for reach in (Reach.INSIDE, Reach.PUBLIC, Reach.PUBLIC_PART):
        assert refused(address, reach)
    assert refused("home.example", Reach.NAMED, PUBLIC, target_of(url).host), "no name leads there, not even the user's"


# ── redirects ────────────────────────────────────────────────────────────────────────────────────────────────────────


def chain(url: str, **more: object) -> Chain:
    request = Request(url, **more)  # type: ignore[arg-type]  # fields of a request
    return Chain(request, Hop(target_of(url), request.headers, request.body, request.reach, request.tls))


def led(one: Chain, location: str, address: str) -> Reach:
    assert one.advance(302, Headers({"Location": location}), address)
    return one.hop.reach


@pytest.mark.parametrize(("named", "address"), [(f"http://{PRIVATE}/", PRIVATE), ("http://home.example/", PUBLIC)])
def test_a_redirect_that_leaves_the_host_must_be_public_also_where_the_host_is_private(
    named: str, address: str
) -> None:
    for location in ("http://10.0.0.6/", "http://other.example/", "//127.0.0.1/", "http://localhost/"):
        assert led(chain(named), location, address) is Reach.PUBLIC


def test_a_redirect_within_a_private_host_stays_there() -> None:
    assert led(chain("http://app.internal/a"), "/b", PRIVATE) is Reach.NAMED
    assert led(chain(f"http://{METADATA}/a"), "/b", METADATA) is Reach.NAMED


def test_a_redirect_within_a_host_that_answered_from_outside_stays_outside() -> None:
    """Otherwise another port of its private address would be the next to try."""
    one = chain("http://home.example/a")
    assert led(one, "http://home.example:9200/b", PUBLIC) is Reach.PUBLIC_PART
    one = chain("http://home.example/a")
    assert led(one, "http://other.example/b", PUBLIC) is Reach.PUBLIC
    assert led(one, "http://home.example:9200/c", "8.8.8.8") is Reach.PUBLIC_PART


def test_a_request_that_must_be_public_stays_public_in_every_redirect() -> None:
    assert led(chain("http://home.example/a", reach=Reach.PUBLIC), "/b", PUBLIC) is Reach.PUBLIC


@given(st.text(max_size=60))
def test_no_location_crashes_or_leads_to_another_scheme(location: str) -> None:
    one = chain("https://home.example/a")
    try:
        followed = one.advance(302, Headers({"Location": location}), PUBLIC)
    except NotReached:
        return
    assert one.hop.target.scheme in ("http", "https")
    assert followed or not location
