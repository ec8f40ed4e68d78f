"""A loop that fails again and again says so at once, then once a minute with a count, and once when it works again."""

import asyncio
import logging
import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everpoll.drivers.repeated_warnings import EVERY_S, REASONS, STEADY_S, RepeatedWarnings
from everpoll.engine.beat_sender import HeartbeatTiming, Listeners
from everpoll.engine.heartbeat import Heartbeat
from everpoll.engine.meter import Meter
from everpoll.engine.settler import SettlementListeners, Settler
from everpoll.errors import StoreUnavailable
from everpoll.stores.contract import Ended, HeartbeatConnection, Settlement
from everpoll.stores.memory import MemoryStore
from everpoll.testing import VirtualClock

PATIENCE_S = 30.0


class Lines(logging.Handler):
    """What was logged at or above a level."""

    def __init__(self, level: int = logging.INFO) -> None:
        super().__init__(level)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Play:
    """A loop under a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.log = logging.Logger("play", logging.DEBUG)
        self.heard, self.whispered = Lines(), Lines(logging.DEBUG)
        self.log.addHandler(self.heard)
        self.log.addHandler(self.whispered)
        self.warnings = RepeatedWarnings(self.log, "the loop", lambda: self.now)

    def fail(self, times: int, every_s: float, reason: str = "refused") -> None:
        for _ in range(times):
            self.warnings.failed(OSError(reason), "it failed: %s", reason)
            self.now += every_s


def test_the_first_then_one_a_minute_with_a_count_and_once_when_it_works() -> None:
    play = Play()
    play.fail(300, every_s=0.5)
    play.warnings.works()
    play.warnings.works()
    assert play.heard.lines == [
        "it failed: refused",
        "it failed: refused (119 more in the last 1m)",
        "it failed: refused (119 more in the last 1m)",
        "the loop works again after 300 failures in 2m30s",
    ]


def test_another_reason_is_said_at_once() -> None:
    play = Play()
    play.fail(3, every_s=0.1)
    play.fail(3, every_s=0.1, reason="wrong password")
    assert play.heard.lines == ["it failed: refused", "it failed: wrong password (2 more in the last 0s)"]


def test_a_later_outage_is_said_at_once() -> None:
    play = Play()
    play.fail(2, every_s=0.1)
    play.warnings.works()
    play.now += STEADY_S
    play.fail(2, every_s=0.1)
    assert [line for line in play.heard.lines if "failed" in line] == ["it failed: refused"] * 2


def test_debug_level_has_every_failure() -> None:
    play = Play()
    play.fail(50, every_s=0.5)
    assert sum("it failed" in line for line in play.whispered.lines) == 50


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 3.0), st.sampled_from("abcdefgh")), max_size=300))
def test_however_it_flaps_the_lines_are_few(steps: list[tuple[bool, float, str]]) -> None:
    """As long as it never works for STEADY_S: then it is another outage."""
    play = Play()
    for fails, pause_s, reason in steps:
        if fails:
            play.fail(1, pause_s, reason)
        else:
            play.warnings.works()
            play.now += pause_s
            play.fail(1, 0.0, reason)
    failed = sum("it failed" in line for line in play.heard.lines)
    assert failed <= REASONS + (play.now - 1000.0) / EVERY_S + 1
    assert len(play.heard.lines) <= 2 * failed


class DeadConnection:
    """A heartbeat that gets no connection, then one."""

    def __init__(self, failures: int, enough: threading.Event) -> None:
        self.left, self.enough = failures, enough

    def __call__(self) -> HeartbeatConnection:
        self.left -= 1
        if self.left == 0:
            self.enough.set()
        raise StoreUnavailable("too many connections")


async def test_a_heartbeat_without_a_connection_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    enough = threading.Event()
    listeners = Listeners(lambda _: None, lambda _: None, lambda _: None, lambda _: None)
    with caplog.at_level(logging.INFO, "everpoll.engine"):
        heartbeat = Heartbeat(DeadConnection(20, enough), 1, HeartbeatTiming(30.0, 0.001), lambda: ((), ()), listeners)
        heartbeat.start()
        assert await asyncio.to_thread(enough.wait, PATIENCE_S)
        await heartbeat.stop()
    assert [one.getMessage() for one in caplog.records] == [
        "heartbeat failed: StoreUnavailable: too many connections; trying again"
    ]


class AwayStore(MemoryStore):
    """Settles nothing for so many tries."""

    away = 30

    async def settle(self, incarnation: int, settlements: Sequence[Settlement]) -> set[int]:
        self.away -= 1
        if self.away >= 0:
            raise StoreUnavailable("away")
        return set()


def test_a_settler_says_how_often_it_failed_and_that_it_works_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        settler = Settler(AwayStore(), Meter(), SettlementListeners(lambda _: None))
        settler.start()
        settler.add(1, Ended(1, 1))
        assert await settler.drained(600)
        await settler.stop()

    with caplog.at_level(logging.INFO, "everpoll.engine"):
        VirtualClock().run(scene())
    lines = [one.getMessage() for one in caplog.records]
    assert lines[0].startswith("cannot settle 1 tasks: away; trying again in ")
    assert all("more in the last 1m" in line for line in lines[1:-1])
    assert lines[-1].startswith("settling works again after 30 failures in ")
    assert len(lines) <= 5
