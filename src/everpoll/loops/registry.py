"""Loops: all loops of one app by name; starts, pauses and closes them together.

Promises: `close` is idempotent and ends within its grace period plus CANCEL_S; the log names loops that still run then.
A closed registry can be started again. Decisions about a single loop are never made here.
"""

import asyncio
import inspect
import random
import time
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Unpack

from everpoll.engine.threads import DaemonThreads
from everpoll.errors import BadInput, EverpollWarning, LoopNotFound, NotRunning
from everpoll.loops.card import card_of
from everpoll.loops.change_log import logger
from everpoll.loops.deadlines import Deadlines
from everpoll.loops.loop import Loop
from everpoll.loops.options import LoopOptions, LoopPolicy, loop_policy, users_reason
from everpoll.loops.reducer import stale_once_resumed
from everpoll.loops.registration import Registration, check_function, is_async, name_of
from everpoll.loops.session import Session
from everpoll.loops.state import Life
from everpoll.policy import NOT_PAUSED, Duration, PauseReason, Rng, paused, resume_order, resumed, seconds, shown
from everpoll.stores.figures import LoopCard

# How long `close` waits for canceled runs; after that, it stops waiting for them.
CANCEL_S = 1.0
SHARED_POLICIES = 1000
LOOKING = "everpoll.looking"


