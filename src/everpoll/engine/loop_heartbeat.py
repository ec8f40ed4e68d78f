"""The heartbeat under virtual time: it runs in the event loop, which has the virtual clock. A thread has real time.

Promises: the same as `heartbeat`, with one exception: a handler that blocks the event loop blocks the heartbeat, too.
Used only for stores with `beats_in_loop`, which serve tests under a virtual clock.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from everpoll.engine.beat_sender import BeatSender, Fences, HeartbeatTiming, Listeners, publish_nothing
from everpoll.stores.contract import HeartbeatConnection


class LoopHeartbeat:
    """Beats in the event loop, for one incarnation until it is stopped or declared dead."""

    def __init__(
        self,
        connect: Callable[[], HeartbeatConnection],
        incarnation: int,
        timing: HeartbeatTiming,
        running: Callable[[], tuple[Sequence[int], Fences]],
        listeners: Listeners,
        publish: Callable[[HeartbeatConnection], None] = publish_nothing,
    ) -> None:
        self._connect = connect
        self._listeners = listeners
        self.sender = BeatSender(incarnation, timing, running, asyncio.get_running_loop().time, listeners, publish)
        self._nudged = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to beat. The sign-on just before counts as an answered beat."""
        self._beating = asyncio.get_running_loop().create_task(self._beat(), name="everpoll-heartbeat")

    def beat_now(self) -> None:
        """Beat now: a task may have to be canceled."""
        self._nudged.set()

    async def stop(self) -> None:
        """Send no further beat."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        self.sender.end()

    async def _beat(self) -> None:
        while not self.sender.is_over:
            wait_s = self.sender.try_beat(self._connect)
            if self.sender.is_fenced and not self.sender.is_over:
                self._listeners.on_silence(self.sender.silence_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._nudged.wait()
            self._nudged.clear()
