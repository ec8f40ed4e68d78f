"""What subscribers that do not read cost the others: the delay of events, beside a control where all subscribers read.

The delay is the time from the commit of an event until a subscriber has it. Before each stretch a burst of large events
fills the buffers of the kernel, so that the server really waits for the subscribers that do not read.
"""

import asyncio
import random
import re
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.report import Ratio, Report
from bench.served_lists import served
from bench.server import resident_mb
from everpoll import Everpoll
from everpoll.stores.contract import NewEvent, NewTask, Store, encode

READERS, STUCK = 20, 20
EVENTS, WRITE_S = 20, 0.1
"""So many events each time, and the mean pause: pauses vary, because the log is read at a steady rate, too."""
BURST, BURST_BYTES = 2_048, 4_096
"""8 MB: twice what the kernel buffers for one connection that is not read."""
BURST_PART = 256
STUCK_RECEIVES_BYTES = 4_096
PATIENCE_S = 60.0
"""Of a reader, for what was written last."""
RATIO_AT_MOST = 1.2
RESIDENT_MB = 256.0
_WRITTEN = re.compile(rb'"key":"stuck:(\d+)"')
REQUEST = b"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@dataclass(frozen=True)
class Stretch:
    """The delays of one stretch, in milliseconds, and the memory of the server at its end."""

    delays_ms: list[float]
    resident_mb: float

    def at(self, percent: int) -> float:
        """Return a percentile."""
        return statistics.quantiles(self.delays_ms, n=100)[percent - 1]


class Reader(asyncio.Protocol):
    """A client that notes when it has each event."""

    def __init__(self) -> None:
        self.seen_at: dict[int, float] = {}
        self.begun = asyncio.get_running_loop().create_future()
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the stream."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        """Note the numbers of the events in it; a key may come in two parts."""
        now, data = time.monotonic(), self._rest + data
        end = 0
        for found in _WRITTEN.finditer(data):
            self.seen_at.setdefault(int(found[1]), now)
            end = found.end()
        self._rest = data[max(end, len(data) - 100) :]
        if not self.begun.done():
            self.begun.set_result(None)


async def measure(url: str, store_name: str, watched_s: float, report: Report) -> None:
    """Measure on one store: alone, beside stuck subscribers, and alone again."""
    app = Everpoll(url)
    store = await app.store()
    with served(url) as (port, pid):
        alone, beside, again = [await _stretch(store, port, pid, stuck, watched_s) for stuck in (0, STUCK, 0)]
    await app.close()
    control = Stretch(alone.delays_ms + again.delays_ms, again.resident_mb)
    for words, one in (("all read", control), (f"beside {STUCK} that do not read", beside)):
        label = f"{store_name}: delay of an event, {READERS} subscribers, {words}"
        report.rows.append((label, f"{one.at(50):.0f} ms, p99 {one.at(99):.0f} ms", "", f"{one.resident_mb:.0f}"))
    for percent in (50, 99):
        ratio = beside.at(percent) / control.at(percent)
        label = f"{store_name}: delay beside stuck subscribers / without, p{percent}"
        report.ratios.append(Ratio(label, ratio, at_most=RATIO_AT_MOST))
    label = f"{store_name}: resident MB beside {STUCK} stuck subscribers"
    report.ratios.append(Ratio(label, beside.resident_mb, at_most=RESIDENT_MB))


async def _stretch(store: Store, port: int, pid: int, stuck: int, watched_s: float) -> Stretch:
    event_loop = asyncio.get_running_loop()
    readers = [(await event_loop.create_connection(Reader, "127.0.0.1", port))[1] for _ in range(READERS)]
    await asyncio.gather(*(one.begun for one in readers))
    with _not_reading(port, stuck):
        await _burst(store, readers)
        written_at = await _write(store, watched_s)
        await _until_seen(readers, max(written_at))
        resident = resident_mb(pid)
    for one in readers:
        one.transport.abort()
    delays = [1_000 * (one.seen_at[number] - at) for one in readers for number, at in written_at.items()]
    return Stretch(delays, resident)


@contextmanager
def _not_reading(port: int, count: int) -> Iterator[None]:
    """Subscribers that ask and never read, for the length of the block."""
    opened: list[socket.socket] = []
    try:
        for _ in range(count):
            one = socket.socket()
            opened.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, STUCK_RECEIVES_BYTES)
            one.connect(("127.0.0.1", port))
            one.sendall(REQUEST)
            assert one.recv(1), "it has begun"
        yield
    finally:
        for one in opened:
            one.close()


async def _burst(store: Store, readers: list[Reader]) -> None:
    body = encode({"text": "x" * BURST_BYTES})
    last = 0
    for _ in range(BURST // BURST_PART):
        last = await _written(store, BURST_PART, body)
    await _until_seen(readers, last)


async def _write(store: Store, watched_s: float) -> dict[int, float]:
    """Write at a steady rate; return when each event was committed."""
    event_loop = asyncio.get_running_loop()
    committed_at: dict[int, float] = {}
    pauses = random.Random(1)
    due_at = event_loop.time()
    for _ in range(round(watched_s / WRITE_S)):
        last = await _written(store, EVENTS, "{}")
        now = time.monotonic()
        committed_at.update(dict.fromkeys(range(last - EVENTS + 1, last + 1), now))
        due_at += pauses.uniform(0.0, 2 * WRITE_S)
        await asyncio.sleep(max(0.0, due_at - event_loop.time()))
    return committed_at


async def _written(store: Store, count: int, body: str) -> int:
    """Write events; return the number of the last."""
    first = time.time_ns()
    tasks = [
        NewTask(name="bench", kind="watch", key=f"stuck:{first + place}", delay_s=3600, events=(NewEvent(1, body),))
        for place in range(count)
    ]
    await store.enqueue(tasks)
    return first + count - 1


async def _until_seen(readers: list[Reader], number: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not all(number in one.seen_at for one in readers):  # noqa: ASYNC110 - a reader notifies of nothing
            await asyncio.sleep(0.01)
