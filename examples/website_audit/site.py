"""Five sites of different quality on this machine, and one that is down: what the demo audits."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DESCRIPTION = "A small bakery at the corner: bread, cakes and coffee, from six in the morning, every day but Monday."
EXEMPLARY = f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<title>The bakery at the corner</title><meta name="description" content="{DESCRIPTION}">
<meta name="viewport" content="width=device-width, initial-scale=1"></head><body>
<h1>The bakery at the corner</h1><nav><a href="#bread">Bread</a> <a href="#cakes">Cakes</a></nav>
<h2 id="bread">Bread</h2><img src="rye.png" alt="A loaf of rye"><h3>Rye</h3><p>Dark, and good for a week.</p>
<h2 id="cakes">Cakes</h2><p>See <a href="https://example.com/cakes">our other page</a>.</p></body></html>"""
DECENT = """<!doctype html><html lang="en"><head><title>Bikes</title>
<meta name="viewport" content="width=device-width"></head><body>
<h1>Bikes</h1><h3>Repairs</h3><p><a href="/decent/prices">Prices</a></p>
<img src="a.png" alt="A bike"><img src="b.png"></body></html>"""
CARELESS = """<html><head></head><body><h2>welcome!!</h2><h4>news</h4>
<a href="#news">news</a> <a href="#about">about</a> <a href="#contact">contact</a>
<img src="1.gif"><img src="2.gif"><img src="3.gif"><font size=7>under construction"""
GONE = "<!doctype html><html><head><title>404</title></head><body><h1>Not found</h1></body></html>"
HEAVY = EXEMPLARY.replace("</body>", "<p>" + "All the news of the last ten years. " * 40_000 + "</p></body>")

SITES: dict[str, tuple[int, float, str]] = {
    "/exemplary": (200, 0.0, EXEMPLARY),
    "/heavy": (200, 1.2, HEAVY),
    "/decent": (200, 0.0, DECENT),
    "/careless": (200, 0.6, CARELESS),
    "/gone": (404, 0.0, GONE),
}
"""By path: status, how long it takes to answer, and the page."""


class Sites(BaseHTTPRequestHandler):
    """One host for all of them; `/moved` redirects to the best."""

    def do_GET(self) -> None:
        """A site, or a redirect to one."""
        if self.path == "/moved":
            self._answer(301, b"", {"Location": "/exemplary"})
            return
        status, delay_s, html = SITES.get(self.path, (404, 0.0, GONE))
        time.sleep(delay_s)
        self._answer(status, html.encode(), {"Content-Type": "text/html; charset=utf-8"})

    def log_message(self, *_: object) -> None:
        """Silent: the demo's own display is what people look at."""

    def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def sites() -> Iterator[list[str]]:
    """Serve them on a free port for the length of the block: their addresses, the address that is down last."""
    # A socket that is bound and never listens: no other program gets the port, and connections are refused.
    with socket.socket() as down, ThreadingHTTPServer(("127.0.0.1", 0), Sites) as server:
        down.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            up = f"http://127.0.0.1:{server.server_address[1]}"
            yield [*(f"{up}{path}" for path in SITES), f"http://127.0.0.1:{down.getsockname()[1]}/down"]
        finally:
            server.shutdown()
            thread.join()
