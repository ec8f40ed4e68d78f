"""Whatever happens to loops at any moment, none runs twice at once and none leaves a timer behind (invariant 12).

Thousands of loops and random events in virtual time, from a seed. A failure prints the command that replays it.
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import everpoll.loops.loop as shell
from everpoll import Adaptive, Breaker, Everpoll, Failed, Loop, Ok, Outcome, Phase, Snooze, Stop
from everpoll.loops import Loops
from everpoll.loops.events import Effect, Event, Finished, Replace, Reset, Start, Tick
from everpoll.loops.options import LoopPolicy
from everpoll.loops.reducer import step
from everpoll.loops.run import Triggered
from everpoll.loops.state import Life, LoopState
from everpoll.testing import VirtualClock
from loops.stage import timers

REASONS = ("hidden", "operator")
FIXED_SEED = os.environ.get("EVERPOLL_SEED")
FEW = [int(FIXED_SEED)] if FIXED_SEED else list(range(1, 61))
MANY = [int(FIXED_SEED)] if FIXED_SEED else [1001]


class World:
    """An app, what is done to it, and everything that must never be seen."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = VirtualClock()
        self.app = Everpoll(clock=self.clock, rng=Random(seed + 1))
        self.under_way: Counter[str] = Counter()
        self.answers: list[Triggered] = []
        self.ending: set[asyncio.Task[None]] = set()
        self.wrong: list[str] = []
        self.registered = 0
        self.transitions = 0

    def must(self, fact: bool, what: str) -> None:
        if not fact:
            self.wrong.append(f"at {self.clock.now():g} s: {what}")

    # What is checked at every transition of every loop.

    def step(self, policy: LoopPolicy, before: LoopState, event: Event, now: float, chance: float) -> Any:
        after, effect = step(policy, before, event, now, chance)
        self.transitions += 1
        name = type(event).__name__
        if effect is Effect.RUN:
            ended = isinstance(event, Finished) and event.run == before.in_flight
            self.must(not before.in_flight or ended, f"{name} began a run beside run {before.in_flight}")
        armed = after.life is Life.LIVE and not after.held and not after.in_flight
        self.must((after.next_due is not None) == armed, f"{name}: {after.phase} with deadline {after.next_due}")
        self.must(after.failures == before.failures or self.may_count(before, event), f"{name} touched the failures")
        self.must(0 <= after.failures <= before.failures + 1, f"{name}: failures {before.failures} → {after.failures}")
        return after, effect

    def may_count(self, state: LoopState, event: Event) -> bool:
        match event:
            case Finished():
                ours = event.run == state.in_flight and event.generation == state.generation
                return ours and event.outcome.kind in ("ok", "failed")
            case Tick():
                return isinstance(event.condition, str)
            case Start() | Replace() | Reset():
                return True
        return False

    # What is checked between two events.

    def check(self) -> None:
        session = self.app.loops._session
        deadlines = None if session is None else session.deadlines
        entries = [] if deadlines is None else [entry for entry in deadlines._heap if entry[2].entry is entry]
        armed = {entry[2].name: entry[0] for entry in entries}
        self.must(len(armed) == len(entries), "a loop has two deadlines")
        self.must(deadlines is None or len(deadlines) == len(entries), "the heap is miscounted")
        self.must(timers() == bool(entries), f"{timers()} timers for {len(entries)} deadlines")
        due = {name: loop.state.next_due for name, loop in self.app.loops.items() if loop.state.next_due is not None}
        self.must(deadlines is None or armed == due, f"armed {armed.items() ^ due.items()}")
        for name, loop in self.app.loops.items():
            working = bool(loop._under_way())
            self.must(self.under_way[name] <= 1, f"{name} overlaps itself")
            self.must(working or not self.under_way[name], f"{name} runs unseen")
            if loop.state.life is Life.LIVE:
                self.must((loop.state.phase is Phase.RUNNING) == working, f"{name}: {loop.state.phase}, {working=}")

    # What loops do.

    def function(self, name: str) -> Any:
        draw = self.random

        async def run() -> object:
            self.under_way[name] += 1
            self.must(self.under_way[name] == 1, f"{name} overlaps itself")
            try:
                if draw.random() < 0.6:
                    await self.asleep(draw.choice((0.0, 0.01, 1.0, 9.0)), deaf=draw.random() < 0.05)
                return self.answer()
            finally:
                self.under_way[name] -= 1

        return run

    async def asleep(self, delay_s: float, *, deaf: bool) -> None:
        try:
            await asyncio.sleep(delay_s)
        except asyncio.CancelledError:
            if not deaf:
                raise
            await asyncio.sleep(delay_s)

    def answer(self) -> object:
        kind = self.random.randrange(20)
        if kind == 0:
            raise asyncio.CancelledError
        if kind in (1, 2):
            raise ValueError("drawn")
        answers: dict[int, object] = {
            3: False,
            4: Failed("busy", retry_after=self.random.choice((0, 3, 100))),
            5: Snooze(self.random.choice((0, 2, 40))),
            6: Stop("drawn"),
            7: Ok(self.random.randrange(2)),
            8: Ok(1),
        }
        return answers.get(kind)

    def options(self) -> dict[str, Any]:
        draw = self.random

        async def asked_slowly() -> bool:
            await asyncio.sleep(draw.choice((0, 0.5)))
            return draw.random() < 0.7

        def asked() -> bool:
            if draw.random() < 0.1:
                raise KeyError("drawn")
            return draw.random() < 0.7

        async def hook(_outcome: Outcome) -> None:
            await asyncio.sleep(draw.choice((0, 0.2)))
            if draw.random() < 0.1:
                raise ValueError("hook")

        return {
            "jitter": draw.choice((0, 0.1, 0.5)),
            "cap": draw.choice((1, 8, None)),
            "fixed_rate": draw.random() < 0.2,
            "first": draw.choice((None, None, 0)),
            "timeout": draw.choice((None, None, 0.5)),
            "when": draw.choice((None, None, asked, asked_slowly)),
            "when_hidden": draw.choice(("stop", "stop", 4)),
            "adaptive": draw.choice((None, None, Adaptive(0.5, 100))),
            "breaker": draw.choice((None, None, Breaker(2, "20s"))),
            "safety_every": draw.choice((None, 200)),
            "on_outcome": draw.choice((None, None, hook)),
        }

    # What is done to them.

    def register(self, name: str | None = None) -> None:
        if name is None:
            self.registered += 1
            name = f"loop-{self.registered}"
        every_s = self.random.choice((0.5, 2, 7, 30, 60))
        self.app.loops.replace(self.function(name), every_s, name=name, **self.options())

    def act(self, loop: Loop) -> None:
        acts: list[Callable[[Loop], object]] = [
            lambda _: self.register(),
            lambda loop: self.register(loop.name),
            self.trigger,
            self.trigger,
            self.pause_or_resume,
            self.pause_or_resume,
            lambda _: self.pause_or_resume(self.app.loops),
            Loop.reset,
            lambda loop: self.random.choice((loop.push_connected, loop.push_lost))(),
            lambda loop: loop._run is not None and loop._run.task is not None and loop._run.task.cancel(),
            self.close,
            self.everything_at_once,
        ]
        self.random.choice(acts)(loop)

    def trigger(self, loop: Loop) -> None:
        force = self.random.random() < 0.3
        self.answers += [loop.trigger(force=force) for _ in range(self.random.choice((1, 1, 5)))]

    def pause_or_resume(self, target: Loop | Loops) -> None:
        self.random.choice((target.pause, target.resume, target.resume))(self.random.choice(REASONS))

    def close(self, loop: Loop) -> None:
        ending = asyncio.ensure_future(loop.close(grace=self.random.choice((0, 5))))
        self.ending.add(ending)
        ending.add_done_callback(self.ending.discard)

    def everything_at_once(self, loop: Loop) -> None:
        self.answers.append(loop.trigger())
        loop.pause()
        self.register(loop.name)

    async def play(self, loops: int, events: int, check_every: int) -> None:
        for _ in range(loops):
            self.register()
        await self.app.loops.start()
        for number in range(events):
            if not self.app.loops:
                self.register()
            for _ in range(self.random.choice((1, 1, 3))):
                self.act(self.random.choice(list(self.app.loops.values())))
            if self.random.random() < 0.01:
                await self.app.loops.close(grace=self.random.choice((0, 3)))
                self.check()
                await self.app.loops.start()
            await self.clock.advance(self.random.choice((0, 0, 0.1, 0.7, 5.0)))
            if number % check_every == 0:
                self.check()
            if self.wrong:
                break
        await self.end()

    async def end(self) -> None:
        await self.app.loops.close(grace=1)
        self.must(timers() == 0, "a timer is left behind")
        await self.clock.advance(60)
        self.must(timers() == 0, "a timer came back")
        self.must(all(answer.done() for answer in self.answers), "a trigger was never answered")
        self.must(asyncio.all_tasks() == {asyncio.current_task()}, f"left behind: {asyncio.all_tasks()}")
        self.must(not +self.under_way, f"still under way: {+self.under_way}")


def simulate(
    test: str, seed: int, monkeypatch: pytest.MonkeyPatch, *, loops: int, events: int, check_every: int
) -> None:
    logging.getLogger("everpoll.loops").setLevel(logging.CRITICAL)
    world = World(seed)
    monkeypatch.setattr(shell, "step", world.step)
    replay = f"replay: EVERPOLL_SEED={seed} .venv/bin/python -m pytest tests/loops/test_simulation.py -k {test}"
    try:
        world.clock.run(world.play(loops, events, check_every))
    except BaseException as error:
        error.add_note("\n".join([replay, *world.wrong[:5]]))
        raise
    finally:
        logging.getLogger("everpoll.loops").setLevel(logging.NOTSET)
    assert not world.wrong, "\n".join([replay, *world.wrong[:5]])
    assert world.transitions > events


@pytest.mark.parametrize("seed", FEW)
def test_a_few_loops_and_everything_at_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate("few", seed, monkeypatch, loops=6, events=400, check_every=1)


@pytest.mark.parametrize("seed", MANY)
def test_thousands_of_loops(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate("thousands", seed, monkeypatch, loops=3000, events=400, check_every=40)
