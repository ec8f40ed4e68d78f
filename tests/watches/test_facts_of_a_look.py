"""The facts of a `LookContext`, without a store: what changes them, and when they ask for the next look."""

from typing import Any

from everpoll import Breaker, Rate
from everpoll.policy import Tokens
from everpoll.watches import LookContext
from everpoll.watches.memory import Decision, RunMemory
from everpoll.watches.remotes import Remotes


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
    async def answer(seconds: int) -> Any:
        raise Busy(seconds)

    context = look(RunMemory("r"), 0.0)
    for seconds in (10, 100, 20):
        await context.attempt(answer, seconds)
    await context.attempt(len, 5)
    assert context.floor_s == 100


def test_equal_decisions_in_a_row_keep_the_time_of_the_first() -> None:
    memory = RunMemory("r")
    for at in (1.0, 2.0, 3.0, 4.0):
        memory.note(Decision(at, "cadence", "the cadence waits so", 1.0))
    [one] = memory.log
    assert (one.first_at, one.at, one.times) == (1.0, 4.0, 4)


def test_a_probe_that_the_rate_holds_up_is_no_probe() -> None:
    """Else no run would ask for a whole cooldown, and the silence would count as a failure."""
    remotes = Remotes(Rate(1, per="1s"), Breaker(1, "1m"), lambda: 0.0)
    assert remotes.admit("host", 0.0) is None
    assert remotes.failed("host", 0.0) is not None
    remotes._state("host").tokens = Tokens(0.0, 61.0)
    held_up = remotes.admit("host", 61.0)
    assert held_up is not None
    assert held_up.rule == "rate"
    assert remotes.admit("host", 62.0, has_token=True) is None, "it is the probe now"


def test_a_look_that_was_let_go_changes_nothing_any_more() -> None:
    memory = RunMemory("r", started_at=0.0, handle="h")
    context = look(memory, 100.0)
    context.detach()
    context.memory["late"] = True
    context.confirm("gone", True)
    context.due("probe")
    context.count("late")
    context.status("late")
    assert memory == RunMemory("r", started_at=0.0, handle="h")
    assert (context.id, context.handle) == ("r", "h"), "what it is about can still be asked"
