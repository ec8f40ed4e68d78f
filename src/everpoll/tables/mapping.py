"""What the user says about a table: which column means what, and which words its status takes.

    queued ──claim──▶ running ──▶ done · failed · canceled
       ▲                 │
       └── give-back, retry, rescue

Pure: it checks the words, and leaves it to the database's own file to find out whether the columns are there.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from everpoll.errors import BadInput
from everpoll.policy import Backoff, Duration, seconds, shown, whole_number

Guard = Literal["skip_locked", "status", "version", "timestamp"]
GUARDS: tuple[Guard, ...] = ("skip_locked", "status", "version", "timestamp")
DEFAULT_BACKOFF = Backoff("5s", factor=2, cap="5m", jitter=0.1)
NAME_LIMIT = 63
"""What Postgres keeps of an identifier."""


@dataclass(frozen=True, slots=True)
class Table:
    """The user's own table as a queue: `Table("execution_jobs", queued="queued", done="completed", …)`.

    Options that name a column may be None where the table has no such column.
    """

    name: str
    """With its schema, if it is in another one than the connection's own: `"app.execution_jobs"`."""
    _: KW_ONLY
    key: str = "id"
    """Identifies a row: a uuid, a whole number or a text."""
    status: str = "status"
    queued: str = "queued"
    running: str = "running"
    done: str = "completed"
    failed: str = "failed"
    canceled: str | None = None
    """The word for a row whose handler returned `Cancel`; None: such a row has failed."""
    order_by: str = "created_at"
    """Oldest first (A4)."""
    worker: str = "worker_id"
    started_at: str = "started_at"
    """With `worker`, the fence: whoever does not find its own values there any more changes nothing."""
    finished_at: str | None = None
    error: str | None = None
    heartbeat: str | None = None
    """Without it, a row whose worker was killed stays as it is until somebody resets it by hand."""
    retries: str | None = None
    """How often the row was tried in vain. Without it a row that fails once has failed."""
    priority: str | None = None
    """Higher first, then the oldest."""
    due_at: str | None = None
    """Not before this time; empty means now. Without it a retry follows at once, and `Snooze` is not to be had."""
    version: str = "version"
    """With guard="version": a number that every change of everpoll's raises by one."""
    updated_at: str = "updated_at"
    """With guard="timestamp": an instant that every change of everpoll's sets."""
    guard: Guard = "skip_locked"
    heartbeat_every: Duration = "30s"
    stale_after: Duration = "5m"
    attempts: int = 3
    backoff: Backoff = DEFAULT_BACKOFF
    timeout: Duration | None = None
    """How long one run may take; then it has failed, as if it had raised."""
    columns: tuple[str, ...] = ()
    """What the handler reads. Nothing else is selected (A6)."""
    results: tuple[str, ...] = ()
    """What the handler may write: it returns a dict with some of these columns."""

    def __post_init__(self) -> None:
        for option in ("columns", "results"):
            value = getattr(self, option)
            if isinstance(value, str) or not all(isinstance(one, str) for one in value):
                raise BadInput(f"table {shown(self.name)}: {option}={shown(value)}: write a tuple of column names")
            object.__setattr__(self, option, tuple(value))
        self._check()

    @property
    def parts(self) -> tuple[str, ...]:
        """The schema, if it was given, and the name."""
        return tuple(self.name.split("."))

    @property
    def heartbeat_every_s(self) -> float:
        """In seconds."""
        return seconds(self.heartbeat_every, name="heartbeat_every", positive=True)

    @property
    def stale_after_s(self) -> float:
        """In seconds."""
        return seconds(self.stale_after, name="stale_after", positive=True)

    @property
    def timeout_s(self) -> float | None:
        """In seconds."""
        return None if self.timeout is None else seconds(self.timeout, name="timeout", positive=True)

    @property
    def used(self) -> dict[str, str]:
        """Every column that is used, by what it is used for; `columns` and `results` by their own names."""
        roles = ["key", "status", "order_by", "worker", "started_at", "finished_at", "error", "heartbeat", "retries"]
        roles += ["priority", "due_at"]
        roles += {"version": ["version"], "timestamp": ["updated_at"]}.get(self.guard, [])
        used = {role: getattr(self, role) for role in roles if getattr(self, role) is not None}
        return used | {one: one for one in (*self.columns, *self.results) if one not in used}

    def _check(self) -> None:
        where = f"table {shown(self.name)}"
        if not isinstance(self.name, str) or len(self.parts) > 2:
            raise BadInput(f'{where}: write its name, or with its schema: "public.execution_jobs"')
        for what, name in [("name", one) for one in self.parts] + list(self.used.items()):
            if not isinstance(name, str) or not name or len(name.encode()) > NAME_LIMIT or "\x00" in name:
                raise BadInput(f"{where}: {what}={shown(name)}: write the name of a column, up to {NAME_LIMIT} bytes")
        if self.guard not in GUARDS:
            raise BadInput(f"{where}: guard={shown(self.guard)}: write one of {', '.join(GUARDS)}")
        words = [self.queued, self.running, self.done, self.failed, *([self.canceled] if self.canceled else [])]
        if not all(isinstance(word, str) and word for word in words):
            raise BadInput(f"{where}: queued, running, done and failed are words of its status column")
        if len({self.queued, self.running}) < 2 or {self.queued, self.running} & {self.done, self.failed}:
            raise BadInput(
                f"{where}: queued, running and the ends must be different words; they are {', '.join(words)}"
            )
        whole_number(
            self.attempts, name=f"{where}: attempts", at_least=1, accepted="how many attempts there are in all"
        )
        if not isinstance(self.backoff, Backoff):
            raise BadInput(f'{where}: backoff={shown(self.backoff)}: write Backoff("5s", factor=2, cap="5m")')
        if self.heartbeat_every_s * 2 > self.stale_after_s:
            raise BadInput(f"{where}: stale_after must be at least twice heartbeat_every, or live workers look dead")
        _ = self.timeout_s
