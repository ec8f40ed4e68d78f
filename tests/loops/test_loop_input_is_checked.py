"""Every bad option is refused when the loop is registered, in a message that names the loop and says what to write."""

import functools
from collections.abc import Iterator
from typing import Any

import pytest
from stage import Stage

from everpoll import BadDuration, BadInput, Everpoll, EverpollWarning, LoopNotFound


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
