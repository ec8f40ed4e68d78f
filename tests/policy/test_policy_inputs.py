"""A policy is a value: equal, hashable, unchangeable, readable; a bad figure is refused by name, with what to write."""

import copy
import math
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import timedelta

import pytest

from everpoll.errors import BadDuration, BadInput
from everpoll.policy import Adaptive, Backoff, Breaker, Budget, Confirm, Gate, Snooze

EQUAL = [
    (Backoff("1s", factor=2, cap="5m"), Backoff(1, 2.0, timedelta(minutes=5), 0.1, 1)),
    (Breaker(), Breaker(failures=10, cooldown=300)),
    (Budget("29m", looks=120), Budget(timedelta(minutes=29), 120)),
    (Confirm(times=2, gap="15s"), Confirm(2, 15)),
    (Gate(after="5s", every="15s"), Gate(5, 15.0)),
    (Adaptive("5s", "1m"), Adaptive(5, 60, 0.5, 1.5, 3)),
    (Snooze("30s"), Snooze(30)),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_the_same_figures_are_the_same_policy(one: object, other: object) -> None:
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == repr(other)


@pytest.mark.parametrize(("policy", "_"), EQUAL)
def test_a_policy_survives_copying_and_pickling(policy: object, _: object) -> None:
    assert copy.deepcopy(policy) == pickle.loads(pickle.dumps(policy)) == policy  # noqa: S301 - our own bytes


@pytest.mark.parametrize(("policy", "_"), EQUAL)
def test_a_policy_cannot_be_changed_and_has_no_room_for_more(policy: object, _: object) -> None:
    for name in (*type(policy).__slots__, "delay_s"):  # type: ignore[attr-defined] # every policy has slots
        # A frozen class with slots answers TypeError for names it does not have (CPython 3.11).
        with pytest.raises((FrozenInstanceError, TypeError)):
            setattr(policy, name, 1)
    assert not hasattr(policy, "__dict__")


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (Backoff("1s"), "Backoff('1s', factor=2, cap=None, jitter=0.1, steady=1)"),
        (Backoff("1.5s", 1.5, "8s", 0, 2), "Backoff('1.5s', factor=1.5, cap='8s', jitter=0, steady=2)"),
        (Breaker(), "Breaker(failures=10, cooldown='5m')"),
        (Budget("29m", looks=120), "Budget('29m', looks=120)"),
        (Confirm(2, "15s"), "Confirm(times=2, gap='15s')"),
        (Gate("5s", "15s"), "Gate(after='5s', every='15s')"),
        (Adaptive("5s", "5m"), "Adaptive('5s', '5m', faster=0.5, slower=1.5, patience=3)"),
        (Snooze("90s"), "Snooze('1m30s')"),
    ],
)
def test_a_policy_reads_as_it_is_written(policy: object, text: str) -> None:
    assert repr(policy) == text
    assert eval(text) == policy  # noqa: S307 - the text is ours, and reading it back is the promise


def test_different_figures_are_different_policies() -> None:
    assert len({Backoff("1s"), Backoff("2s"), Backoff("1s", 3), Backoff("1s", cap="5s"), Backoff("1s", steady=0)}) == 5
    assert Backoff("1s", jitter=0.2) != Backoff("1s", jitter=0.1)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Backoff(0), "initial=0: must be longer than 0"),
        (lambda: Backoff("1 fortnight"), "initial='1 fortnight': unknown unit 'fortnight'"),
        (lambda: Backoff("5s", cap="1s"), "cap='1s': shorter than initial='5s'; write a cap of at least"),
        (lambda: Breaker(cooldown=0), "cooldown=0: must be longer than 0"),
        (lambda: Budget(0), "time=0: must be longer than 0"),
        (lambda: Confirm(gap=-1), "gap=-1: negative"),
        (lambda: Gate(after="x"), "after='x': cannot read 'x'"),
        (lambda: Gate(every=math.nan), "every=nan: not a number"),
        (lambda: Adaptive(0, 5), "minimum=0: must be longer than 0"),
        (lambda: Adaptive(5, 0), "maximum=0: must be longer than 0"),
        (lambda: Adaptive("5s", "1s"), "maximum='1s': shorter than minimum='5s'; write a maximum of at least"),
        (lambda: Snooze(-1), "delay=-1: negative"),
    ],
)
def test_a_bad_duration_is_refused_by_name(build: Callable[[], object], message: str) -> None:
    with pytest.raises(BadDuration) as caught:
        build()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Backoff("1s", factor=0.5), "factor=0.5: out of range; write 1 for even waits, 2 to double each"),
        (lambda: Backoff("1s", factor=math.inf), "factor=inf: out of range; write "),
        (lambda: Backoff("1s", factor=math.nan), "factor=nan: out of range; write "),
        (lambda: Backoff("1s", factor=10**400), "factor=1000"),
        (lambda: Backoff("1s", factor=10**5000), "factor=<int too long to print>: out of range; write "),
        (lambda: Backoff("1s", factor=True), "factor=True: not a number; write "),
        (lambda: Backoff("1s", factor="2"), "factor='2': not a number; write "),  # type: ignore[arg-type]
        (lambda: Backoff("1s", jitter=1.1), "jitter=1.1: out of range; write 0 for none, up to 1"),
        (lambda: Backoff("1s", jitter=-0.1), "jitter=-0.1: out of range; write "),
        (lambda: Backoff("1s", jitter=math.nan), "jitter=nan: out of range; write "),
        (lambda: Backoff("1s", steady=-1), "steady=-1: too small; write how many waits come before growth"),
        (lambda: Backoff("1s", steady=1.5), "steady=1.5: not a whole number; write "),  # type: ignore[arg-type]
        (lambda: Breaker(failures=0), "failures=0: too small; write "),
        (lambda: Breaker(failures=True), "failures=True: not a whole number; write "),
        (lambda: Budget("1m", looks=0), "looks=0: too small; write "),
        (lambda: Confirm(times=0), "times=0: too small; write "),
        (lambda: Adaptive(1, 2, faster=1.5), "faster=1.5: out of range; write "),
        (lambda: Adaptive(1, 2, slower=0.5), "slower=0.5: out of range; write "),
        (lambda: Adaptive(1, 2, patience=0), "patience=0: too small; write "),
    ],
)
def test_a_bad_figure_is_refused_by_name(build: Callable[[], object], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        build()
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 300


def test_the_bounds_themselves_are_accepted() -> None:
    assert Backoff("5s", factor=1, cap="5s", jitter=1, steady=0).wait_s(9) == 5
    assert Backoff("5s", jitter=0).jitter == 0
    assert Adaptive("5s", "5s", faster=1, slower=1, patience=1).next_base(5, 0, changed=False) == (5, 0)
    assert Snooze(0).delay_s == 0