class Loops(Mapping[str, Loop]):
    """The loops of one app, by name: `app.loops["prices"].trigger()`."""

    def __init__(self, rng: Rng | None = None, wall: Callable[[], float] = time.time) -> None:
        self._loops: dict[str, Loop] = {}
        self._policies: dict[LoopPolicy, LoopPolicy] = {}
        self._session: Session | None = None
        # Removed loops with a run that has not ended: their names are released when it has.
        self._removed: set[Loop] = set()
        # Kept after closing, so that past instants can still be shown by the wall clock.
        self._timekeeper: asyncio.AbstractEventLoop | None = None
        # Reasons that pause every loop, including loops registered later.
        self._pauses = NOT_PAUSED
        self._chance = (random.Random() if rng is None else rng).random  # noqa: S311 - jitter needs no secure randomness
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
        """Return the loop of that name, or the default. `Mapping.get` only catches KeyError, not LoopNotFound."""
        return self._loops.get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._loops)

    def __len__(self) -> int:
        return len(self._loops)

    def cards(self) -> list[LoopCard]:
        """Return the card of each loop. May be called from any thread."""
        return [card_of(loop) for loop in list(self._loops.values())]

    def add(self, function: Callable[[], Any], every: Duration, **options: Unpack[LoopOptions]) -> Loop:
        """Register a function. If the name is taken, replace that loop and warn: it is often a mistake."""
        name = name_of(function, options)
        if name in self._loops:
            warnings.warn(
                f"loop {name!r} is registered already and is replaced now; call loops.replace(…) if you mean it, "
                "or give one of the two another name=",
                EverpollWarning,
                stacklevel=3,
            )
        return self.replace(function, every, **options)

    def replace(self, function: Callable[[], Any], every: Duration, **options: Unpack[LoopOptions]) -> Loop:
        """Register a function and replace any loop of that name; a run under way ends first, its result is dropped."""
        name = name_of(function, options)
        check_function(name, function)
        when, hook = options.get("when"), options.get("on_outcome")
        for option, value in (("when", when), ("on_outcome", hook)):
            if value is not None and not callable(value):
                raise BadInput(f"loop {name!r}: {option}={shown(value)}: give it a function")
        policy = loop_policy(name, every, options)
        policy = self._shared(policy)
        registration = Registration(function, policy, when, hook)
        loop = self._loops.get(name)
        if loop is None:
            loop = self._loops[name] = Loop(self, name, registration)
            for reason in self._pauses:
                loop._pause(reason)
        self._removed.discard(loop)
        loop._take_over(registration)
        if self._live() is not None:
            loop._start()
        return loop

    async def remove(self, name: str, grace: Duration = 0) -> None:
        """Close one loop and forget its name."""
        loop = self[name]
        grace_s = seconds(grace, name="grace")
        generation = loop.state.generation
        self._removed.add(loop)
        loop._pause(PauseReason.SHUTDOWN)
        try:
            await _ended_within(_under_way([loop]), grace_s)
        finally:
            try:
                # If the name was registered again meanwhile, the new loop stays.
                if loop.state.generation == generation:
                    loop._end()
                    await self._settled([loop])
            finally:
                if PauseReason.SHUTDOWN not in self._pauses:
                    loop._resume(PauseReason.SHUTDOWN)
                self._forget(loop)
                if name == LOOKING:
                    self.resume(PauseReason.HIDDEN)

    def _forget(self, loop: Loop) -> None:
        """Release a name once its last run is over: a new loop of that name must not overlap it."""
        if loop in self._removed and loop._is_over():
            self._removed.discard(loop)
            if self._loops.get(loop.name) is loop:
                del self._loops[loop.name]

    def pause(self, reason: PauseReason | str = PauseReason.OPERATOR) -> None:
        """Pause every loop for this reason, including loops registered later."""
        self._pause(users_reason(reason))

    def _pause(self, reason: PauseReason) -> None:
        self._pauses = paused(self._pauses, reason)
        for loop in self._loops.values():
            loop._pause(reason)

    def resume(self, reason: PauseReason | str = PauseReason.OPERATOR) -> None:
        """Remove this reason from every loop. Overdue loops run 150 ms apart, shortest interval first."""
        self._resume(users_reason(reason))

    def _resume(self, reason: PauseReason) -> None:
        self._pauses = resumed(self._pauses, reason)
        now = self.now()
        stale = [
            (loop.state.base_s * loop.state.multiplier, loop)
            for loop in self._loops.values()
            if stale_once_resumed(loop.policy, loop.state, reason, now)
        ]
        for position, loop in enumerate(resume_order(stale)):
            loop._resume(reason, position)
        for loop in self._loops.values():
            loop._resume(reason)

    def pause_unless(self, looking: Callable[[], bool | Awaitable[bool]], every: Duration = "1s") -> Loop:
        """Call `looking` regularly; while it returns False, every loop is paused for the reason `hidden`."""
        if not callable(looking):
            raise BadInput(f"pause_unless({shown(looking)}): give it a function that says whether a viewer is present")

        async def ask() -> None:
            try:
                answer = await self._running().in_thread(looking)[1] if not is_async(looking) else looking()
                hidden = not (await answer if inspect.isawaitable(answer) else answer)
            except Exception:
                # The answer is unknown: let the loops run. The failure of this loop shows the error.
                self.resume(PauseReason.HIDDEN)
                raise
            # Act only on a change: pausing 100,000 loops again costs a tenth of a second.
            if hidden != (PauseReason.HIDDEN in self._pauses):
                (self.pause if hidden else self.resume)(PauseReason.HIDDEN)

        # when_hidden=1: this loop goes on while the others are hidden.
        return self.replace(ask, every, name=LOOKING, when_hidden=1, jitter=0, first=0)

    async def start(self) -> None:
        """Schedule every loop on the running event loop."""
        event_loop = asyncio.get_running_loop()
        while (session := self._live()) is not None and session.event_loop is event_loop and session.is_closing:
            await session.over.wait()
        if session is not None:
            if session.event_loop is event_loop:
                return
            raise NotRunning("these loops run on another event loop already: close them there first")
        if self._session is not None:
            self._session.threads.shutdown(wait=False, cancel_futures=True)
        self._timekeeper = event_loop
        threads = DaemonThreads(name="everpoll-loop", now=event_loop.time)
        self._session = Session(event_loop, Deadlines(event_loop, Loop._due), threads)
        for loop in list(self._loops.values()):
            loop._forget_run(event_loop)
            if loop in self._removed:
                self._forget(loop)
            else:
                loop._start()

    async def close(self, grace: Duration = "10s") -> None:
        """Close every loop: start no new runs, wait for runs under way for the grace period, then cancel them."""
        grace_s = seconds(grace, name="grace")
        session = self._live()
        if session is None:
            return
        session.is_closing = True
        self._pause(PauseReason.SHUTDOWN)
        try:
            await _ended_within(_under_way(self._loops.values()), grace_s)
        finally:
            # Another close may have finished first and the loops may have started again: leave that session alone.
            if self._session is session:
                await self._end(session)

    def now(self) -> float:
        """Return the time that decisions use: the monotonic clock of the event loop."""
        return 0.0 if self._timekeeper is None else self._timekeeper.time()

    def _live(self) -> Session | None:
        """Return the session, or None if its event loop was closed without closing it."""
        session = self._session
        return None if session is None or session.event_loop.is_closed() else session

    def _event_loop_for(self, purpose: str) -> asyncio.AbstractEventLoop:
        session = self._live()
        if session is None:
            raise NotRunning(f"cannot {purpose}: the app is not running; use `async with app:` or `await app.run()`")
        return session.event_loop

    def _set_deadline(self, loop: Loop, due: float | None) -> None:
        """Set the one deadline of a loop."""
        session = self._live()
        if session is not None:
            session.deadlines.set(loop, due)

    def _running(self) -> Session:
        """Return the session of a loop that runs."""
        session = self._live()
        assert session is not None, "only a live loop runs"
        return session

    @property
    def threads(self) -> DaemonThreads | None:
        """The threads of plain loops, while the loops run."""
        session = self._live()
        return None if session is None else session.threads

    def _soon(self, callback: Callable[..., None], *args: Any) -> None:
        """Call back on the event loop, from any thread; without an event loop, call at once."""
        session = self._live()
        try:
            if session is not None:
                session.event_loop.call_soon_threadsafe(callback, *args)
                return
        except RuntimeError:
            pass  # The event loop was closed in between.
        callback(*args)

    def _shared(self, policy: LoopPolicy) -> LoopPolicy:
        """Return one shared object for equal policies, to save memory for 100,000 loops."""
        if len(self._policies) >= SHARED_POLICIES:
            self._policies.clear()
        return self._policies.setdefault(policy, policy)

    async def _end(self, session: Session) -> None:
        for loop in self._loops.values():
            loop._end()
        session.threads.shutdown(wait=False, cancel_futures=True)
        try:
            await self._settled(list(self._loops.values()))
        finally:
            if self._session is session:
                for loop in self._loops.values():
                    if loop.state.life is not Life.CLOSED:
                        loop._end()  # It was registered while the others ended.
                session.end()
                self._session = None
                self._resume(PauseReason.SHUTDOWN)
                session.over.set()

    async def _settled(self, loops: list[Loop]) -> None:
        await _ended_within(_under_way(loops), CANCEL_S)
        for loop in loops:
            if _under_way([loop]):
                logger.error("loop %r does not end after it was canceled; its run goes on in the background", loop.name)


def _under_way(loops: Iterable[Loop]) -> "list[asyncio.Future[Any]]":
    own = asyncio.current_task()  # A loop that closes itself, or its app, does not wait for itself.
    return [work for loop in loops for work in loop._under_way() if work is not own]


async def _ended_within(work: "list[asyncio.Future[Any]]", timeout_s: float) -> None:
    if work and timeout_s > 0:
        await asyncio.wait(work, timeout=timeout_s)
