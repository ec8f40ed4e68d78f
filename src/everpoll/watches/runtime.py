"""The runtime of a watch: the engine calls it for each lease of a run.

Promises: every lease is settled, whatever the row holds: a run of another version is migrated or parked, and a run
whose memory cannot be read fails. A migration works on copies, so if it fails, nothing has changed.
"""

import asyncio
import copy
import logging
import random
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from everpoll.engine.calls import failure
from everpoll.engine.rate_limited_log import RateLimitedLog
from everpoll.engine.work import Run, StopReason
from everpoll.errors import BadInput
from everpoll.logs.context import Labels
from everpoll.policy import shown
from everpoll.stores.contract import Again, Ended, Settlement, TaskInfo
from everpoll.stores.contract import encode as encode_json
from everpoll.watches.batch import Batch
from everpoll.watches.context import LookContext
from everpoll.watches.extension import read_args
from everpoll.watches.learning import Learning
from everpoll.watches.limits import MEMORY_LIMIT, as_json
from everpoll.watches.memory import OTHERS, RunMemory, decode
from everpoll.watches.remotes import Remotes
from everpoll.watches.step import Step

if TYPE_CHECKING:
    from everpoll.watches.registry import Watches
    from everpoll.watches.watch import Watch

logger = logging.getLogger("everpoll.watches")

PARK_S = 300.0
LEARN_EVERY_S = 300.0
COUNTERS_LIMIT = 1_000
"""How many counters a watch has; further names share one."""


class Runtime:
    """Runs the steps of one watch."""

    def __init__(self, watches: "Watches", watch: "Watch[Any]") -> None:
        self._watches = watches
        self.watch = watch
        policy, where = watch.policy, f"watch {watch.name!r}"
        self.rng: random.Random = random.Random()  # noqa: S311 - jitter, not a secret
        self.remotes = Remotes(policy.rate, policy.breaker, self.rng.random)
        self.changes, self.failures = RateLimitedLog(logger), RateLimitedLog(logger)
        """The log of starts and ends, and the log of failures; each is rationed."""
        self.learning = Learning(where, policy.cadence, policy.learn_by, self.failures)
        self._learned_at: float | None = None
        self._batch: Batch | None = None

    async def run(self, run: Run) -> Settlement:
        """Make one step of one run."""
        lease = run.lease
        run.ends_by(None)  # until the first call of the step: each has its own deadline
        try:
            memory = decode(lease.memory or "{}")
        except msgspec.DecodeError as error:
            note = encode_json({"what": "failed", "error": f"its memory cannot be read: {error}"})
            return Ended(lease.id, lease.sequence, "failed", None, note)
        try:
            await self._learn()
            return await self._step(run, memory)
        except asyncio.CancelledError:
            if run.stop_reason is StopReason.CANCELED:
                # This step changes nothing; the next one comes at once and begins with the cancel.
                return Again(lease.id, lease.sequence, 0.0, refund=True)
            raise
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            logger.exception("%s: no step could be made", lease.label)
            return Step(self, run, memory, None).broken(error)

    async def _step(self, run: Run, memory: RunMemory) -> Settlement:
        lease, watch = run.lease, self.watch
        version = lease.version if memory.version is None else memory.version
        op: Any = read_args(lease.args)[0] if memory.op is None else memory.op
        if version != watch.policy.version:
            try:
                memory = self._migrated(version, op, memory)
                op = memory.op
            except BaseException as raised:  # noqa: BLE001 - the user's own migration, or none
                error = failure(run, raised)
                why = f"it was written by version {version}, this is version {watch.policy.version}: {error}"
                logger.error("%s: needs code: %s", watch.key_of(memory.run_id), why)
                return Step(self, run, memory, op).park(why, PARK_S)
        try:
            typed = watch.op_type.convert(op)
        except Exception as error:  # noqa: BLE001 - without an operation there can be no look
            why = f"the operation does not fit {watch.name}: {error}"
            return Step(self, run, memory, op).park(why, PARK_S)
        step = Step(self, run, memory if memory.parked is None else replace(memory, parked=None), typed)
        run.overdue = step.overdue
        return await step.take()

    def _migrated(self, version: int, op: Any, memory: RunMemory) -> RunMemory:
        op, user = copy.deepcopy((op, memory.user))
        while version != self.watch.policy.version:
            if version not in self.watch.migrations:
                raise BadInput(f"write @{self.watch.name}.migrate({version}, …)")
            version, migration = self.watch.migrations[version]
            op, user = migration(op, user) or (op, user)
        what = f"what migrate(…, {version}) returns"
        if not isinstance(user, dict):
            raise BadInput(f"{what}: the memory must be a dict, not {shown(user)}")
        user = as_json(user, what, MEMORY_LIMIT)
        return replace(memory, op=as_json(op, what), version=version, user=user)

    @property
    def batch(self) -> Batch | None:
        """The runs that wait for a call of `look_many`, if the watch has one."""
        watch = self.watch
        if self._batch is None and watch.look_many_function is not None:
            labels = Labels(kind="watch", name=watch.name, queue=watch.policy.queue)
            self._batch = Batch(f"watch {watch.name!r}", watch.look_many_function, labels)
        return self._batch

    def joins_batch(self, remote: str) -> bool:
        """Return True if a look at this remote would join a call of `look_many` that is being gathered."""
        batch = self.batch
        return batch is not None and batch.is_gathering_for(remote)

    async def look(self, limit_s: float, op: Any, context: LookContext, remote: str) -> Any:
        """Look once, alone or in a call of `look_many`, within `limit_s`."""
        if (batch := self.batch) is not None:
            return await batch.look(op, context, remote, limit_s)
        return await self.watch.look_function(
            limit_s, op, key=context.key, handle=context.handle, outcome=None, w=context
        )

    async def task(self, task_id: int) -> TaskInfo | None:
        """Read the task of a run."""
        return await self._watches.task(task_id)

    def add_counters(self, counters: dict[str, int], counted: dict[str, int]) -> None:
        """Add to the counters of the watch what a step has counted: the difference between its counters and before."""
        known = self.watch.counters
        for name, number in counters.items():
            if number != (before := counted.get(name, 0)):
                has_room = name in known or len(known) < COUNTERS_LIMIT
                known[name if has_room else OTHERS] += number - before

    async def learn(self) -> None:
        """Read when earlier runs ended, for a cadence that uses it."""
        learning, name = self.learning, self.watch.name
        try:
            store = await self._watches.store()
            learning.read(await store.last_results("watch", name, learning.most))
        except Exception as error:  # noqa: BLE001 - the cadence goes on with what it knows
            logger.warning("watch %r: cannot read when earlier runs ended: %s", name, error)

    async def _learn(self) -> None:
        """Learn, if the cadence uses history and the last time is LEARN_EVERY_S ago."""
        now = asyncio.get_running_loop().time()
        is_known = self._learned_at is not None and now - self._learned_at < LEARN_EVERY_S
        if self.learning.is_wanted and not is_known:
            self._learned_at = now
            await self.learn()
