"""Fetching for strangers: bounded in time, size and redirects, and never where the public cannot go."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from examples.website_audit.fetch import BadAddress, Limits, SiteDown, fetch
from examples.website_audit.site import sites

ANSWERS: dict[str, tuple[int, bytes, dict[str, str]]] = {
    "/round": (302, b"", {"Location": "/round"}),
    "/file": (302, b"", {"Location": "file:///etc/hostname"}),
    "/busy": (503, b"", {}),
    "/endless": (200, b"<p>more</p>" * 1000, {"Content-Type": "text/html"}),
    "/picture": (200, b"\x89PNG", {"Content-Type": "image/png"}),
    "/latin": (200, "<title>café</title>".encode("latin-1"), {"Content-Type": "text/html; charset=latin-1"}),
    "/unknown-charset": (200, b"<title>x</title>", {"Content-Type": "text/html; charset=klingon"}),
}


class Odd(BaseHTTPRequestHandler):
    """Answers that a well-behaved server would not give."""

    visits: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.visits.append(self.path)
        plain = (200, f"<title>{self.path}</title>".encode(), {"Content-Type": "text/html"})
        status, content, headers = ANSWERS.get(self.path, plain)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(content)
            while self.path == "/endless":
                self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("AUDIT_PRIVATE_HOSTS", "1")
    Odd.visits.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Odd) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_page_is_fetched_with_its_figures(odd: str) -> None:
    answer, html = fetch(f"  {odd}/plain?a=b c ")
    assert html == "<title>/plain?a=b%20c</title>"
    assert (answer.status, answer.redirects, answer.is_cut) == (200, 0, False)
    assert answer.size_bytes == len(html)


def test_redirects_are_followed_to_where_the_page_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUDIT_PRIVATE_HOSTS", "1")
    with sites() as (exemplary, *_):
        answer, html = fetch(exemplary.replace("/exemplary", "/moved"))
    assert answer.url == exemplary
    assert answer.redirects == 1
    assert "bakery" in html


def test_redirects_are_bounded(odd: str) -> None:
    with pytest.raises(BadAddress, match="more than 2 redirects"):
        fetch(f"{odd}/round", Limits(redirects=2))
    assert Odd.visits == ["/round"] * 3


def test_a_redirect_out_of_the_web_is_refused(odd: str) -> None:
    with pytest.raises(BadAddress, match="not a web address"):
        fetch(f"{odd}/file")


def test_what_is_too_big_is_cut(odd: str) -> None:
    answer, html = fetch(f"{odd}/endless", Limits(size_bytes=100_000))
    assert answer.is_cut
    assert answer.size_bytes == len(html) == 100_000


@pytest.mark.parametrize(
    ("path", "text"),
    [("/picture", ""), ("/latin", "<title>café</title>"), ("/unknown-charset", "<title>x</title>")],
)
def test_the_body_becomes_text_as_its_type_says(odd: str, path: str, text: str) -> None:
    assert fetch(f"{odd}{path}")[1] == text


def test_a_server_error_is_tried_again_later(odd: str) -> None:
    with pytest.raises(SiteDown, match="answers 503"):
        fetch(f"{odd}/busy")


def test_a_site_that_refuses_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUDIT_PRIVATE_HOSTS", "1")
    with sites() as (*_, down), pytest.raises(SiteDown, match="refused"):
        fetch(down)


def test_a_server_that_never_answers_is_left_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUDIT_PRIVATE_HOSTS", "1")
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(SiteDown, match="took too long"):
        fetch(f"http://127.0.0.1:{silent.getsockname()[1]}/", Limits(timeout_s=0.2))


def test_a_body_that_drips_is_left_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes well within the timeout of a socket; all of them together do not."""
    monkeypatch.setenv("AUDIT_PRIVATE_HOSTS", "1")
    enough = threading.Event()

    def drip(listening: socket.socket) -> None:
        connected, _ = listening.accept()
        with connected:
            connected.recv(4096)
            connected.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n")
            while not enough.wait(0.02):
                try:
                    connected.sendall(b"x")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,))
        thread.start()
        try:
            with pytest.raises(SiteDown, match="took too long"):
                fetch(f"http://127.0.0.1:{listening.getsockname()[1]}/", Limits(timeout_s=0.3))
        finally:
            enough.set()
            thread.join()


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "10.0.0.1", "169.254.169.254", "[::1]", "100.64.0.1", "[::ffff:127.0.0.1]"]
)
def test_hosts_that_are_not_public_are_refused_by_default(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUDIT_PRIVATE_HOSTS", raising=False)
    with pytest.raises(BadAddress, match="not public"):
        fetch(f"http://{host}:1/")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "ftp://example.com/",
        "file:///etc/hostname",
        "http://",
        "http://[::1",
        "http://x:99999/",
        "http://x:0/",
        "http://x/a\nb",
        "javascript:alert(1)",
        "http://" + "a" * 70 + ".example/",
    ],
)
def test_what_is_no_web_address_is_refused(url: str) -> None:
    with pytest.raises(BadAddress, match=r"not a web address|not the name"):
        fetch(url)
