"""The heartbeat: one row write per beat, from its own thread and connection.

Promises: a handler that blocks the event loop does not cost the worker its lease. A worker that could not beat for two
thirds of its lease is notified (`on_silence`), while there still is time to cancel its handlers, and again with each
beat that is due until one is answered. Both hold for a beat that fails and for one that hangs: the thread beats, the
event loop watches. The first beat comes at once: it opens the connection, and begins to watch the other workers. Never:
the thread touches the event loop except through `call_soon_threadsafe`; a beat that hangs never delays `stop`.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence

from everpoll.engine.beat_sender import BeatSender, Fences, HeartbeatTiming, Listeners, publish_nothing
from everpoll.engine.threads import DaemonThreads
from everpoll.stores.contract import HeartbeatConnection

logger = logging.getLogger("everpoll.engine")

STOP_S = 2.0


class Heartbeat:
    """Beats for one incarnation until it is stopped or declared dead."""

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
        self._timing = timing
        self._event_loop = asyncio.get_running_loop()
        self._listeners = listeners
        listeners_in_loop = Listeners(
            lambda beat: self._call_in_loop(listeners.on_beat, beat),
            lambda rescued: self._call_in_loop(listeners.on_rescue, rescued),
            lambda text: self._call_in_loop(listeners.on_failure, text),
            lambda silence_s: self._call_in_loop(listeners.on_silence, silence_s),
        )
        self.sender = BeatSender(incarnation, timing, running, time.monotonic, listeners_in_loop, publish)
        self._over = False
        self._nudged = threading.Event()
        self._watcher: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._beat, name="everpoll-heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread. The sign-on just before counts as an answered beat."""
        self._thread.start()
        self._watch()

    def beat_now(self) -> None:
        """Beat now: a task may have to be canceled."""
        self._nudged.set()

    async def stop(self) -> None:
        """Send no further beat; return when the thread has ended, or hangs in a beat for too long."""
        self._over = True
        self._nudged.set()
        if self._watcher is not None:
            self._watcher.cancel()
        if not self._thread.is_alive():
            return
        # Joined in an executor: the thread takes real time, and virtual time stands still for it.
        joiner = DaemonThreads(1, "everpoll-heartbeat-end")
        try:
            await self._event_loop.run_in_executor(joiner, self._thread.join, STOP_S)
        finally:
            joiner.shutdown(wait=False)
        if self._thread.is_alive():
            logger.warning("the last heartbeat hangs; its thread is left behind")

    def _watch(self) -> None:
        if self._over or self.sender.is_over:
            return
        silence_s = self.sender.silence_s
        left_s = self._timing.fence_s - silence_s
        if left_s <= 0:
            self._listeners.on_silence(silence_s)
            left_s = self._timing.beat_s
        self._watcher = self._event_loop.call_later(left_s, self._watch)

    def _beat(self) -> None:
        try:
            while not self._over and not self.sender.is_over:
                self._nudged.wait(self.sender.try_beat(self._connect))
                self._nudged.clear()
        finally:
            self.sender.end()

    def _call_in_loop(self, callback: Callable[..., None], *args: object) -> None:
        try:
            self._event_loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            self._over = True  # the event loop is closed: no worker is left to notify
