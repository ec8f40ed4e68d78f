"""A watch: how one kind of remote operation is started, looked at, canceled and cleaned up.

@app.watch(every=Backoff("2s", factor=2, cap="30s", jitter=0.2), budget=Budget("29m", looks=120))
async def shell_query(op: ShellQuery, w) -> Done | Fail | Wait: ...

@shell_query.start
async def start(op, key): ...
"""

import asyncio
import copy
import functools
import inspect
import logging
import random
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec

from everpoll.engine.calls import failure
from everpoll.engine.enqueuer import Enqueuer
from everpoll.engine.rationed_log import RationedLog
from everpoll.engine.threads import DaemonThreads
from everpoll.engine.work import Run, StopReason
from everpoll.errors import BadInput
from everpoll.logs.context import Labels
from everpoll.policy import Backoff, Duration, seconds, shown, whole_number
from everpoll.stores.contract import Again, Ended, NewEvent, NewTask, Settlement
from everpoll.stores.contract import encode as encode_json
from everpoll.watches.batch import Batch
from everpoll.watches.cadence import Growing
from everpoll.watches.context import LookContext, is_id
from everpoll.watches.extension import read_args
from everpoll.watches.functions import OperationType, UserFunction
from everpoll.watches.handle import WatchRun
from everpoll.watches.limits import MEMORY_LIMIT, as_json, told
from everpoll.watches.memory import OTHERS, Decision, RunMemory, decode, encode
from everpoll.watches.options import NAME_LIMIT, WatchOptions, checked, text
from everpoll.watches.remotes import Remotes
from everpoll.watches.step import Step

if TYPE_CHECKING:
    from everpoll.watches.registry import Watches

logger = logging.getLogger("everpoll.watches")

Op = TypeVar("Op")
F = TypeVar("F", bound=Callable[..., Any])
ID_LIMIT = 200
PARK_S = 300.0
LEARN_EVERY_S = 300.0
COUNTERS_LIMIT = 1_000
"""Names under which a watch counts; the others share one."""
DEFAULT_CHECK = Backoff("1.5s", factor=2, cap="8s", jitter=0)
Exhausted = Literal["failed", "ready"]
Migration = Callable[[Any, dict[str, Any]], tuple[Any, dict[str, Any]] | None]


@dataclass(frozen=True, slots=True)
class Check:
    """What a look may ask to have proven."""

    function: UserFunction
    tries: int
    every: Backoff
    exhausted: Exhausted


