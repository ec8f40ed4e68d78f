"""A watch: the functions that start, look at, cancel and clean up after one kind of remote operation.

@app.watch(every=Backoff("2s", factor=2, cap="30s", jitter=0.2), budget=Budget("29m", looks=120))
async def shell_query(op: ShellQuery, w) -> Done | Fail | Wait: ...

@shell_query.start
async def start(op, key): ...
"""

import functools
import inspect
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from everpoll.engine.enqueuer import Enqueuer
from everpoll.engine.threads import DaemonThreads
from everpoll.errors import BadInput
from everpoll.policy import Backoff, Duration, seconds, shown, whole_number
from everpoll.stores.contract import NewEvent, NewTask
from everpoll.stores.contract import encode as encode_json
from everpoll.watches.context import is_id
from everpoll.watches.decisions.policy import CheckPolicy, Exhausted, RunPolicy
from everpoll.watches.extension import Extension
from everpoll.watches.functions import OperationType, UserFunction
from everpoll.watches.limits import as_json, short_text
from everpoll.watches.memory import Decision, RunMemory, encode
from everpoll.watches.options import NAME_LIMIT, WatchOptions, checked, text
from everpoll.watches.watch_run import WatchRun

if TYPE_CHECKING:
    from everpoll.watches.registry import Watches

Op = TypeVar("Op")
F = TypeVar("F", bound=Callable[..., Any])
ID_LIMIT = 200
DEFAULT_CHECK = Backoff("1.5s", factor=2, cap="8s", jitter=0)
Migration = Callable[[Any, dict[str, Any]], tuple[Any, dict[str, Any]] | None]


@dataclass(frozen=True, slots=True)
class Check:
    """A check that a look may ask for."""

    function: UserFunction
    tries: int
    every: Backoff
    exhausted: Exhausted


