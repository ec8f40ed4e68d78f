"""Jitter displaces the final delay, by an injected generator, and never adds up."""

import math
from itertools import pairwise
from random import Random

from everpoll import Everpoll
from everpoll.testing import VirtualClock
from loops.stage import Stage


def gaps(rng: Random, jitter: float | None, count: int = 400) -> list[float]:
    clock = VirtualClock()
    app = Everpoll(clock=clock, rng=rng)
    at = [0.0]

    async def tick() -> None:
        at.append(clock.now())

    if jitter is None:
        app.loops.add(tick, 10)
    else:
        app.loops.add(tick, 10, jitter=jitter)

    async def scene() -> None:
        async with app:
            await clock.advance(10.0 * count)

    clock.run(scene())
    return [after - before for before, after in pairwise(at)]


def test_semantics_04_default_is_ten_percent_and_a_seed_replays_it() -> None:
    drawn = gaps(Random(1), None)
    assert drawn == gaps(Random(1), None)
    assert 9.0 <= min(drawn) < 9.1
    assert 10.9 < max(drawn) <= 11.0


def test_semantics_04_never_compounds() -> None:
    stage = Stage()
    stage.chance.value = 0.75
    runs = stage.runs(False, False)

    async def scene() -> None:
        loop = stage.add(runs, jitter=0.1)
        async with stage.app:
            await stage.clock.advance(400)
            assert loop.state.base_s == 30

    stage.play(scene)
    expected = [31.5, 31.5 + 63, 31.5 + 63 + 126, 31.5 + 63 + 126 + 31.5]
    assert all(math.isclose(*pair) for pair in zip(runs.at, expected, strict=False))


def test_edge_jitter_0_is_exact() -> None:
    assert set(gaps(Random(2), 0, 50)) == {10.0}


def test_edge_jitter_1_from_at_once_to_twice_the_interval() -> None:
    drawn = gaps(Random(3), 1)
    assert 0 <= min(drawn) < 0.5
    assert 19.5 < max(drawn) <= 20
    assert 9 < sum(drawn) / len(drawn) < 11
