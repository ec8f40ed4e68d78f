"""The demo's watch and schedule: exports of a simulated remote on 127.0.0.1, over HTTP.

The remote accepts an export (202), reports its progress, and ends or fails it after a while.
It answers some looks with 503.
"""

import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from everpoll.app import Everpoll
from everpoll.cli.demo_server import HOST, Answer, ReceivedRequest, SmallServer
from everpoll.policy import Backoff, Budget
from everpoll.watches import Done, Fail, Wait
from everpoll.watches.adapters import Request
from everpoll.watches.adapters.http202 import Http202

NEW_EVERY_S = 4.0
TROUBLE = 0.05
"""The share of looks that the remote answers with 503."""


class Exports:
    """The remote: its exports by the keys with which they were started."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._begun: dict[str, tuple[float, float, bool]] = {}

    def answer(self, asked: ReceivedRequest) -> Answer:
        """Start an export, or report its progress."""
        if asked.method == "POST":
            key = asked.headers.get("idempotency-key", "none")
            fate = time.monotonic(), self._rng.uniform(2, 20), self._rng.random() < 0.2
            self._begun.setdefault(key, fate)
            return Answer(202, {"status": "accepted"}, {"Location": f"/exports/{key}"})
        found = self._begun.get(asked.path.removeprefix("/exports/"))
        if found is None:
            return Answer(404, {"error": "no such export"})
        if self._rng.random() < TROUBLE:
            return Answer(503, {"error": "the remote is busy"})
        began, takes_s, fails = found
        share = (time.monotonic() - began) / takes_s
        if share < 1:
            word = "queued" if share < 0.2 else "copying" if share < 0.8 else "sealing"
            return Answer(202, {"status": word, "percentComplete": round(100 * share)})
        if fails:
            return Answer(200, {"status": "failed", "error": "the bucket is full"})
        return Answer(200, {"status": "complete", "rows": round(takes_s * 1000)})


class RemoteStory:
    """The remote, the watch that looks at it, and the counts of its runs."""

    def __init__(self, app: Everpoll) -> None:
        self.counts: Counter[str] = Counter()
        self._rng = random.Random()  # noqa: S311 - a story, no secret
        self._address = HOST
        self._add(app)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve the remote for the length of the block."""
        async with SmallServer(Exports(self._rng).answer).serving() as port:
            self._address = f"{HOST}:{port}"
            yield

    def _add(self, app: Everpoll) -> None:
        counts, cloud = self.counts, Http202()
        every = Backoff("500ms", factor=1.5, cap="3s", jitter=0.2)

        @app.watch(every=every, budget=Budget("2m", looks=60), remote=lambda _op: self._address)
        async def export(_op: dict[str, Any], w: Any) -> Done | Fail | Wait:
            counts["looks"] += 1
            verdict = await cloud.look(w.handle, w.memory)
            counts[{Done: "done", Fail: "failed"}.get(type(verdict), "waits")] += 1
            return verdict

        @export.start
        async def start(op: dict[str, Any], key: str) -> Any:
            return await cloud.start(Request(f"http://{self._address}/exports", json=op), key)

        @app.loop(every=NEW_EVERY_S, name="new exports", first=0, when_hidden=1)
        async def begin() -> None:
            table = self._rng.choice(("orders", "invoices", "events"))
            counts["begun"] += 1
            await export.begin({"table": table}, f"{table}-{counts['begun']}")

        @app.schedule(every="10s")
        @app.job()
        async def nightly_sweep() -> None:
            """A job in place of a cron line."""
