"""What a look holds in its hands, without a store around it: facts, their clock and what they ask of the next look."""

from typing import Any

from everpoll.watches import LookContext
from everpoll.watches.memory import RunMemory


class Busy(Exception):
    status = 429

    def __init__(self, seconds: int) -> None:
        super().__init__("busy")
        self.headers = {"Retry-After": str(seconds)}


def look(memory: RunMemory, at: float) -> LookContext:
    return LookContext(memory, at, {}, "query:r")


def test_only_sightings_are_counted_as_confirmations() -> None:
    memory = RunMemory("r", started_at=0.0)
    seen: list[bool | None] = [True, False, None, True, True]
    answers = [look(memory, 10.0 * number).confirm("gone", one) for number, one in enumerate(seen)]
    assert answers == [False, False, False, False, True]
    assert memory.counters == {"confirm:gone": 3}


def test_a_confirmation_asks_for_a_look_a_hair_after_its_gap() -> None:
    """Due times are stored in microseconds: rounded down, the look would come too early to count."""
    context = look(RunMemory("r", started_at=0.0), 100.0)
    context.confirm("gone", True, gap="15s")
    [hint_at] = context.hints.values()
    assert 115.0 < hint_at < 115.1


def test_a_gate_that_passed_before_the_clock_was_set_back_opens_again_in_time() -> None:
    memory = RunMemory("r", started_at=0.0)
    at = {3_600.0: True, 10.0: False, 20.0: False, 26.0: True, 30.0: False}
    assert {one: look(memory, one).due("probe", every="15s") for one in at} == at


async def test_of_several_calls_that_were_told_to_wait_the_longest_counts() -> None:
    async def told(seconds: int) -> Any:
        raise Busy(seconds)

    context = look(RunMemory("r"), 0.0)
    for seconds in (10, 100, 20):
        await context.attempt(told, seconds)
    await context.attempt(len, 5)
    assert context.floor_s == 100
