"""A server with the shop in it: `everpoll run --serve` in a process of its own, on SQLite, filled over HTTP.

Once `shop_server()` has yielded, every state can be seen: jobs that are done, failed, retrying, running, scheduled,
canceled and held by a paused queue; runs that are done, failed and waiting; services that are up, degraded and down;
loops that work and that fail; a schedule; an adopted table with rows of each fate.
"""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from cli.health_answers import paths
from server.site import LIMIT_S
from servers.ports import reserved_port
from watches.adapters.fake_server import FakeServer, serving

TESTS = Path(__file__).resolve().parents[1]


@dataclass
class ShopServer:
    """The running server. Ids of what was filled in stand in `ids`, by what became of it."""

    url: str
    """Without a slash at its end."""
    database: str
    remote: FakeServer
    """The health endpoints of the services: another `remote.answer` changes what they say."""
    environment: dict[str, str]
    ids: dict[str, str] = field(default_factory=dict)
    process: "subprocess.Popen[bytes] | None" = None
    works: bool = True
    """Whether the server runs a worker, too."""

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        words = (
            ["run", "dashboard.shop:app", "--serve", "--grace", "0s"] if self.works else ["serve", "dashboard.shop:app"]
        )
        command = [sys.executable, "-m", "everpoll", *words]
        command += ["--port", self.url.rpartition(":")[2]]
        self.process = subprocess.Popen(command, cwd=TESTS, env=self.environment)
        self.until(self._is_up)

    def kill(self) -> None:
        """End the server as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the server as an operator does."""
        self._end(signal.SIGTERM)

    def get(self, path: str, **params: Any) -> Any:
        """Return the JSON of a GET."""
        answer = httpx.get(f"{self.url}{path}", params=params, headers=self._headers, timeout=LIMIT_S)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any = None) -> Any:
        """Return the JSON of a POST that succeeds."""
        json = body if body is not None else {}
        answer = httpx.post(f"{self.url}{path}", json=json, headers=self._headers, timeout=LIMIT_S)
        assert answer.is_success, f"POST {path}: {answer.text}"
        return answer.json() if answer.content else None

    def enqueue(self, name: str, *args: Any, **options: Any) -> str:
        """Enqueue a job, and return its id."""
        return str(self.post("/api/jobs", {"name": name, "args": list(args), **options})["id"])

    def begin(self, run: str, **op: Any) -> str:
        """Begin a run of the watch `export`, and return its id."""
        self.post("/api/runs", {"watch": "export", "id": run, "op": op})
        return f"export:{run}"

    def until(self, ask: Callable[[], Any]) -> Any:
        """Ask again and again until the answer is true; return it."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            if answer := ask():
                return answer
            time.sleep(0.02)
        raise AssertionError(f"{ask} did not become true within {LIMIT_S:g} s")

    def until_job(self, id: str, **fields: Any) -> None:  # noqa: A002 - the API's word
        """Wait until the job has these fields."""
        self.until(lambda: fields.items() <= self.get(f"/api/jobs/{id}").items())

    def fill(self) -> None:
        """Bring about one of each."""
        self.post("/api/queues/reports/pause", {"reason": "month end"})
        self.ids["held"] = self.enqueue("report", "2026-10")
        self.ids["done"] = self.enqueue("audit", "https://example.com")
        self.ids["failed"] = self.enqueue("charge", 7)
        self.ids["retrying"] = self.enqueue("mail", "ada@example.com")
        self.ids["running"] = self.enqueue("render")
        self.ids["scheduled"] = self.enqueue("audit", "https://example.org", delay="1h")
        self.ids["canceled"] = self.enqueue("audit", "https://example.net", delay="2h")
        self.post(f"/api/jobs/{self.ids['canceled']}/cancel")
        self.ids["run done"] = self.begin("run-done", ends=True)
        self.ids["run failed"] = self.begin("run-failed", fails=True)
        self.ids["run waiting"] = self.begin("run-waiting")
        self.ids["run with facts"] = self.begin("run-with-facts", steps=["accepted", "copying", "copying", "sealed"])
        for state in ("done", "failed", "running", "canceled"):
            self.until_job(self.ids[state], state=state)
        self.until_job(self.ids["retrying"], state="queued", attempt=1)
        for name, state in {"run done": "done", "run failed": "failed"}.items():
            self.until(partial(self._has_state, f"/api/runs/{self.ids[name]}", state))
        wanted = {"billing": "up", "search": "degraded", "warehouse": "down"}
        self.until(lambda: wanted == {one["name"]: one["status"] for one in self.get("/api/services")["items"]})
        self.until(lambda: all(one["runs"] for one in self.get("/api/loops")["items"]))

    @property
    def _headers(self) -> dict[str, str]:
        token = self.environment.get("EVERPOLL_TOKEN")
        return {} if token is None else {"Authorization": f"Bearer {token}"}

    def _has_state(self, path: str, state: str) -> bool:
        return bool(self.get(path)["state"] == state)

    def _is_up(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the server ended with {self.process.returncode}"
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/health").status_code == 200
        return False

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(number)
            process.wait(LIMIT_S)


def _make_orders(database: Path, *, is_filled: bool) -> None:
    """Make the table that the shop adopts; one of its rows has a status that is not mapped."""
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "create table orders (id integer primary key, status text not null default 'queued', item text, error text,"
            " created_at text not null default current_timestamp, worker_id text, started_at text, finished_at text)"
        )
        if is_filled:
            connection.execute("insert into orders (item, status) values ('cup', 'queued'), ('broken', 'queued')")
            connection.execute("insert into orders (item, status) values ('book', 'on hold')")


@contextlib.contextmanager
def shop_server(folder: Path, *, is_filled: bool = True, works: bool = True, **variables: str) -> Iterator[ShopServer]:
    """Serve the shop from a database in this folder."""
    database = f"sqlite:///{folder / 'shop.db'}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVERPOLL_")}
    # The server has the sources of the tests, also where those are not the installed ones.
    sources = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    with serving(paths) as remote:
        own = {"EVERPOLL_URL": database, "SHOP_REMOTE": remote.url, "PYTHONPATH": sources}
        server = ShopServer(
            f"http://127.0.0.1:{reserved_port()}", database, remote, kept | own | variables, works=works
        )
        try:
            _make_orders(folder / "shop.db", is_filled=is_filled)
            server.start()
            if is_filled:
                server.fill()
            yield server
        finally:
            server.kill()
