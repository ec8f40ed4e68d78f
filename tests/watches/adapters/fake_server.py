"""A remote on loopback that answers what it was told to: for our adapters, and for the clients that others wrote."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]
    """By name in lower case."""
    body: Any


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


Paths = Mapping[str, Callable[[Asked], Answer] | Answer]


@dataclass
class FakeServer:
    url: str
    answer: Callable[[Asked], Answer]
    asked: list[Asked] = field(default_factory=list)

    def paths(self) -> list[str]:
        return [f"{one.method} {one.path}" for one in self.asked]


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is not an error."""


@contextmanager
def serving(answer: Callable[[Asked], Answer], *, tls: ssl.SSLContext | None = None) -> Iterator[FakeServer]:
    """A server that asks `answer` what to say, for as long as the block lasts; `answer` may be exchanged."""
    fake = FakeServer("", answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body in one packet: the kernel would hold the second one back for 40 ms.
        wbufsize = -1

        def _respond(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            raw = self.rfile.read(length)
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.command, self.path, headers, json.loads(raw) if raw else None)
            fake.asked.append(asked)
            said = fake.answer(asked)
            body = said.body if isinstance(said.body, bytes) else b"" if said.body is None else _json(said.body)
            body = body.replace(b"{url}", fake.url.encode())
            self.send_response(said.status)
            for name, value in {"Content-Type": "application/json", **said.headers}.items():
                self.send_header(name, value.replace("{url}", fake.url))
            if said.status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if said.status != 204:
                self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _respond  # noqa: N815 - the library's names

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            pass

    server = _Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    fake.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def scripted(*answers: Answer) -> Callable[[Asked], Answer]:
    """These answers, one after the other; the last one for ever."""
    left = list(answers)
    return lambda asked: left.pop(0) if len(left) > 1 else left[0]


def by_path(paths: Paths) -> Callable[[Asked], Answer]:
    """An answer by "METHOD /path", without the query; 404 for what is not listed."""

    def answer(asked: Asked) -> Answer:
        said = paths.get(f"{asked.method} {asked.path.partition('?')[0]}", Answer(404, {"error": "no such path"}))
        return said if isinstance(said, Answer) else said(asked)

    return answer


def _json(body: Any) -> bytes:
    return json.dumps(body).encode()
