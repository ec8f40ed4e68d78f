"""Every bad option is refused when the loop is registered, in a message that names the loop and says what to write."""

import functools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from everpoll import Adaptive, BadDuration, BadInput, Everpoll, EverpollWarning, LoopNotFound
from loops.stage import Stage


async def look() -> None:
    """Nothing to see."""


@pytest.mark.parametrize(
    "every", [0, -1, "0s", "-5s", 0.0, float("nan"), float("inf"), "30 parsecs", "30", "", None, True]
)
def test_edge_interval_0_or_negative_or_no_duration(every: Any) -> None:
    with pytest.raises(BadDuration, match=r"loop 'prices': every=.*write"):
        Everpoll().loops.add(look, every, name="prices")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cap": 0.5}, "cap=0.5"),
        ({"cap": "8"}, "cap='8'"),
        ({"cap": float("nan")}, "cap=nan"),
        ({"cap": "10s"}, "cap='10s' is shorter than every=30s"),
        ({"cap": "5m", "adaptive": Adaptive("10s", "60s")}, "cap='5m': its interval adapts; write a multiple of it"),
        ({"jitter": -0.1}, "jitter=-0.1"),
        ({"jitter": 1.1}, "jitter=1.1"),
        ({"jitter": None}, "jitter=None"),
        ({"first": -1}, "first=-1"),
        ({"timeout": 0}, "timeout=0"),
        ({"timeout": "soon"}, "timeout='soon'"),
        ({"safety_every": 0}, "safety_every=0"),
        ({"when_hidden": "slow"}, "when_hidden='slow'"),
        ({"when_hidden": 0.5}, "when_hidden=0.5"),
        ({"fixed_rate": "no"}, "fixed_rate='no'"),
        ({"adaptive": True}, "adaptive=True"),
        ({"breaker": 3}, "breaker=3"),
        ({"when": True}, "when=True"),
        ({"on_outcome": "log"}, "on_outcome='log'"),
        ({"jiter": 0.2}, "'jiter'"),
    ],
)
def test_a_bad_option_names_the_loop(options: dict[str, Any], said: str) -> None:
    app = Everpoll()
    with pytest.raises(BadInput, match="loop 'prices': ") as refused:
        app.loops.add(look, 30, name="prices", **options)
    assert said in str(refused.value)
    assert len(app.loops) == 0


@pytest.mark.parametrize("function", [None, 5, "look", look.__name__])
def test_what_cannot_be_called(function: Any) -> None:
    with pytest.raises(BadInput, match=r"loop 'prices': .*give it a function"):
        Everpoll().loops.add(function, 30, name="prices")


def test_what_needs_arguments() -> None:
    def fetch(url: str) -> None:
        raise AssertionError(url)

    with pytest.raises(BadInput, match=r"loop 'fetch': .*'url'.*functools.partial"):
        Everpoll().loop("30s")(fetch)  # type: ignore[type-var]


def test_generators_are_no_loops() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    with pytest.raises(BadInput, match=r"loop 'numbers': .*generator"):
        Everpoll().loops.add(numbers, 30)


def test_a_function_without_a_name_needs_one() -> None:
    app = Everpoll()
    with pytest.raises(BadInput, match="pass name="):
        app.loops.add(functools.partial(look), 30)
    with pytest.raises(BadInput, match="at least one character"):
        app.loops.add(look, 30, name="")
    assert app.loops.add(functools.partial(look), 30, name="named").name == "named"


def test_a_taken_name_warns_where_the_decorator_stands() -> None:
    app = Everpoll()
    app.loop("30s", name="prices")(look)
    with pytest.warns(EverpollWarning, match=r"'prices' is registered already.*replace") as told:
        app.loop("10s", name="prices")(look)
    assert told[0].filename == __file__
    assert app.loops["prices"].policy.every_s == 10


