"""The application that the demo tests: a small shop on this machine, with a form that the server validates.

It has a script as well (the price follows the number of seats), so that only a real browser passes.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body><h1>{title}</h1>{body}</body></html>
"""
FORM = """
<form method="post" action="/signup" novalidate>
  <label>Name <input id="name" name="name" value="{name}"></label>
  <label>E-mail <input id="email" name="email" value="{email}"></label>
  <label>Seats <input id="seats" name="seats" value="{seats}"></label>
  <p id="price"></p>
  <p id="problem" role="alert">{problem}</p>
  <button>Sign up</button>
</form>
<script>
  const seats = document.getElementById("seats"), price = document.getElementById("price");
  const show = () => {{
    const each = seats.value >= 10 ? 8 : 9;
    price.textContent = seats.value > 0 ? `${{seats.value * each}} € a month` : "";
  }};
  seats.addEventListener("input", show);
  show();
</script>
"""
BODY_LIMIT = 10_000


def problem_of(name: str, email: str, seats: str) -> str:
    """What is wrong with an order; empty where nothing is."""
    if not name:
        return "Please tell us your name"
    if email.count("@") != 1 or "." not in email.partition("@")[2]:
        return "That is not an e-mail address"
    if not (seats.isascii() and seats.isdigit() and 1 <= int(seats) <= 100):
        return "Between 1 and 100 seats, please"
    return ""


class PatientServer(ThreadingHTTPServer):
    """Prints nothing about a browser that closes its page before the answer is complete."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Leave out connections that the browser closed; print everything else."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Shop(BaseHTTPRequestHandler):
    """`GET /` shows the form, `POST /signup` validates it."""

    def do_GET(self) -> None:
        """The form, or nothing."""
        if self.path == "/":
            self._answer("Sign up", FORM.format(name="", email="", seats="", problem=""))
        else:
            self._answer("Not found", "<p>There is no such page.</p>", status=404)

    def do_POST(self) -> None:
        """The order."""
        length = min(int(self.headers.get("Content-Length", "0")), BODY_LIMIT)
        sent = parse_qs(self.rfile.read(length).decode())
        order = {field: sent.get(field, [""])[0].strip() for field in ("name", "email", "seats")}
        problem = problem_of(**order)
        shown = {field: escape(value) for field, value in order.items()}
        if problem:
            self._answer("Sign up", FORM.format(**shown, problem=problem), status=200)
        else:
            self._answer(
                "Thank you", f'<p id="welcome">Welcome, {shown["name"]}! {shown["seats"]} seats are yours.</p>'
            )

    def log_message(self, *_: object) -> None:
        """Silent: the demo's own display is what people look at."""

    def _answer(self, title: str, body: str, status: int = 200) -> None:
        content = PAGE.format(title=title, body=body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def shop() -> Iterator[str]:
    """Serve it on a free port of this machine for the length of the block: its address."""
    server = PatientServer(("127.0.0.1", 0), Shop)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