class Watch(Generic[Op]):
    """A registered watch: its functions and its policy. A call of it is a call of the look; `begin` begins a run."""

    def __init__(
        self, watches: "Watches", look: Callable[..., Any], every: Any, budget: Any, options: WatchOptions
    ) -> None:
        functools.update_wrapper(self, look)
        self._watches = watches
        self._function = look
        self.policy = checked(getattr(look, "__name__", "watch"), every, budget, options)
        self.name = self.policy.name
        self._where = f"watch {self.name!r}"
        self.op_type = OperationType(self._where, look)
        self.look_function = self._made("look", look)
        self.look_many_function: Callable[..., Any] | None = None
        self.start_function: UserFunction | None = None
        self.adopt_function: UserFunction | None = None
        self.cancel_function: UserFunction | None = None
        self.cleanup_function: UserFunction | None = None
        self.checks: dict[str, Check] = {}
        self.migrations: dict[int, tuple[int, Migration]] = {}
        self.ensures: list[tuple[float, Callable[[], Any]]] = []
        self.counters: Counter[str] = Counter()
        """Counts of this process, over all runs."""
        self.on_decision: list[Callable[[str, Decision], None]] = []
        """Functions that are called with each decision: for timelines."""
        self._run_policy: RunPolicy | None = None

    def __repr__(self) -> str:
        return f"<Watch {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the look function."""
        return self._function(*args, **kwargs)

    def start(self, function: F) -> F:
        """Start the operation. Called once the intent is stored; its return value is stored as `w.handle`."""
        self.start_function = self._once("start", self.start_function, function)
        return function

    def adopt(self, function: F) -> F:
        """Find the operation that was started with this key; return its handle or None. Called after a crash."""
        self.adopt_function = self._once("adopt", self.adopt_function, function)
        return function

    def cancel(self, function: F) -> F:
        """Ask the remote to cancel the operation."""
        self.cancel_function = self._once("cancel", self.cancel_function, function)
        return function

    def cleanup(self, function: F) -> F:
        """Remove what the operation left at the remote. Called after every outcome, never before."""
        self.cleanup_function = self._once("cleanup", self.cleanup_function, function)
        self._watches.rounds.extend()
        return function

    def verify(
        self, name: str, tries: int = 6, every: Backoff = DEFAULT_CHECK, exhausted: Exhausted = "failed"
    ) -> Callable[[F], F]:
        """Register a check that a look asks for with `return w.verify(name)`; a true result makes the run ready."""
        if name in self.checks:
            raise BadInput(f"{self._where}: the check {name!r} is registered already")
        text(f"{self._where}: verify", name, NAME_LIMIT)
        if not isinstance(every, Backoff):
            raise BadInput(f'{self._where}: verify({name!r}, every={shown(every)}): write Backoff("1.5s", cap="8s")')
        if exhausted not in {"failed", "ready"}:
            raise BadInput(f'{self._where}: verify({name!r}, exhausted={shown(exhausted)}): write "failed" or "ready"')
        number = whole_number(tries, name=f"{self._where}: tries", at_least=1, accepted="how often it is tried")

        def register(function: F) -> F:
            self._run_policy = None
            self.checks[name] = Check(self._made(f"verify({name!r})", function), number, every, exhausted)
            return function

        return register

    def look_many(self, function: F) -> F:
        """Look at all due runs in one call: the function gets a list of (op, w), and returns the verdicts in order."""
        self._run_policy = None
        if self.look_many_function is not None:
            raise BadInput(f"{self._where}: look_many is registered already")
        if not inspect.iscoroutinefunction(function):
            raise BadInput(f"{self._where}: look_many must be an async function")
        self.look_many_function = function
        return function

    def migrate(self, old: int, new: int) -> Callable[[Migration], Migration]:
        """Migrate rows from one version to another: the function gets (op, memory), and returns or changes them."""

        def register(function: Migration) -> Migration:
            if inspect.iscoroutinefunction(function):
                raise BadInput(f"{self._where}: migrate({old}, {new}) must be a plain function: write def")
            if old in self.migrations or new <= old:
                raise BadInput(
                    f"{self._where}: migrate({old}, {new}): write one migration for each old version, to a newer one"
                )
            self.migrations[old] = (new, function)
            return function

        return register

    def ensure(self, every: Duration = "1m") -> Callable[[F], F]:
        """List the business rows that should have a run: the function returns (op, id) or (op, id, handle) for each.

        Every worker calls it about once per `every`, and begins a run for each row that has none.
        """
        every_s = seconds(every, name=f"{self._where}: every", positive=True)

        def register(function: F) -> F:
            self.ensures.append((every_s, function))
            self._watches.rounds.extend()
            return function

        return register

    @property
    def threads(self) -> DaemonThreads:
        """The threads in which plain functions run."""
        return self._watches.threads

    def _made(self, what: str, function: Callable[..., Any]) -> UserFunction:
        return UserFunction(self._where, what, function, lambda: self.threads)

    def _once(self, what: str, known: UserFunction | None, function: Callable[..., Any]) -> UserFunction:
        self._run_policy = None
        if known is not None:
            raise BadInput(f"{self._where}: {what} is registered already")
        return self._made(what, function)

    async def begin(
        self,
        op: Op,
        id: str | None = None,  # noqa: A002 - the API's word
        *,
        handle: Any = None,
        delay: Duration = 0,
    ) -> WatchRun:
        """Begin a run, which watches one operation; with an id that a run has already, return that run.

        An id names the same run as long as its history is kept (30 days after its end, unless the app sets another
        time). After that, the same id begins a new run. Its start gets the same key, so a remote that supports
        idempotency keys starts nothing twice. A `handle` means that the operation was started elsewhere: only looks
        follow.
        """
        run_id = uuid.uuid4().hex if id is None else id
        task = self.new_task(op, run_id, handle, seconds(delay, name=f"{self._where}: delay"))
        enqueued = await (await self.enqueuer()).one(task)
        return WatchRun(self._watches, self.name, run_id, enqueued.id, is_new=enqueued.is_new)

    async def enqueuer(self) -> Enqueuer:
        """Return the enqueuer of the app."""
        return await self._watches.enqueuer()

    def new_task(self, op: Any, run_id: str, handle: Any = None, delay_s: float = 0.0) -> NewTask:
        """Return the task of a new run, checked."""
        text(f"{self._where}: id", run_id, ID_LIMIT)
        if handle is not None and not is_id(handle):
            raise BadInput(f"{self._where}: handle={shown(handle)} is not a handle; leave it out to call start")
        is_started = self.start_function is None or is_id(handle)
        memory = RunMemory(
            run_id,
            phase="looking" if is_started else "intent",
            started_elsewhere=is_started,
            handle=as_json(handle, f"{self._where}: handle") if is_id(handle) else None,
            version=self.policy.version,
            budget_s=self.policy.budget.time_s,
            budget_looks=self.policy.budget.looks,
            seq=1,
        )
        return NewTask(
            name=self.name,
            args=self.op_type.encode(op),
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
        """Return the idempotency key of a run, which start, adopt, cancel and cleanup get."""
        return f"{self.name}:{run_id}"

    def remote_of(self, op: Any) -> str:
        """Return the name of the remote of this operation."""
        remote = self.policy.remote
        return remote if isinstance(remote, str) else short_text(remote(op))

    def run_policy(self, extension: Extension) -> RunPolicy:
        """Return the policy for the decisions about a run whose budget has this extension."""
        if self._run_policy is None:
            self._run_policy = self._made_policy()
        made = self._run_policy
        return replace(made, budget=extension.grown(made.own_budget)) if extension else made

    def _made_policy(self) -> RunPolicy:
        policy = self.policy
        return RunPolicy(
            budget=policy.budget,
            own_budget=policy.budget,
            outage_s=policy.outage_s,
            unexpected_errors=policy.unexpected_errors,
            cancel_s=policy.cancel_s,
            cleanup=policy.cleanup,
            cleanup_every=policy.cleanup_every,
            can_start=self.start_function is not None,
            can_adopt=self.adopt_function is not None,
            can_cancel=self.cancel_function is not None,
            can_clean=self.cleanup_function is not None,
            has_look_many=self.look_many_function is not None,
            checks={name: CheckPolicy(one.tries, one.every, one.exhausted) for name, one in self.checks.items()},
        )
