"""The heartbeat under virtual time: in the event loop, whose time it is, in the place of a thread with its own.

Promises: the same as `heartbeat`, but for one: a handler that blocks the event loop blocks it, too. Only for stores
that ask for it (`beats_in_loop`), which tests under a virtual clock use.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from everpoll.engine.heartbeat import BEATS_PER_LEASE, FENCE_SHARE, RETRY_S
from everpoll.stores.contract import Beat, Pulse

logger = logging.getLogger("everpoll.engine")


class LoopHeartbeat:
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
        self._pulse = pulse()
        self._incarnation = incarnation
        self._lease_s = lease_s
        self._beat_s = lease_s / BEATS_PER_LEASE if beat_s is None else beat_s
        self._running = running
        self._on_beat = on_beat
        self._on_silence = on_silence
        self._nudged = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; the sign-on just before counts as the first beat."""
        self._beating = asyncio.get_running_loop().create_task(self._beat(), name="everpoll-heartbeat")

    def hurry(self) -> None:
        """Beat now: somebody wants something canceled."""
        self._nudged.set()

    async def stop(self) -> None:
        """No beat begins after this."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        self._pulse.close()

    async def _beat(self) -> None:
        now = asyncio.get_running_loop().time
        heard_at, wait_s = now(), self._beat_s
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._nudged.wait()
            self._nudged.clear()
            ids, overdue_s = self._running()
            try:
                beat = self._pulse.beat(self._incarnation, self._lease_s, overdue_s, ids)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next beat may succeed
                logger.warning("heartbeat failed: %s: %s; trying again", type(error).__name__, error)
                wait_s = min(RETRY_S, self._lease_s / 10, self._beat_s)
                if now() - heard_at >= self._lease_s * FENCE_SHARE:
                    self._on_silence(now() - heard_at)
            else:
                heard_at, wait_s = now(), self._beat_s
                self._on_beat(beat)
                if not beat.is_alive:
                    return
