"""All loops of one app: names, the shared timer, threads, and starting and ending together.

Promises: `close` is idempotent and ends within its grace period plus CANCEL_S; what still runs then is named in the
log. A closed registry can be started again. Never: decides anything about a single loop.
"""

import asyncio
import inspect
import random
import time
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, Unpack, cast

from everpoll.engine.threads import DaemonThreads
from everpoll.errors import BadInput, EverpollWarning, LoopNotFound, NotRunning
from everpoll.loops.deadlines import Deadlines
from everpoll.loops.loop import Loop
from everpoll.loops.narration import logger
from everpoll.loops.options import LoopOptions, LoopPolicy, loop_policy, pause_reason
from everpoll.loops.reducer import stale_once_resumed
from everpoll.loops.state import Life
from everpoll.policy import NOT_PAUSED, Duration, PauseReason, Rng, paused, resume_order, resumed, seconds

# How long a canceled run may take to clean up before it is left behind.
CANCEL_S = 1.0
SHARED_POLICIES = 1000
LOOKING = "everpoll.looking"


class Loops(Mapping[str, Loop]):
    """The loops of one app, by name: `app.loops["prices"].trigger()`."""

    def __init__(self, rng: Rng | None = None, wall: Callable[[], float] = time.time) -> None:
        self._loops: dict[str, Loop] = {}
        self._policies: dict[LoopPolicy, LoopPolicy] = {}
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._deadlines: Deadlines[Loop] | None = None
        self._threads: DaemonThreads | None = None
        # Kept beyond the end, so that instants of the past can still be shown by the wall clock.
        self._timekeeper: asyncio.AbstractEventLoop | None = None
        # Reasons that hold for all, and so for whoever is registered later.
        self._pauses = NOT_PAUSED
        self._chance = (random.Random() if rng is None else rng).random  # noqa: S311 - jitter is no secret
        self._wall = wall

    def __getitem__(self, name: str) -> Loop:
        try:
            return self._loops[name]
        except KeyError:
            known = ", ".join(sorted(self._loops)[:10]) or "none"
            raise LoopNotFound(f"no loop is called {name!r}; registered: {known}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._loops

    def get(self, name: str, default: Any = None) -> Any:
        """The loop of that name, or the default. `Mapping` would let LoopNotFound through, which is no KeyError."""
        return self._loops.get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._loops)

    def __len__(self) -> int:
        return len(self._loops)

    def add(self, function: Callable[[], Any], every: Duration, **options: Unpack[LoopOptions]) -> Loop:
        """Register a function. A name that is taken is replaced (E1), with a warning: often it is a mistake."""
        name = _name_of(function, options)
        if name in self._loops:
            warnings.warn(
                f"loop {name!r} is registered already and is replaced now; call loops.replace(…) if you mean it, "
                "or give one of the two another name=",
                EverpollWarning,
                stacklevel=3,
            )
        return self.replace(function, every, **options)

    def replace(self, function: Callable[[], Any], every: Duration, **options: Unpack[LoopOptions]) -> Loop:
        """Register a function in the place of any of that name; a run under way ends first, its result is dropped."""
        name = _name_of(function, options)
        _check_function(name, function)
        when, hook = options.get("when"), options.get("on_outcome")
        for option, value in (("when", when), ("on_outcome", hook)):
            if value is not None and not callable(value):
                raise BadInput(f"loop {name!r}: {option}={value!r}: give it a function")
        policy = loop_policy(name, every, options)
        policy = self._shared(policy)
        loop = self._loops.get(name)
        if loop is None:
            loop = self._loops[name] = Loop(self, name, function, policy)
            for reason in self._pauses:
                loop.pause(reason)
        loop._take_over(function, policy, when, hook)
        if self._event_loop is not None:
            loop._start()
        return loop

    async def remove(self, name: str, grace: Duration = 0) -> None:
        """Close one loop and forget its name."""
        loop = self[name]
        grace_s = seconds(grace, name="grace")
        generation = loop.state.generation
        loop.pause(PauseReason.SHUTDOWN)
        try:
            await _ended_within(loop._under_way(), grace_s)
        finally:
            try:
                # Registered again meanwhile: then the name is wanted, and only what it was before is gone.
                if loop.state.generation == generation:
                    loop._end()
                    await self._settled([loop])
            finally:
                loop.resume(PauseReason.SHUTDOWN)
                self._forget(loop, generation)
                for work in loop._under_way():
                    work.add_done_callback(lambda _: self._forget(loop, generation))

    def _forget(self, loop: Loop, generation: int) -> None:
        """Give a name free, but not before its last run is over: a new loop of that name must not overlap it."""
        at_rest = loop.state.generation == generation and not loop._under_way()
        if at_rest and self._loops.get(loop.name) is loop:
            del self._loops[loop.name]

    def pause(self, reason: PauseReason | str = PauseReason.OPERATOR) -> None:
        """Pause every loop for this reason, those registered later included."""
        reason = pause_reason(reason)
        self._pauses = paused(self._pauses, reason)
        for loop in self._loops.values():
            loop.pause(reason)

    def resume(self, reason: PauseReason | str = PauseReason.OPERATOR) -> None:
        """Take this reason away from every loop. The stale ones run 150 ms apart, shortest interval first."""
        reason = pause_reason(reason)
        self._pauses = resumed(self._pauses, reason)
        now = self.now()
        stale = [
            (loop.state.base_s * loop.state.multiplier, loop)
            for loop in self._loops.values()
            if stale_once_resumed(loop.policy, loop.state, reason, now)
        ]
        for position, loop in enumerate(resume_order(stale)):
            loop._resume_at(position, reason)
        for loop in self._loops.values():
            loop.resume(reason)

    def pause_unless(self, looking: Callable[[], bool | Awaitable[bool]], every: Duration = "1s") -> Loop:
        """Ask regularly whether anyone is looking; while nobody is, every loop is paused as `hidden` (E4)."""

        async def ask() -> None:
            answer = looking()
            hidden = not (await answer if inspect.isawaitable(answer) else answer)
            # Only a change is passed on: telling 100,000 loops what they know costs a tenth of a second.
            if hidden != (PauseReason.HIDDEN in self._pauses):
                (self.pause if hidden else self.resume)(PauseReason.HIDDEN)

        # A slowdown of 1: this one loop goes on while the others are hidden.
        return self.replace(ask, every, name=LOOKING, when_hidden=1, jitter=0, first=0)

    async def start(self) -> None:
        """Schedule every loop on the running event loop."""
        event_loop = asyncio.get_running_loop()
        if self._event_loop is event_loop:
            return
        if self._event_loop is not None and not self._event_loop.is_closed():
            raise NotRunning("these loops run on another event loop already: close them there first")
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        self._event_loop = event_loop
        self._timekeeper = event_loop
        self._deadlines = Deadlines(event_loop, Loop._due)
        self._threads = DaemonThreads(name="everpoll-loop")
        for loop in self._loops.values():
            loop._forget_run(event_loop)
            loop._start()

    async def close(self, grace: Duration = "10s") -> None:
        """End every loop: no new runs, the grace period for those under way, then they are canceled."""
        grace_s = seconds(grace, name="grace")
        if self._event_loop is None:
            return
        self.pause(PauseReason.SHUTDOWN)
        try:
            await _ended_within(self._under_way(), grace_s)
        finally:
            await self._end()

    def now(self) -> float:
        """The clock that decides: monotonic, of the event loop."""
        return 0.0 if self._timekeeper is None else self._timekeeper.time()

    def _event_loop_for(self, purpose: str) -> asyncio.AbstractEventLoop:
        """The event loop that runs the loops."""
        if self._event_loop is None:
            raise NotRunning(f"cannot {purpose}: the app has not started; use `async with app:` or `await app.run()`")
        return self._event_loop

    def _set_deadline(self, loop: Loop, due: float | None) -> None:
        """One deadline per loop: this one, from now on."""
        if self._deadlines is not None:
            self._deadlines.set(loop, due)

    def _spawn(self, run: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Start a run."""
        return self._event_loop_for(f"run loop {name!r}").create_task(run, name=name)

    def _in_thread(self, function: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        """Call a plain function without blocking the event loop."""
        return self._event_loop_for("call a function").run_in_executor(self._threads, function, *args)

    def _under_way(self) -> "list[asyncio.Future[Any]]":
        return [work for loop in self._loops.values() for work in loop._under_way()]

    def _shared(self, policy: LoopPolicy) -> LoopPolicy:
        """Loops that are alike share one policy: 100,000 of them cost one."""
        if len(self._policies) >= SHARED_POLICIES:
            self._policies.clear()
        return self._policies.setdefault(policy, policy)

    async def _end(self) -> None:
        for loop in self._loops.values():
            loop._end()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        try:
            await self._settled(list(self._loops.values()))
        finally:
            for loop in self._loops.values():
                if loop.state.life is not Life.CLOSED:
                    loop._end()  # Registered while the others ended.
            if self._deadlines is not None:
                self._deadlines.close()
            self._event_loop = self._deadlines = self._threads = None
            self.resume(PauseReason.SHUTDOWN)

    async def _settled(self, loops: list[Loop]) -> None:
        await _ended_within([work for loop in loops for work in loop._under_way()], CANCEL_S)
        for loop in loops:
            if loop._under_way():
                logger.error("loop %r does not end: it was canceled and is left behind", loop.name)


async def _ended_within(work: "list[asyncio.Future[Any]]", timeout_s: float) -> None:
    if work and timeout_s > 0:
        await asyncio.wait(work, timeout=timeout_s)


def _name_of(function: object, options: LoopOptions) -> str:
    if "name" in options:
        name: object = options["name"]
        if isinstance(name, str) and name:
            return name
        raise BadInput(f"name={name!r}: the name of a loop is a text of at least one character")
    return str(getattr(function, "__name__", ""))


def _check_function(name: str, function: object) -> None:
    if not callable(function):
        raise BadInput(f"loop {name!r}: function={function!r}: give it a function")
    if not name:
        raise BadInput(f"{function!r} has no name: pass name=… to register it as a loop")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise BadInput(f"loop {name!r}: a generator cannot be a loop; return instead of yield")
    try:
        inspect.signature(cast("Callable[..., Any]", function)).bind()
    except TypeError as error:
        raise BadInput(f"loop {name!r}: it is called without arguments, but: {error}; use functools.partial") from None
    except ValueError:
        return  # some builtins have no signature: calling will tell
