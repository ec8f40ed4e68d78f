"""What polling costs is counted from the logs of runs: looks, useful changes, and what another floor would bring."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everpoll.stores.contract import TaskInfo
from everpoll.watches.memory import Decision, RunMemory
from everpoll.watches.polling_cost import PollingCost, host_of, polling_costs
from everpoll.watches.run_info import RunInfo, run_info

BEGUN = datetime(2026, 1, 2, tzinfo=UTC)


def _run(*log: Decision, watch: str = "export", remote: str | None = "https://shell.example.com/q/1") -> RunInfo:
    memory = RunMemory(run_id="1", log=list(log), remote=remote)
    task = TaskInfo(
        id=1,
        kind="watch",
        name=watch,
        queue="default",
        key=f"{watch}:1",
        state="queued",
        priority=0,
        attempt=0,
        rescues=0,
        created_at=BEGUN,
        due_at=BEGUN,
        memory=msgspec.to_builtins(memory),
    )
    return run_info(task)


def _look(look: int, next_s: float | None = 2.0, times: int = 1, status: str | None = None) -> Decision:
    first_at = None if times == 1 else 100.0 - (times - 1) * (next_s or 0.0)
    return Decision(100.0, "cadence", "", next_s, status, times=times, first_at=first_at, look=look)


def _at(cost: PollingCost, floor_s: float) -> tuple[int, int, float]:
    [floor] = [one for one in cost.floors if one.floor_s == floor_s]
    return floor.looks, floor.saved, floor.later_s


def test_looks_and_useful_changes_are_counted() -> None:
    """A new word, a new fact and the end are useful; equal looks in a row and steps without a look are not."""
    fact = Decision(100.0, "hint", "", 2.0, "sealed", {"rows": 7}, look=13)
    local = Decision(100.0, "cancel", "")
    log = [_look(1, status="accepted"), _look(11, times=10, status="accepted"), _look(12, status="sealed")]
    [cost] = polling_costs([_run(*log, fact, local, _look(14, None, status="sealed"))])
    assert (cost.watch, cost.host, cost.runs) == ("export", "shell.example.com", 1)
    assert (cost.looks, cost.changes) == (14, 4)


def test_a_run_without_a_look_costs_nothing() -> None:
    """It has just begun, or its log has only steps that were no looks."""
    [cost] = polling_costs([_run(), _run(Decision(100.0, "cancel", ""))])
    assert (cost.runs, cost.looks, cost.changes) == (2, 0, 0)
    assert {(one.looks, one.saved, one.later_s) for one in cost.floors} == {(0, 0, 0.0)}


def test_a_longer_floor_saves_looks_and_notices_changes_later() -> None:
    """Of eleven waits of 2 s, a floor of 10 s leaves three; a change is then seen 4 s later on average."""
    log = [_look(1, status="accepted"), _look(11, times=10, status="accepted"), _look(12, None, status="gone")]
    [cost] = polling_costs([_run(*log)])
    assert _at(cost, 2.0) == (12, 0, 0.0)
    looks, saved, later_s = _at(cost, 10.0)
    assert (looks, saved) == (5, 7)
    assert later_s == pytest.approx(4.0)


def test_watches_and_hosts_are_apart_and_the_busiest_is_first() -> None:
    runs = [
        _run(_look(1), remote="other.example.com:8080"),
        _run(_look(3, times=3)),
        _run(_look(2, times=2), watch="cleanup", remote=None),
    ]
    found = [(one.watch, one.host, one.looks) for one in polling_costs(runs)]
    assert found == [("export", "shell.example.com", 3), ("cleanup", None, 2), ("export", "other.example.com", 1)]


@pytest.mark.parametrize(
    ("target", "host"),
    [
        (None, None),
        ("q-17", None),
        ("https://user:pw@shell.example.com:8443/q?x=1", "shell.example.com"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("http://localhost:1/", "localhost"),
        ("http://[bad", None),
        ("two words.", None),
    ],
)
def test_a_host_is_read_from_a_target(target: str | None, host: str | None) -> None:
    """An address has one, with or without a scheme; a handle has none, and no password is in it."""
    assert host_of(target) == host


@given(st.lists(st.tuples(st.floats(0.01, 1000), st.integers(1, 50), st.sampled_from([None, "a", "b"])), max_size=20))
def test_no_floor_makes_more_looks_and_a_longer_one_never_fewer_savings(
    entries: list[tuple[float, int, str | None]],
) -> None:
    """Looks and savings add up, savings grow with the floor, and so does the delay."""
    number, log = 0, []
    for wait_s, times, status in entries:
        number += times
        log.append(_look(number, wait_s, times, status))
    [cost] = polling_costs([_run(*log)])
    assert cost.looks == number
    assert cost.changes <= number
    for one in cost.floors:
        assert one.looks + one.saved == cost.looks
        assert one.saved >= 0
    saved = [one.saved for one in cost.floors]
    assert saved == sorted(saved)
    later = [one.later_s for one in cost.floors]
    assert later == sorted(later)


def test_a_clock_that_was_set_back_makes_no_look_negative() -> None:
    """The last of ten equal looks seems to be an hour before the first."""
    log = [_look(1), Decision(100.0, "cadence", "", 2.0, times=10, first_at=3_700.0, look=11)]
    [cost] = polling_costs([_run(*log)])
    assert cost.looks == 11
    for floor in cost.floors:
        assert floor.looks >= 1
        assert floor.looks + floor.saved == cost.looks
        assert floor.later_s == 0.0
