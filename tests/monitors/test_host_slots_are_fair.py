"""At most so many looks at one host at a time; the waiting service that was looked at least recently is next."""

import heapq
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll.errors import BadInput
from everpoll.monitors.host_slots import HostSlots

reproducible = settings(derandomize=True, deadline=None, max_examples=300)


def test_300_services_on_one_host_are_all_looked_at_and_none_more_than_once_more_often() -> None:
    """Each every 5 s, each look 100 ms, five at a time: 60 looks a second are wanted, 50 are possible."""
    slots: HostSlots[int] = HostSlots(5)
    looks: Counter[int] = Counter()
    looked_at: dict[int, float] = {}
    agenda: list[tuple[float, str, int]] = [(number * 5 / 300, "due", number) for number in range(300)]
    heapq.heapify(agenda)

    def begin(number: int, now: float) -> None:
        looks[number] += 1
        looked_at[number] = now
        heapq.heappush(agenda, (now + 0.1, "end", number))

    while agenda[0][0] < 120:
        now, what, number = heapq.heappop(agenda)
        if what == "due":
            if slots.enter("host", number, looked_at.get(number)):
                begin(number, now)
        else:
            for granted in slots.leave("host", number):
                begin(granted, now)
            heapq.heappush(agenda, (looked_at[number] + 5, "due", number))
        assert slots.under_way("host") <= 5
    assert len(looks) == 300
    assert max(looks.values()) - min(looks.values()) <= 1
    assert sum(looks.values()) > 0.95 * 50 * 120, "the slots are in use all the time"


def test_services_that_were_never_looked_at_come_first() -> None:
    slots: HostSlots[str] = HostSlots(1)
    assert slots.enter("host", "running", None)
    for name, looked_at in (("late", 30.0), ("early", 10.0), ("new", None), ("newer", None)):
        assert not slots.enter("host", name, looked_at)
    order = []
    current = "running"
    while granted := slots.leave("host", current):
        (current,) = granted
        order.append(current)
    assert order == ["new", "newer", "early", "late"]


def test_hosts_do_not_wait_for_each_other() -> None:
    slots: HostSlots[str] = HostSlots(1)
    assert slots.enter("a", "one", None)
    assert slots.enter("b", "two", None)
    assert not slots.enter("a", "three", None)
    assert slots.leave("b", "two") == []
    assert (slots.under_way("a"), slots.waiting("a")) == (1, 1)


def test_a_look_that_gives_up_waiting_is_skipped() -> None:
    slots: HostSlots[str] = HostSlots(1)
    slots.enter("host", "one", None)
    slots.enter("host", "two", 1.0)
    slots.enter("host", "three", 2.0)
    assert slots.leave("host", "two") == []
    assert slots.leave("host", "one") == ["three"]


def test_a_look_that_gave_up_and_comes_again_stands_where_it_belongs_now() -> None:
    slots: HostSlots[str] = HostSlots(1)
    slots.enter("host", "one", None)
    slots.enter("host", "two", 1.0)
    slots.enter("host", "three", 5.0)
    slots.leave("host", "two")
    slots.enter("host", "two", 9.0)
    assert slots.leave("host", "one") == ["three"]
    assert slots.leave("host", "three") == ["two"]


def test_a_higher_limit_lets_waiting_looks_begin_and_a_lower_one_ends_none() -> None:
    slots: HostSlots[int] = HostSlots(1)
    for number in range(5):
        slots.enter("host", number, float(number))
    assert slots.limit(3) == [1, 2]
    assert slots.limit(1) == []
    assert slots.under_way("host") == 3
    assert slots.leave("host", 0) == slots.leave("host", 1) == []
    assert slots.leave("host", 2) == [3]


def test_idle_hosts_cost_nothing() -> None:
    slots: HostSlots[int] = HostSlots(2)
    for number in range(1_000):
        slots.enter(f"host{number}", number, None)
    assert len(slots) == 1_000
    for number in range(1_000):
        slots.leave(f"host{number}", number)
    assert len(slots) == 0
    assert slots.leave("host0", 0) == []


def test_giving_up_again_and_again_does_not_grow() -> None:
    slots: HostSlots[int] = HostSlots(1)
    slots.enter("host", -1, None)
    slots.enter("host", -2, None)
    for number in range(10_000):
        slots.enter("host", number, None)
        slots.leave("host", number)
    assert len(slots._hosts["host"].queue) < 100
    assert slots.leave("host", -1) == [-2]


@pytest.mark.parametrize("limit", [0, -1, True, 2.5])
def test_the_limit_is_a_whole_number_of_at_least_one(limit: int) -> None:
    with pytest.raises(BadInput, match="per_host"):
        HostSlots(limit)


@reproducible
@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.none() | st.integers(0, 9))))
def test_a_free_slot_never_stays_free_while_a_look_waits(limit: int, story: list[tuple[int, bool, int | None]]) -> None:
    slots: HostSlots[int] = HostSlots(limit)
    running: set[int] = set()
    waiting: set[int] = set()
    for ticket, enters, looked_at in story:
        if enters and ticket not in running | waiting:
            (running if slots.enter("host", ticket, looked_at) else waiting).add(ticket)
        elif not enters:
            running.discard(ticket)
            waiting.discard(ticket)
            granted = slots.leave("host", ticket)
            assert set(granted) <= waiting
            waiting -= set(granted)
            running |= set(granted)
        assert (slots.under_way("host"), slots.waiting("host")) == (len(running), len(waiting))
        assert len(running) <= limit
        assert not waiting or len(running) == limit