def test_a_bad_replacement_leaves_the_loop_as_it_was() -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        loop = stage.add(runs)
        async with stage.app:
            with pytest.raises(BadInput):
                stage.add(runs, 0)
            assert (loop.policy.every_s, loop.state.next_due) == (30, 30.0)
            await stage.clock.advance(31)

    stage.play(scene)
    assert runs.at == [30]


def test_an_unknown_name_is_told_which_there_are() -> None:
    app = Everpoll()
    app.loops.add(look, 30, name="prices")
    with pytest.raises(LoopNotFound, match="'stock'; registered: prices"):
        app.loops["stock"]


def test_the_decorator_gives_the_function_back() -> None:
    assert Everpoll().loop("30s")(look) is look


@pytest.mark.parametrize("every", [1e-320, 1e-9, 0.000_999, "0.5ms"])
def test_an_interval_below_a_millisecond_is_refused(every: Any) -> None:
    with pytest.raises(BadInput, match=r"loop 'prices': every=.*1ms or more"):
        Everpoll().loops.add(look, every, name="prices", fixed_rate=True)


def test_an_interval_of_a_millisecond_is_fine() -> None:
    assert Everpoll().loops.add(look, "1ms", name="prices").policy.every_s == 0.001


@pytest.mark.parametrize("when_hidden", [1e308, 1e7, float("inf"), float("nan")])
def test_a_slowdown_beyond_a_million_is_refused(when_hidden: float) -> None:
    with pytest.raises(BadInput, match=r"loop 'prices': when_hidden="):
        Everpoll().loops.add(look, 30, name="prices", when_hidden=when_hidden)


def test_the_longest_interval_slowed_down_the_most_can_still_be_shown() -> None:
    stage = Stage()

    async def scene() -> None:
        loop = stage.add(stage.runs(), "3650d", when_hidden=1e6)
        async with stage.app:
            loop.pause("hidden")
            assert loop.next_due_at == datetime.max.replace(tzinfo=UTC)
            loop.resume("hidden")
            assert loop.next_due_at == datetime(2030, 1, 1, tzinfo=UTC) + timedelta(days=3650)

    stage.play(scene)


@pytest.mark.parametrize("every", ["1s", "10m"])
def test_an_interval_outside_the_bounds_of_adaptive_is_refused(every: str) -> None:
    with pytest.raises(BadInput, match=r"loop 'prices': every=.* is outside Adaptive\('5s', '5m'"):
        Everpoll().loops.add(look, every, name="prices", adaptive=Adaptive("5s", "5m"))


@pytest.mark.parametrize("every", ["5s", "5m"])
def test_an_interval_at_a_bound_of_adaptive_is_fine(every: str) -> None:
    assert Everpoll().loops.add(look, every, name="prices", adaptive=Adaptive("5s", "5m")).policy.adaptive


def test_a_safety_net_that_is_tighter_than_the_polling_is_refused() -> None:
    with pytest.raises(BadInput, match=r"loop 'prices': safety_every=10s is shorter than every=30s"):
        Everpoll().loops.add(look, "30s", name="prices", safety_every="10s")


class Unprintable(float):
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class UnprintableThing:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def test_a_value_that_cannot_be_printed_is_refused_like_any_other() -> None:
    loops: Any = Everpoll().loops
    thing = UnprintableThing()
    with pytest.raises(BadDuration, match="loop 'prices': every="):
        loops.add(look, Unprintable("nan"), name="prices")
    with pytest.raises(BadInput, match="loop 'prices': every="):
        loops.add(look, Unprintable(1e-9), name="prices")
    for option in ("cap", "jitter", "when_hidden", "adaptive", "breaker", "when", "on_outcome", "fixed_rate"):
        with pytest.raises(BadInput, match=f"loop 'prices': {option}="):
            loops.add(look, 30, name="prices", **{option: thing})
    with pytest.raises(BadInput, match="loop 'prices': function="):
        loops.add(thing, 30, name="prices")
    with pytest.raises(BadInput, match="name="):
        loops.add(look, 30, name=thing)
    with pytest.raises(BadInput, match="pause_unless"):
        loops.pause_unless(thing)
