"""Looks are written in few transactions, and an outage of the store loses none that there is room for."""

import asyncio
from collections.abc import Sequence

import pytest

from everpoll.errors import StoreUnavailable
from everpoll.monitors.checks import recorder as recorders
from everpoll.monitors.checks.recorder import Recorder
from everpoll.stores.health import NewLook
from everpoll.stores.memory import MemoryStore
from everpoll.testing import VirtualClock


def look(number: int) -> NewLook:
    return NewLook(service="billing", at=1_000.0 + number, status="up", span_s=1.0)


class Tape:
    """The records of a memory store, which may be away, and what was written in each call."""

    def __init__(self, clock: VirtualClock) -> None:
        self.store = MemoryStore(clock)
        self.batches: list[int] = []
        self.is_away = False
        self.refuses: float | None = None
        self._record = self.store.health.record
        self.store.health.record = self.record  # type: ignore[method-assign]

    async def record(self, looks: Sequence[NewLook]) -> None:
        if self.is_away:
            raise StoreUnavailable("away")
        if self.refuses is not None and any(one.at == self.refuses for one in looks):
            raise ValueError("refused")
        self.batches.append(len(looks))
        await self._record(looks)

    async def seen(self) -> list[float]:
        return [one.at for one in reversed(await self.store.health.looks("billing", 0.0, 1e12))]


def test_many_looks_are_one_transaction_within_a_tenth_of_a_second() -> None:
    clock = VirtualClock()

    async def main() -> tuple[list[int], int]:
        tape = Tape(clock)
        recorder = Recorder(tape.store)
        for number in range(50):
            recorder.add(look(number))
            await asyncio.sleep(0.001)
        await asyncio.sleep(recorders.FLUSH_S)
        return tape.batches, len(await tape.seen())

    assert clock.run(main()) == ([50], 50)


def test_a_look_that_changed_something_is_written_before_its_caller_goes_on() -> None:
    clock = VirtualClock()

    async def main() -> tuple[float, int]:
        tape = Tape(clock)
        recorder = Recorder(tape.store)
        recorder.add(look(1))
        began = asyncio.get_running_loop().time()
        await recorder.put(look(2))
        return asyncio.get_running_loop().time() - began, len(await tape.seen())

    assert clock.run(main()) == (0.0, 2)


def test_an_outage_loses_no_look() -> None:
    clock = VirtualClock()

    async def main() -> tuple[list[float], int]:
        tape = Tape(clock)
        recorder = Recorder(tape.store)
        tape.is_away = True
        waiting = asyncio.ensure_future(recorder.put(look(0)))
        for number in range(1, 61):
            recorder.add(look(number))
            await asyncio.sleep(1.0)
        assert not waiting.done()
        tape.is_away = False
        await waiting
        await asyncio.sleep(1.0)
        return await tape.seen(), recorder.dropped

    seen, dropped = clock.run(main())
    assert seen == [1_000.0 + number for number in range(61)]
    assert dropped == 0


def test_what_there_is_no_room_for_is_counted_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorders, "LIMIT", 10)
    clock = VirtualClock()

    async def main() -> tuple[list[float], int]:
        tape = Tape(clock)
        recorder = Recorder(tape.store)
        tape.is_away = True
        recorder.add(look(0))
        await asyncio.sleep(1.0)  # this one is under way
        for number in range(1, 16):
            recorder.add(look(number))
        tape.is_away = False
        await asyncio.sleep(60.0)
        return await tape.seen(), recorder.dropped

    seen, dropped = clock.run(main())
    assert dropped == 5
    assert seen == [1_000.0, *(1_000.0 + number for number in range(6, 16))]


def test_a_look_that_the_store_refuses_costs_no_other() -> None:
    clock = VirtualClock()

    async def main() -> tuple[list[float], int]:
        tape = Tape(clock)
        tape.refuses = 1_003.0
        recorder = Recorder(tape.store)
        for number in range(8):
            recorder.add(look(number))
        await recorder.put(look(8))
        return await tape.seen(), recorder.dropped

    seen, dropped = clock.run(main())
    assert seen == [1_000.0 + number for number in range(9) if number != 3]
    assert dropped == 1


def test_closing_writes_what_waits_and_is_bounded() -> None:
    clock = VirtualClock()

    async def main() -> tuple[int, float]:
        tape = Tape(clock)
        recorder = Recorder(tape.store)
        recorder.add(look(1))
        await recorder.close()
        written = len(await tape.seen())
        tape.is_away = True
        recorder.add(look(2))
        began = asyncio.get_running_loop().time()
        await recorder.close()
        return written, asyncio.get_running_loop().time() - began

    assert clock.run(main()) == (1, recorders.CLOSE_S)