class Watch(Generic[Op]):
    """One registered watch. Calling it calls the look; `begin` starts a run."""

    def __init__(
        self, watches: "Watches", look: Callable[..., Any], every: Any, budget: Any, options: WatchOptions
    ) -> None:
        functools.update_wrapper(self, look)
        self._watches = watches
        self._function = look
        self.policy = checked(getattr(look, "__name__", "watch"), every, budget, options)
        self.name = self.policy.name
        self._where = f"watch {self.name!r}"
        self._op_type = OperationType(self._where, look)
        self._look = self._made("look", look)
        self._batch: Batch | None = None
        self.starts: UserFunction | None = None
        self.adopts: UserFunction | None = None
        self.cancels: UserFunction | None = None
        self.cleans: UserFunction | None = None
        self.checks: dict[str, Check] = {}
        self._migrations: dict[int, tuple[int, Migration]] = {}
        self.ensures: list[tuple[float, Callable[[], Any]]] = []
        self.rng: random.Random = random.Random()  # noqa: S311 - jitter is no secret
        self.remotes = Remotes(self.policy.rate, self.policy.breaker, self.rng.random)
        self.counters: Counter[str] = Counter()
        """Of this process, over all runs."""
        self.on_decision: list[Callable[[str, Decision], None]] = []
        """Told of every decision as it is made: for timelines."""
        self.changes, self.failures = RationedLog(logger), RationedLog(logger)
        """The lines about starts and ends of runs, and about what failed: a storm of either is bounded."""
        self.durations_s: tuple[float, ...] = ()
        self._learned_at: float | None = None

    def __repr__(self) -> str:
        return f"<Watch {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the look here and now."""
        return self._function(*args, **kwargs)

    # ── what the user says ───────────────────────────────────────────────────────────────────────────────────────

    def start(self, function: F) -> F:
        """Start the operation: runs once its intent is stored; what it returns is stored and is `w.handle`."""
        self.starts = self._once("start", self.starts, function)
        return function

    def adopt(self, function: F) -> F:
        """Find what was started under this key: after a crash before the handle was stored. None: there is none."""
        self.adopts = self._once("adopt", self.adopts, function)
        return function

    def cancel(self, function: F) -> F:
        """Tell the remote to stop."""
        self.cancels = self._once("cancel", self.cancels, function)
        return function

    def cleanup(self, function: F) -> F:
        """Remove what the operation left at the remote; runs after every outcome, never before."""
        self.cleans = self._once("cleanup", self.cleans, function)
        self._watches.rounds.extend()
        return function

    def verify(
        self, name: str, tries: int = 6, every: Backoff = DEFAULT_CHECK, exhausted: Exhausted = "failed"
    ) -> Callable[[F], F]:
        """A check that a look may ask for with `return w.verify(name)`: a true answer makes the run ready."""
        if name in self.checks:
            raise BadInput(f"{self._where}: the check {name!r} is there already")
        text(f"{self._where}: verify", name, NAME_LIMIT)
        if not isinstance(every, Backoff):
            raise BadInput(f'{self._where}: verify({name!r}, every={shown(every)}): write Backoff("1.5s", cap="8s")')
        if exhausted not in {"failed", "ready"}:
            raise BadInput(f'{self._where}: verify({name!r}, exhausted={shown(exhausted)}): write "failed" or "ready"')
        number = whole_number(tries, name=f"{self._where}: tries", at_least=1, accepted="how often it is tried")

        def register(function: F) -> F:
            self.checks[name] = Check(self._made(f"verify({name!r})", function), number, every, exhausted)
            return function

        return register

    def look_many(self, function: F) -> F:
        """One call for all runs that are due together: a list of (op, w) in, a list of verdicts out, in order."""
        if self._batch is not None:
            raise BadInput(f"{self._where}: there is a look_many already")
        self._batch = Batch(self._where, function, Labels(kind="watch", name=self.name, queue=self.policy.queue))
        return function

    def migrate(self, old: int, new: int) -> Callable[[Migration], Migration]:
        """From one version of the row to another: (op, memory) as JSON in, both out; or None, and changed in place."""

        def register(function: Migration) -> Migration:
            if inspect.iscoroutinefunction(function):
                raise BadInput(f"{self._where}: migrate({old}, {new}) must be a plain function: write def")
            if old in self._migrations or new <= old:
                raise BadInput(f"{self._where}: migrate({old}, {new}): one step up from each version")
            self._migrations[old] = (new, function)
            return function

        return register

    def ensure(self, every: Duration = "1m") -> Callable[[F], F]:
        """Business rows that should have a run: a function that returns (op, id) or (op, id, handle) for each.

        It is called now and then by every worker; those that have no run yet get one.
        """
        every_s = seconds(every, name=f"{self._where}: every", positive=True)

        def register(function: F) -> F:
            self.ensures.append((every_s, function))
            self._watches.rounds.extend()
            return function

        return register

    @property
    def threads(self) -> DaemonThreads:
        """Where plain functions run."""
        return self._watches.threads

    def _made(self, what: str, function: Callable[..., Any]) -> UserFunction:
        return UserFunction(self._where, what, function, lambda: self.threads)

    def _once(self, what: str, known: UserFunction | None, function: Callable[..., Any]) -> UserFunction:
        if known is not None:
            raise BadInput(f"{self._where}: there is a {what} already")
        return self._made(what, function)

    # ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def begin(
        self,
        op: Op,
        id: str | None = None,  # noqa: A002 - the API's word
        *,
        handle: Any = None,
        delay: Duration = 0,
    ) -> WatchRun:
        """Watch one operation. The same id means the same run: beginning it again answers with that one.

        That holds for as long as its history is kept (30 days after its end, unless the app says otherwise). Later, the
        same id is a new run; its start is given the same key, so that a remote which knows keys starts nothing twice.
        With a `handle`, the operation was started elsewhere already, and only looks follow.
        """
        run_id = uuid.uuid4().hex if id is None else id
        task = self.new_task(op, run_id, handle, seconds(delay, name=f"{self._where}: delay"))
        enqueued = await (await self.enqueuer()).one(task)
        return WatchRun(self._watches, self.name, run_id, enqueued.id, is_new=enqueued.is_new)

    async def enqueuer(self) -> Enqueuer:
        """The one way in."""
        return await self._watches.enqueuer()

    def new_task(self, op: Any, run_id: str, handle: Any = None, delay_s: float = 0.0) -> NewTask:
        """The task that a run is, checked."""
        text(f"{self._where}: id", run_id, ID_LIMIT)
        if handle is not None and not is_id(handle):
            raise BadInput(f"{self._where}: handle={shown(handle)} is no handle; leave it out to have it started")
        is_started = self.starts is None or is_id(handle)
        memory = RunMemory(
            run_id,
            phase="looking" if is_started else "intent",
            is_given=is_started,
            handle=as_json(handle, f"{self._where}: handle") if is_id(handle) else None,
            version=self.policy.version,
            budget_s=self.policy.budget.time_s,
            budget_looks=self.policy.budget.looks,
            seq=1,
        )
        return NewTask(
            name=self.name,
            args=self._op_type.encode(op),
            kind="watch",
            queue=self.policy.queue,
            key=self.key_of(run_id),
            priority=self.policy.priority,
            delay_s=delay_s,
            timeout_s=self.policy.step_s,
            memory=encode(memory),
            version=self.policy.version,
            cancels_itself=True,
            indexed=True,
            once=True,
            events=(NewEvent(1, encode_json({"phase": memory.phase})),),
        )

    def key_of(self, run_id: str) -> str:
        """The idempotency key of a run: what start, adopt, cancel and cleanup are given."""
        return f"{self.name}:{run_id}"

    def tally(self, counters: dict[str, int], counted: dict[str, int]) -> None:
        """Add what a step has counted."""
        for name, number in counters.items():
            if number != (before := counted.get(name, 0)):
                known = name in self.counters or len(self.counters) < COUNTERS_LIMIT
                self.counters[name if known else OTHERS] += number - before

    def remote_of(self, op: Any) -> str:
        """Who is asked about this operation."""
        remote = self.policy.remote
        return remote if isinstance(remote, str) else told(remote(op))

    @property
    def looks_at_many(self) -> bool:
        """Whether runs are asked for together."""
        return self._batch is not None

    def joins_a_call(self, remote: str) -> bool:
        """Whether a look at this remote is part of a call that is made anyhow."""
        return self._batch is not None and self._batch.is_about_to_ask(remote)

    async def ask(self, limit_s: float, op: Any, context: LookContext, remote: str) -> Any:
        """One look, alone or together with others, within that time."""
        if self._batch is not None:
            return await self._batch.ask(op, context, remote, limit_s)
        return await self._look(limit_s, op, key=context.key, handle=context.handle, outcome=None, w=context)

    async def run(self, run: Run) -> Settlement:
        """One step of one run: what the engine calls."""
        lease = run.lease
        run.ends_by(None)  # until the first call of the step: each has its own deadline
        try:
            memory = decode(lease.memory or "{}")
        except msgspec.DecodeError as error:
            note = encode_json({"what": "failed", "error": f"its memory cannot be read: {error}"})
            return Ended(lease.id, lease.sequence, "failed", None, note)
        try:
            await self._learn()
            return await self._stepped(run, memory)
        except asyncio.CancelledError:
            if run.stop_reason is StopReason.CANCELED:
                # In the middle of something: nothing of it counts, and the next step, at once, begins with the cancel.
                return Again(lease.id, lease.sequence, 0.0, refund=True)
            raise
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            logger.exception("%s: no step could be made", lease.label)
            return Step(self, run, decode(lease.memory or "{}"), None).broken(error)

    async def _stepped(self, run: Run, memory: RunMemory) -> Settlement:
        lease = run.lease
        version = lease.version if memory.version is None else memory.version
        op: Any = read_args(lease.args)[0] if memory.op is None else memory.op
        migrated: dict[str, Any] | None = None
        if version != self.policy.version:
            try:
                op = self._migrated(version, op, memory)
                migrated = copy.deepcopy(memory.user)
            except BaseException as raised:  # noqa: BLE001 - the user's own migration, or none
                error = failure(run, raised)
                why = f"it was written by version {version}, this is version {self.policy.version}: {error}"
                logger.error("%s: needs code: %s", self.key_of(memory.run_id), why)
                return Step(self, run, memory, op).park(why, PARK_S)
        try:
            typed = self._op_type.convert(op)
        except Exception as error:  # noqa: BLE001 - whatever it is, no look can be made with it
            why = f"the operation does not fit {self.name}: {error}"
            return Step(self, run, memory, op).park(why, PARK_S)
        if memory.parked is not None:
            memory.parked = None
        step = Step(self, run, memory, typed)
        step.migrated = migrated
        run.overdue = step.overdue
        return await step.take()

    def _migrated(self, version: int, op: Any, memory: RunMemory) -> Any:
        # On copies: a migration that fails half-way must not leave half of its work in the row.
        op, user = copy.deepcopy((op, memory.user))
        while version != self.policy.version:
            if version not in self._migrations:
                raise BadInput(f"write @{self.name}.migrate({version}, …)")
            version, migration = self._migrations[version]
            op, user = migration(op, user) or (op, user)
        what = f"what migrate(…, {version}) returns"
        if not isinstance(user, dict):
            raise BadInput(f"{what}: the memory must be a dict, not {shown(user)}")
        user = as_json(user, what, MEMORY_LIMIT)
        memory.op = as_json(op, what)
        memory.version, memory.user = version, user
        return memory.op

    async def why_canceled(self, task_id: int) -> str | None:
        """What whoever canceled this run said, if anything."""
        try:
            task = await self._watches.task(task_id)
        except Exception as error:  # noqa: BLE001 - the cancel goes on without
            logger.warning("%s: cannot read why run %d was canceled: %s", self._where, task_id, error)
            return None
        said = [entry.get("why") for entry in (task.trail if task is not None else ()) if entry["what"] == "cancel"]
        return said[-1] if said and isinstance(said[-1], str) else None

    async def _learn(self) -> None:
        """How long earlier runs took, for cadences that want to know; asked for now and then."""
        if isinstance(self.policy.cadence, Growing):
            return
        now = asyncio.get_running_loop().time()
        if self._learned_at is not None and now - self._learned_at < LEARN_EVERY_S:
            return
        self._learned_at = now
        try:
            store = await self._watches.store()
            results = await store.last_results("watch", self.name)
        except Exception as error:  # noqa: BLE001 - the cadence knows less, and that is all
            logger.warning("%s: cannot read how long earlier runs took: %s", self._where, error)
            return
        self.durations_s = tuple(took for one in results if (took := _took_s(one)) is not None)


def _took_s(result: Any) -> float | None:
    took_s = result.get("took_s") if isinstance(result, dict) else None
    return float(took_s) if isinstance(took_s, (int, float)) else None
