"""Tasks that this worker cannot run: their name, or a newer version of them, is registered elsewhere or nowhere.

    leased, not registered here ──▶ set aside ──a worker that registers it asks──▶ due now
                                       │
                                       └── no live worker has registered it for `unknown_s` ──▶ failed

Promises: a rolling deployment loses no task: tasks of the newer release wait for a worker of that release. A worker
asks for tasks that it can run when it signs on, and when it is notified that a task was set aside. A task that a worker
cannot run costs it one lease, and does not delay the tasks behind it. The worker logs one warning for each name. It
asks at most once every `ASK_EVERY_S`, and at least once every `LONGEST_REST_S`, in case a notification was lost.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from everpoll.drivers.wake import Wake
from everpoll.engine.failure_events import failure_event
from everpoll.engine.work import Run, WorkRegistry, is_known
from everpoll.errors import EverpollError
from everpoll.policy import Backoff, human
from everpoll.policy.storable_texts import ERROR_LIMIT, storable
from everpoll.stores.contract import Again, Ended, Lease, Settlement, Store, TaskInfo, WorkerInfo, encode
from everpoll.stores.set_aside import SET_ASIDE, UNKNOWN_JOB, set_aside_note

logger = logging.getLogger("everpoll.engine")

ASK_EVERY_S = 1.0
LONGEST_REST_S = 60.0
BATCH = 200
MORE_AFTER_S = 0.1
"""The pause after a full batch. It is short, because workers that cannot run the released tasks lease them, too."""
UNLISTEN_S = 5.0
WORKERS_KNOWN_S = 1.0
WARNED_LIMIT = 1_000
# For the case that no worker asks. Long delays: each lease that only sets the task aside again is wasted.
AGAIN = Backoff("30s", factor=2, cap="10m", jitter=0.1)


class Unregistered:
    """Sets aside tasks that this worker cannot run, and releases those that other workers have set aside."""

    def __init__(
        self, works: Callable[[], WorkRegistry], queues: Callable[[], Sequence[str]], unknown_s: float | None
    ) -> None:
        self._works = works
        self._queues = queues
        self._unknown_s = unknown_s
        self._wake_worker: Callable[[], None] = lambda: None
        self._store: Store | None = None
        self._woken = asyncio.Event()
        self._asking: asyncio.Task[None] | None = None
        self._warned: set[tuple[str, int]] = set()
        self._workers: tuple[float, list[WorkerInfo]] | None = None

    def prepare(self, store: Store) -> None:
        """Prepare for a worker that is about to start on this store."""
        self._store, self._woken, self._workers = store, asyncio.Event(), None

    async def start(self, wake_worker: Callable[[], None]) -> None:
        """Ask for tasks that other workers have set aside, now and after each notification."""
        store = self._store
        assert store is not None, "prepared before its worker started"
        self._wake_worker = wake_worker
        await store.listen(self._wake)
        self._asking = asyncio.get_running_loop().create_task(self._ask(store), name="everpoll-unregistered")

    async def stop(self) -> None:
        """Stop asking."""
        asking, self._asking = self._asking, None
        if asking is None:
            return
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert self._store is not None, "it was started"
        with contextlib.suppress(EverpollError, TimeoutError):
            async with asyncio.timeout(UNLISTEN_S):
                await self._store.unlisten(self._wake)

    def forget(self) -> None:
        """Drop what belongs to an event loop that is gone."""
        self._asking = None

    def _wake(self, _: Wake) -> None:
        self._woken.set()

    async def _ask(self, store: Store) -> None:
        while True:
            self._woken.clear()
            released = await self._released(store)
            await asyncio.sleep(MORE_AFTER_S if released >= BATCH else ASK_EVERY_S)
            if released >= BATCH:
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_REST_S):
                    await self._woken.wait()

    async def _released(self, store: Store) -> int:
        try:
            released = await store.release_set_aside(self._works().versions, self._queues(), BATCH)
        except Exception as error:  # noqa: BLE001 - it is asked again
            logger.debug("cannot ask for tasks that were set aside: %s", error)
            return 0
        if released:
            self._wake_worker()
            logger.info("%d tasks that other workers could not run are due here", released)
        return released

    async def settle(self, run: Run) -> Settlement:
        """Set a task aside, or fail it. The engine calls this for a name that is not registered."""
        lease = run.lease
        now = run.now(asyncio.get_running_loop().time())
        self._warn(lease)
        is_known_elsewhere = await self._is_known_elsewhere(lease)
        # A task that was set aside before has more leases than attempts.
        since = now if is_known_elsewhere or lease.sequence <= lease.attempt else await self._since(lease, now)
        run.is_logged = True
        if self._unknown_s is not None and not is_known_elsewhere and now >= since + self._unknown_s:
            return self._failed(lease)
        delay_s = AGAIN.delay(1 if is_known_elsewhere else max(1, lease.sequence - lease.attempt + 1))
        fails_at = None if self._unknown_s is None or is_known_elsewhere else since + self._unknown_s
        if fails_at is not None:
            delay_s = min(delay_s, max(0.01, fails_at - now))
        note = set_aside_note(self._reason(lease), since, fails_at)
        return Again(lease.id, lease.sequence, delay_s, refund=True, note=note, set_aside=True)

    def _failed(self, lease: Lease) -> Settlement:
        waited = human(self._unknown_s or 0.0)
        error = storable(
            f"{self._reason(lease)}; it waited {waited} for a worker that registers it. If another app has it, give "
            f"the two apps queues of their own in place of {lease.queue!r}",
            ERROR_LIMIT,
        )
        logger.error("%s: %s", lease.label, error)
        note = {"what": "failed", "error": error, "attempt": lease.attempt, "type": UNKNOWN_JOB}
        return Ended(lease.id, lease.sequence, "failed", None, encode(note), failure_event(note))

    def _reason(self, lease: Lease) -> str:
        work = self._works().get(lease.name)
        if work is not None:
            return (
                f"job {lease.name!r} is registered in this worker with version {work.version}, and the arguments of "
                f"this task have version {lease.version}"
            )
        known = ", ".join(self._works().names[:20]) or "nothing"
        return f"no job called {lease.name!r} is registered in this worker; registered: {known}"

    def _warn(self, lease: Lease) -> None:
        if (lease.name, lease.version) in self._warned or len(self._warned) >= WARNED_LIMIT:
            return
        self._warned.add((lease.name, lease.version))
        limit = "" if self._unknown_s is None else f", for {human(self._unknown_s)} at most"
        logger.warning(
            "%s: %s. Its tasks wait for a worker that registers it%s; this is said once for each name",
            lease.label,
            self._reason(lease),
            limit,
        )

    async def _is_known_elsewhere(self, lease: Lease) -> bool:
        """Return True if a live worker of its queue can run it. Workers of earlier releases do not publish their names.

        Such a worker counts as able to run it. While the database does not answer, this returns True: no task fails.
        """
        try:
            fleet = await self._fleet()
        except EverpollError:
            return True
        return any(
            one.is_alive
            and lease.queue in one.queues
            and (one.names is None or is_known(lease.name, lease.version, one.names))
            for one in fleet
        )

    async def _fleet(self) -> list[WorkerInfo]:
        assert self._store is not None, "started before its worker"
        now = asyncio.get_running_loop().time()
        if self._workers is None or now - self._workers[0] > WORKERS_KNOWN_S:
            self._workers = (now, await self._store.workers())
        return self._workers[1]

    async def _since(self, lease: Lease, now: float) -> float:
        assert self._store is not None, "started before its worker"
        try:
            info = (await self._store.info([lease.id])).get(lease.id)
        except EverpollError:
            return now
        return now if info is None else set_aside_since(info, now)


def set_aside_since(info: TaskInfo, now: float) -> float:
    """Return since when a task has been set aside without a break; `now` if its last note is of another kind."""
    last = info.trail[-1] if info.trail else {}
    since = last.get("since") if last.get("what") == SET_ASIDE else None
    return since if isinstance(since, float | int) and not isinstance(since, bool) else now
