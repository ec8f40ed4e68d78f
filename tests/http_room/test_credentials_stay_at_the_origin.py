"""What identifies the user goes to the origin that the user named, and nowhere else, over any chain of redirects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everpoll.http import Headers, Kind, NotReached, Request, Tls
from everpoll.http.redirects import Chain, Hop
from everpoll.http.urls import target_of

SECRETS = {
    "Authorization": "Bearer s3cret",
    "Cookie": "session=s3cret",
    "X-Api-Key": "s3cret",
    "apikey": "s3cret",
    "X-Tenant": "acme",
    "Host": "virtual.example",
}
HARMLESS = {"Accept": "application/json", "User-Agent": "mine/1", "If-None-Match": '"abc"'}
TLS = Tls(ca_file="/ca.pem", certificate_file="/me.pem", key_file="/key.pem", server_name="inner")


def chain(url: str, method: str = "GET") -> Chain:
    request = Request(url, method, SECRETS | HARMLESS, b"mine", tls=TLS)
    return Chain(request, Hop(target_of(url), request.headers, request.body, request.reach, request.tls))


def led(one: Chain, *locations: str) -> Hop:
    for location in locations:
        assert one.advance(307, Headers({"Location": location}), "93.184.216.34")
    return one.hop


ELSEWHERE = [
    "https://other.example/",
    "https://api.example.com:8443/",
    "http://api.example.com/",
    "https://sub.api.example.com/",
    "https://api.example.com.evil.example/",
    "//evil.example/",
]


@pytest.mark.parametrize("location", ELSEWHERE)
def test_another_origin_gets_nothing_of_the_user(location: str) -> None:
    hop = led(chain("https://api.example.com/health"), location)
    assert hop.headers == HARMLESS
    assert hop.body is None
    assert hop.tls == Tls(ca_file="/ca.pem"), "the client's certificate is a credential too"


@pytest.mark.parametrize("location", ["/v2", "https://api.example.com:443/v2", "https://API.example.com./v2?a=b"])
def test_the_same_origin_gets_everything(location: str) -> None:
    hop = led(chain("https://api.example.com/health"), location)
    assert (hop.headers, hop.body, hop.tls) == (SECRETS | HARMLESS, b"mine", TLS)


def test_the_same_host_better_protected_gets_everything() -> None:
    assert led(chain("http://api.example.com/"), "https://api.example.com/").headers == SECRETS | HARMLESS
    assert led(chain("http://api.example.com:8080/"), "https://api.example.com/").headers == HARMLESS


@given(st.lists(st.sampled_from([*ELSEWHERE, "https://api.example.com/", "/x"]), min_size=1, max_size=9))
def test_a_chain_that_left_the_origin_sends_nothing_of_the_user_any_more(hosts: list[str]) -> None:
    one, has_left = chain("https://api.example.com/health"), False
    for number, host in enumerate(hosts):
        hop = led(one, f"{host}?{number}")
        has_left = has_left or hop.target.origin != ("https", "api.example.com", 443)
        assert hop.headers == (HARMLESS if has_left else SECRETS | HARMLESS)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_an_effect_is_not_redirected(method: str) -> None:
    one = chain("https://api.example.com/hook", method)
    assert not one.advance(307, Headers({"Location": "/v2"}), "93.184.216.34")


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "gopher://x/", "javascript:1", "https://u:p@api.example.com/"]
)
def test_a_redirect_to_something_else_than_a_plain_url_is_refused(location: str) -> None:
    with pytest.raises(NotReached, match="redirects to") as error:
        led(chain("https://api.example.com/health"), location)
    assert error.value.kind is Kind.REDIRECT


def test_a_redirect_loop_is_refused() -> None:
    with pytest.raises(
        NotReached, match=r"https://api.example.com/a: redirect loop over https://api.example.com/b"
    ) as error:
        led(chain("https://api.example.com/a"), "/b", "/c", "/b#again")
    assert error.value.kind is Kind.REDIRECT


def test_ten_redirects_are_followed_and_eleven_are_not() -> None:
    one = chain("https://api.example.com/0")
    led(one, *(f"/{number}" for number in range(1, 11)))
    with pytest.raises(NotReached, match="more than 10 redirects"):
        led(one, "/11")
