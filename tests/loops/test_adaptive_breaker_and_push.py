"""The interval follows changes, a breaker rests what keeps failing, and polling is the safety net beneath push."""

from everpoll import Adaptive, Breaker, Failed, Ok, Phase
from loops.stage import Stage


def test_semantics_09_changes_make_the_base_shorter_and_unchanged_looks_longer() -> None:
    stage = Stage()
    runs = stage.runs(*[Ok(value) for value in (1, 2, 3, 3, 3, 3)])

    async def scene() -> None:
        loop = stage.add(runs, 40, adaptive=Adaptive("15s", "60s", patience=3))
        bases = []
        async with stage.app:
            for _ in range(6):
                await loop.trigger()
                bases.append(loop.state.base_s)
        assert bases == [40, 20, 15, 15, 15, 22.5]

    stage.play(scene)


def test_semantics_09_failures_never_move_the_base() -> None:
    stage = Stage()

    async def scene() -> None:
        loop = stage.add(stage.runs(Ok(1), False, ValueError(), Ok(2)), 40, adaptive=Adaptive("5s", "60s"))
        async with stage.app:
            for base in (40, 40, 40, 20):
                await loop.trigger()
                assert loop.state.base_s == base

    stage.play(scene)


def test_semantics_09_values_that_cannot_be_compared_count_as_changed() -> None:
    class Odd:
        def __ne__(self, other: object) -> bool:
            raise TypeError("cannot compare")

        __hash__ = None  # type: ignore[assignment]

    stage = Stage()

    async def scene() -> None:
        loop = stage.add(stage.runs(Ok(Odd()), Ok(Odd())), 40, adaptive=Adaptive("5s", "60s"))
        async with stage.app:
            await loop.trigger()
            await loop.trigger()
            assert loop.state.base_s == 20

    stage.play(scene)


def test_semantics_10_opens_on_the_nth_failure_and_sends_one_probe() -> None:
    stage = Stage()
    runs = stage.runs(*[False] * 4)

    async def scene() -> None:
        loop = stage.add(runs, 10, breaker=Breaker(3, "5m"))
        async with stage.app:
            await stage.clock.advance(70)
            assert (loop.state.phase, loop.state.next_due) == (Phase.OPEN, 370.0)
            await stage.clock.advance(300)
            assert (loop.state.phase, loop.state.next_due) == (Phase.OPEN, 670.0)
            await stage.clock.advance(310)
            assert loop.state.phase is Phase.WAITING

    stage.play(scene)
    assert runs.at == [10, 30, 70, 370, 670, 680]


def test_semantics_10_a_probe_that_is_longer_than_the_cooldown_re_opens_with_a_fresh_one() -> None:
    stage = Stage()
    runs = stage.runs(False, False, takes_s=50)

    async def scene() -> None:
        loop = stage.add(runs, 10, breaker=Breaker(1, "20s"))
        async with stage.app:
            await stage.clock.advance(131)
            assert (loop.state.phase, loop.state.next_due) == (Phase.OPEN, 150.0)

    stage.play(scene)
    assert runs.at == [10, 80]


def test_push_with_polling_as_the_fallback() -> None:
    stage = Stage()
    runs = stage.runs()

    async def scene() -> None:
        loop = stage.add(runs, 10, safety_every="1m")
        async with stage.app:
            await stage.clock.advance(5)
            loop.push_connected()
            await stage.clock.advance(120)
            assert runs.at == [5, 65, 125]
            await loop.trigger()
            await stage.clock.advance(5)
            loop.push_lost()
            await stage.clock.advance(15)

    stage.play(scene)
    assert runs.at == [5, 65, 125, 125, 135, 145]


def test_push_never_undercuts_a_retry_after() -> None:
    stage = Stage()
    runs = stage.runs(Failed("429", retry_after="10m"))

    async def scene() -> None:
        loop = stage.add(runs, 10, safety_every="1m")
        async with stage.app:
            await stage.clock.advance(10)
            for _ in range(5):
                loop.push_connected()
                await stage.clock.advance(10)
                loop.push_lost()
                await stage.clock.advance(10)
            await stage.clock.advance(495)
            assert runs.at == [10]
            await stage.clock.advance(5)

    stage.play(scene)
    assert runs.at == [10, 610]


def test_circuit_breaker_jitter_and_adaptive_interval_together() -> None:
    stage = Stage()
    stage.chance.value = 0.75
    runs = stage.runs(Ok(1), Ok(2), False, False)

    async def scene() -> None:
        loop = stage.add(runs, 40, jitter=0.1, adaptive=Adaptive("5s", "60s"), breaker=Breaker(2, "100s"))
        async with stage.app:
            await loop.trigger()
            assert loop.state.next_due == 42.0
            await loop.trigger()
            assert loop.state.next_due == 21.0
            await loop.trigger()
            assert loop.state.next_due == 42.0
            await loop.trigger()
            assert (loop.state.phase, loop.state.next_due) == (Phase.OPEN, 107.5)

    stage.play(scene)
