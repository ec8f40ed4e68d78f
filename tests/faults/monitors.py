"""Processes that share services: the app that they run, and what may be done to them and read of them."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from everpoll import Everpoll
from everpoll.monitors.alerting import Alert
from everpoll.monitors.alerts.webhook import Webhook
from faults.endpoint import Endpoint
from faults.fleet import LOOKS_REST
from worker_processes import WorkerProcess, story_of

LEASE, SERVICES, EVERY, ENDPOINT = "MONITORS_LEASE", "MONITORS_SERVICES", "MONITORS_EVERY", "MONITORS_ENDPOINT"
LOOK_S = 0.02
GIVE_UP_S = 40.0
"""Far more than anything here takes: a test that needs it has failed."""

T = TypeVar("T")


def monitors() -> Everpoll:
    """An app with so many services at one endpoint."""
    app = Everpoll(lease=os.environ.get(LEASE, "30s"))
    endpoint = os.environ.get(ENDPOINT, "http://127.0.0.1:1")
    app.services.configure(shortest="100ms", per_host=50)
    app.services.channel("ops", Webhook(f"{endpoint}/alerts"), group="0s")
    for name in names(int(os.environ.get(SERVICES, "0"))):
        app.service(
            name,
            f"{endpoint}/health/{name}",
            every=os.environ.get(EVERY, "1s"),
            alert=Alert(after=2, to=["ops"]),
        )
    return app


def names(count: int) -> list[str]:
    """Those of the services."""
    return [f"s{number}" for number in range(count)]


class MonitorFleet:
    """Processes of one database. Nothing that was started outlives the block."""

    def __init__(self, url: str, folder: Path, endpoint: Endpoint, *, lease: str, services: int, every: str) -> None:
        self.url = url
        self.endpoint = endpoint
        self.names = names(services)
        self.workers: list[WorkerProcess] = []
        self._folder = folder
        self._env = {
            **{name: value for name, value in os.environ.items() if name != "WORKER_ID"},
            "EVERPOLL_URL": url,
            LEASE: lease,
            SERVICES: str(services),
            EVERY: every,
            ENDPOINT: endpoint.url,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for worker in self.workers:
            if worker.is_running:
                worker.kill()

    def start(self, count: int = 1) -> None:
        """Start some more, and wait until they look at services."""
        for _ in range(count):
            self.start_one_soon()
        self.until_all_have_signed_on()

    def start_one_soon(self) -> WorkerProcess:
        """Start one more without waiting for it."""
        worker = WorkerProcess(f"m{len(self.workers) + 1}", self._folder, self._env, "faults.monitors:app", "10s")
        self.workers.append(worker)
        return worker

    def until_all_have_signed_on(self) -> None:
        """Wait for those that live; one that is still importing has no handler for a signal yet."""
        self.until(lambda: all(one.said("signed on as") for one in self.running()), "all have signed on")

    def running(self) -> list[WorkerProcess]:
        """Those that live."""
        return [worker for worker in self.workers if worker.is_running]

    def end(self) -> None:
        """SIGTERM to all that live; each ends with 0."""
        living = self.running()
        for worker in living:
            worker.end()
        self.until(lambda: not self.running(), "all have ended")
        assert [worker.process.returncode for worker in living] == [0] * len(living), story_of(self.workers)

    def until(self, condition: Callable[[], bool], wanted: str) -> float:
        """Wait for it; return how long that took."""
        began = looked_at = time.monotonic()
        while not condition():
            now = time.monotonic()
            if now > began + GIVE_UP_S:
                raise AssertionError(f"not within {GIVE_UP_S:g} s: {wanted}\n{story_of(self.workers)}")
            time.sleep(max(LOOK_S, LOOKS_REST * (now - looked_at)))
            looked_at = time.monotonic()
        return time.monotonic() - began

    def until_all_are_asked(self, after: float, times: int = 1, of: Iterable[str] | None = None) -> None:
        """Wait until every service was asked so often since an instant."""
        wanted = self.names if of is None else list(of)

        def are_asked() -> bool:
            return all(sum(at > after for at in self.endpoint.asked[name][-times:]) >= times for name in wanted)

        self.until(are_asked, f"all services are asked {times} times")

    def read(self, reading: Callable[[Everpoll], Awaitable[T]]) -> T:
        """Ask the database by an app that runs nothing."""

        async def asked() -> T:
            app = Everpoll(self.url)
            try:
                return await reading(app)
            finally:
                await app.close()

        return asyncio.run(asked())


app = monitors()
