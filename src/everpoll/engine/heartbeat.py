"""The heartbeat: one row write per beat, from its own thread and connection.

Promises: a handler that blocks the event loop does not cost the worker its lease. A worker that could not beat for
two thirds of its lease is told so (`on_silence`), while there still is time to cancel its handlers, and again for as
long as that lasts. Both hold for a beat that fails and for one that hangs: the thread beats, the event loop watches.
Never: the thread touches the event loop except through `call_soon_threadsafe`; a beat that hangs never holds up `stop`.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence

from everpoll.engine.threads import DaemonThreads
from everpoll.stores.contract import Beat, Pulse

logger = logging.getLogger("everpoll.engine")

BEATS_PER_LEASE = 3
FENCE_SHARE = 2 / 3
RETRY_S = 1.0
STOP_S = 2.0


class Heartbeat:
    """Beats for one incarnation until it is stopped or given up for dead."""

    def __init__(
        self,
        pulse: Callable[[], Pulse],
        incarnation: int,
        lease_s: float,
        beat_s: float | None,
        running: Callable[[], tuple[Sequence[int], float | None]],
        on_beat: Callable[[Beat], None],
        on_silence: Callable[[float], None],
    ) -> None:
        self._pulse = pulse
        self._incarnation = incarnation
        self._lease_s = lease_s
        self._beat_s = lease_s / BEATS_PER_LEASE if beat_s is None else beat_s
        self._running = running
        self._on_beat = on_beat
        self._on_silence = on_silence
        self._event_loop = asyncio.get_running_loop()
        self._over = False
        self._nudged = threading.Event()
        self._heard_at = time.monotonic()
        self._watcher: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._beat, name="everpoll-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin; the sign-on just before counts as the first beat."""
        self._heard_at = time.monotonic()
        self._thread.start()
        self._watch()

    def hurry(self) -> None:
        """Beat now: somebody wants something canceled."""
        self._nudged.set()

    async def stop(self) -> None:
        """No beat begins after this; returns when the thread has ended, or hangs in a beat for too long."""
        self._over = True
        self._nudged.set()
        if self._watcher is not None:
            self._watcher.cancel()
        if not self._thread.is_alive():
            return
        # Joined in an executor: that is real time for everybody, and virtual time stands still for it.
        joiner = DaemonThreads(1, "everpoll-heartbeat-end")
        try:
            await self._event_loop.run_in_executor(joiner, self._thread.join, STOP_S)
        finally:
            joiner.shutdown(wait=False)
        if self._thread.is_alive():
            logger.warning("the last heartbeat hangs; its thread is left behind")

    def _watch(self) -> None:
        if self._over:
            return
        silence_s = time.monotonic() - self._heard_at
        left_s = self._lease_s * FENCE_SHARE - silence_s
        if left_s <= 0:
            self._on_silence(silence_s)
            left_s = self._beat_s
        self._watcher = self._event_loop.call_later(left_s, self._watch)

    def _rests(self, wait_s: float) -> bool:
        """Wait for the next beat, or less; False when it is all over."""
        self._nudged.wait(wait_s)
        self._nudged.clear()
        return not self._over

    def _beat(self) -> None:
        pulse: Pulse | None = None
        wait_s = self._beat_s
        try:
            while self._rests(wait_s):
                asked_at = time.monotonic()
                try:
                    pulse = pulse or self._pulse()
                    ids, overdue_s = self._running()
                    beat = pulse.beat(self._incarnation, self._lease_s, overdue_s, ids)
                except Exception as error:  # noqa: BLE001 - whatever it is, the next beat may succeed
                    logger.warning("heartbeat failed: %s: %s; trying again", type(error).__name__, error)
                    _close(pulse)
                    pulse = None
                    wait_s = min(RETRY_S, self._lease_s / 10, self._beat_s)
                else:
                    # The lease counts from before the question: the answer may have been slow.
                    # And so does the rest until the next: after a slow answer it would come too late for the watcher.
                    self._heard_at, wait_s = asked_at, max(0.0, asked_at + self._beat_s - time.monotonic())
                    self._over = self._over or not beat.is_alive
                    self._tell(self._on_beat, beat)
        finally:
            _close(pulse)

    def _tell(self, callback: Callable[..., None], *args: object) -> None:
        try:
            self._event_loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            self._over = True  # the event loop is closed: nobody is left to be told


def _close(pulse: Pulse | None) -> None:
    if pulse is not None:
        try:
            pulse.close()
        except Exception:
            logger.debug("closing the heartbeat's connection failed", exc_info=True)
