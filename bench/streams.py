"""Streams: which share of a core a server needs for many subscribers, of hints for screens and of the durable log.

The server is `everpoll serve` in a process of its own; subscribers and the writer of events are in this one. What
subscribers that do not read cost the others is measured apart, beside a control: `stuck_subscribers`.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import stuck_subscribers
from bench.progress import Progress
from bench.quiet import process_cpu_s
from bench.report import Ratio, Report
from bench.served_lists import served
from bench.server import postgres, resident_mb
from everpoll import Everpoll
from everpoll.stores.contract import NewEvent, NewTask, Store

WATCHED_S, QUICK_WATCHED_S = 15.0, 5.0
SETTLED_S = 2.0
WRITE_S = 0.1
DELIVERED_SHARE = 0.97
"""Of what is written: a sample begins and ends in the middle of a tick, and a message in two parts is not counted."""
RESIDENT_MB = 256.0
"""Of the server, its subscribers and a stuck one included."""
CONNECT_AT_ONCE = 50


@dataclass(frozen=True)
class Part:
    """Subscribers of one stream, and how many events a second are written meanwhile."""

    path: str
    subscribers: int
    events: int
    mark: bytes
    """What each message has once."""
    most: float
    """The share of a core that is allowed."""
    delivered: float
    """Messages that each subscriber gets a second."""


PARTS = (
    Part("/api/changes", 1_000, 20, b'"topic":"events"', 0.20, 4.0),
    Part("/api/events", 300, 200, b"\nid: ", 0.60, 200.0),
)


class Subscriber(asyncio.Protocol):
    """A client that counts messages."""

    def __init__(self, path: str, mark: bytes) -> None:
        self._request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        self._mark = mark
        self.messages = 0
        self.begun = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the stream."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Count; a message that comes in two parts may be missed, as one of thousands."""
        self.messages += data.count(self._mark)
        if not self.begun.done():
            self.begun.set_result(None)


def run(quick: bool) -> Report:
    """Both streams, on both stores."""
    columns = ("", "CPU share of a core", "messages a second and subscriber", "resident MB")
    report = Report("streams", "Many subscribers of one server", columns)
    progress = Progress("streams")
    watched_s = QUICK_WATCHED_S if quick else WATCHED_S
    with ExitStack() as until:
        path = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="everpoll-bench-"))) / "tasks.db"
        file, database = f"sqlite:///{path}", until.enter_context(until.enter_context(postgres()).database())
        for store, url in (("SQLite", file), ("Postgres", database)):
            for part in PARTS:
                label = f"{store}: {part.subscribers:,} subscribers of {part.path}"
                progress.begin(label)
                share, rate, resident = asyncio.run(_measured(url, part, watched_s))
                progress.end(f"{share:.1%}")
                report.rows.append((label, f"{share:.1%}", f"{rate:.1f}", f"{resident:.0f}"))
                report.ratios += [
                    Ratio(f"{label}, share of a core", share, at_most=part.most),
                    Ratio(f"{label}, messages a second", rate, at_least=part.delivered * DELIVERED_SHARE),
                    Ratio(f"{label}, resident MB", resident, at_most=RESIDENT_MB),
                ]
            progress.begin(f"{store}: delay beside subscribers that do not read")
            asyncio.run(stuck_subscribers.measure(url, store, watched_s, report))
            progress.end(f"{report.ratios[-3].value:.2f}")
    report.notes.append("Hints are told 4 times a second; 20 events a second make one worth telling each time.")
    report.notes.append("The log has 200 events a second. One subscriber more, of each, does not read.")
    report.notes.append(
        "A delay is the time from the commit of an event until a subscriber has it; the log is read 10 times a second."
    )
    return report


async def _measured(url: str, part: Part, watched_s: float) -> tuple[float, float, float]:
    """Return the share of a core, messages a second for each subscriber, and the resident memory of the server."""
    app = Everpoll(url)
    store = await app.store()
    with served(url) as (port, pid):
        subscribers = await _subscribed(part, port)
        async with _writing(store, part.events):
            await asyncio.sleep(SETTLED_S)
            before, cpu_s, began = sum(one.messages for one in subscribers), process_cpu_s(pid), time.monotonic()
            await asyncio.sleep(watched_s)
            took_s = time.monotonic() - began
            share = (process_cpu_s(pid) - cpu_s) / took_s
            rate = (sum(one.messages for one in subscribers) - before) / len(subscribers) / took_s
            resident = resident_mb(pid)
        for one in subscribers:
            one.transport.abort()
    await app.close()
    return share, rate, resident


async def _subscribed(part: Part, port: int) -> list[Subscriber]:
    event_loop = asyncio.get_running_loop()
    found: list[Subscriber] = []
    while len(found) < part.subscribers:
        some = [
            (await event_loop.create_connection(lambda: Subscriber(part.path, part.mark), "127.0.0.1", port))[1]
            for _ in range(min(CONNECT_AT_ONCE, part.subscribers - len(found)))
        ]
        await asyncio.gather(*(one.begun for one in some))
        found += some
    stuck = (await event_loop.create_connection(lambda: Subscriber(part.path, part.mark), "127.0.0.1", port))[1]
    await stuck.begun
    stuck.transport.pause_reading()
    return found


@asynccontextmanager
async def _writing(store: Store, rate: int) -> AsyncIterator[None]:
    """Write that many events a second, for the length of the block."""
    writer = asyncio.get_running_loop().create_task(_write(store, rate))
    try:
        yield
    finally:
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)


async def _write(store: Store, rate: int) -> None:
    event_loop = asyncio.get_running_loop()
    due_at, number = event_loop.time(), time.time_ns()
    while True:
        keys = [f"bench:{number + place}" for place in range(round(rate * WRITE_S))]
        events = (NewEvent(1, "{}"),)
        batch = [NewTask(name="bench", kind="watch", key=key, delay_s=3600, events=events) for key in keys]
        await store.enqueue(batch)
        number += len(batch)
        due_at += WRITE_S
        await asyncio.sleep(max(0.0, due_at - event_loop.time()))
