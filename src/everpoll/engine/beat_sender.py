"""One heartbeat: report that this worker lives, check the others, and rescue the tasks of dead workers.

Promises: every verdict about another worker rests on answers that this worker got itself (`policy/liveness.py`). A
worker itself reports its handlers that run past their deadline, so no other clock decides that. A rescue that fails
makes neither this heartbeat nor the next one fail.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from everpoll.drivers.repeated_warnings import RepeatedWarnings
from everpoll.engine.batch_errors import may_be_one_items_fault
from everpoll.logs.context import about
from everpoll.policy.liveness import Observations, judge
from everpoll.stores.contract import Beat, HeartbeatConnection, Rescued

logger = logging.getLogger("everpoll.engine")

BEATS_PER_LEASE = 3
FENCE_SHARE = 2 / 3
RETRY_S = 1.0

Fences = Sequence[tuple[int, int]]
"""Task ids with their sequences."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """The worker's callbacks for its heartbeat."""

    on_beat: Callable[[Beat], None]
    on_rescue: Callable[[Rescued], None]
    on_failure: Callable[[str], None]
    on_silence: Callable[[float], None]


@dataclass(frozen=True, slots=True)
class HeartbeatTiming:
    """How often a worker sends a heartbeat, and how long it keeps its tasks without one."""

    lease_s: float
    beat_s: float

    @property
    def retry_s(self) -> float:
        """The pause after a beat that failed."""
        return min(RETRY_S, self.lease_s / 10, self.beat_s)

    @property
    def fence_s(self) -> float:
        """The time without an answer after which the worker cancels its handlers."""
        return self.lease_s * FENCE_SHARE


def publish_nothing(_connection: HeartbeatConnection) -> None:
    """Publish nothing."""


class BeatSender:
    """Sends the heartbeats of one incarnation, each when `Heartbeat` or `LoopHeartbeat` calls `beat`."""

    def __init__(
        self,
        incarnation: int,
        timing: HeartbeatTiming,
        running: Callable[[], tuple[Sequence[int], Fences]],
        clock: Callable[[], float],
        listeners: Listeners,
        publish: Callable[[HeartbeatConnection], None] = publish_nothing,
    ) -> None:
        self._publish = publish
        self._connection: HeartbeatConnection | None = None
        self._incarnation = incarnation
        self._timing = timing
        self._running = running
        self._clock = clock
        self._listeners = listeners
        self._failed_beats = RepeatedWarnings(logger, "the heartbeat", clock)
        self._failed_rescues = RepeatedWarnings(logger, "the rescue", clock)
        self._observations = Observations()
        self.heard_at = clock()
        """When the last beat that was answered was sent: the answer may have been slow, and the lease counts from
        before it."""
        self.is_over = False

    @property
    def silence_s(self) -> float:
        """Seconds since the last answered beat was sent."""
        return self._clock() - self.heard_at

    @property
    def is_fenced(self) -> bool:
        """True if the worker must not go on: it was declared dead, or has had no answer for too long."""
        return self.is_over or self.silence_s >= self._timing.fence_s

    def try_beat(self, connect: Callable[[], HeartbeatConnection]) -> float:
        """Beat, over a new connection if the last one failed; return the seconds until the next beat. Never raises."""
        try:
            self._connection = self._connection or connect()
            wait_s = self.beat(self._connection)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next beat may succeed
            self._failed_beats.failed(error, "heartbeat failed: %s: %s; trying again", type(error).__name__, error)
            self._listeners.on_failure(f"heartbeat: {type(error).__name__}: {error}")
            self._close()
            return self._timing.retry_s
        self._failed_beats.works()
        return wait_s

    def end(self) -> None:
        """Publish what was counted since the last beat, unless the database is away, and close the connection."""
        if self._connection is not None and not self.is_fenced:
            self._publish(self._connection)
        self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception:
                logger.debug("closing the heartbeat's connection failed", exc_info=True)

    def beat(self, connection: HeartbeatConnection) -> float:
        """Beat once; return the seconds until the next beat is due. Errors of the connection pass through."""
        running, overdue = self._running()
        asked_at = self._clock()
        beat = connection.beat(self._incarnation, self._timing.lease_s, running)
        answered_at = self._clock()
        self.heard_at = asked_at
        self.is_over = not beat.is_alive
        self._listeners.on_beat(beat)
        if self.is_over:
            return self._timing.beat_s
        verdict = judge(self._observations, asked_at, answered_at, beat.others)
        self._observations = verdict.observations
        if verdict.dead or overdue or beat.has_leftovers:
            self._rescue(connection, verdict.dead, overdue)
        self._publish(connection)
        # Counted from when this beat was sent: after a slow answer the next one would come too late for the fence.
        wait_s = asked_at + self._timing.beat_s - self._clock()
        return max(0.0, wait_s if verdict.check_again_s is None else min(wait_s, verdict.check_again_s))

    def _rescue(self, connection: HeartbeatConnection, dead: Fences, overdue: Fences) -> None:
        for incarnation, _ in dead:
            logger.warning("worker %016x has not beaten for a whole lease: declaring it dead", incarnation)
        try:
            rescued = self._rescued(connection, dead, overdue)
        except Exception as error:  # noqa: BLE001 - the next beat rescues; this one was answered
            self._listeners.on_failure(f"rescue: {type(error).__name__}: {error}")
            what = "rescue failed: %s: %s; the next heartbeat tries again"
            self._failed_rescues.failed(error, what, type(error).__name__, error)
        else:
            self._failed_rescues.works()
            if rescued.tasks:
                self._listeners.on_rescue(rescued)

    def _rescued(self, connection: HeartbeatConnection, dead: Fences, overdue: Fences) -> Rescued:
        """Rescue all tasks.

        If the database refuses one of them, rescue each alone, so that it does not delay the others.
        """
        try:
            return connection.rescue(self._incarnation, dead, overdue)
        except Exception as error:
            if not overdue or not may_be_one_items_fault(error):
                raise
        rescued = connection.rescue(self._incarnation, dead, ())
        for fence in overdue:
            try:
                one = connection.rescue(self._incarnation, (), [fence])
                rescued = Rescued(rescued.tasks + one.tasks, rescued.ended + one.ended)
            except Exception as error:
                if not may_be_one_items_fault(error):
                    raise
                text = "task %d cannot be taken back: %s; the next heartbeat tries again"
                logger.warning(text, fence[0], error, extra=about(task_id=fence[0]))
        return rescued
