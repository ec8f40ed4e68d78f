"""The user's mapping of a table: which column has which role, and which words its status takes.

    queued ──claim──▶ running ──▶ done · failed · canceled
       ▲                 │
       └── hand back, retry, rescue

Pure: it checks the mapping itself. Whether the columns exist, the modules of each database find out.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from everpoll.errors import BadInput
from everpoll.policy import Backoff, Duration, seconds, shown, whole_number

Guard = Literal["skip_locked", "status", "version", "timestamp"]
GUARDS: tuple[Guard, ...] = ("skip_locked", "status", "version", "timestamp")
COMPARED = {"version": "version", "timestamp": "updated_at"}
"""The role of the column that a guard compares beside the status; the other guards compare none."""
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
    """Oldest first."""
    worker: str = "worker_id"
    started_at: str = "started_at"
    """With `worker`, the fence: a worker that does not find its own values there changes nothing."""
    finished_at: str | None = None
    error: str | None = None
    heartbeat: str | None = None
    """Without it, a row whose worker was killed stays `running` until you reset it by hand."""
    retries: str | None = None
    """How many attempts have failed. Without it a row fails for good with its first failure."""
    priority: str | None = None
    """Higher first, then the oldest."""
    due_at: str | None = None
    """Run not before this time; empty means now. Without it a retry follows at once, and `Snooze` is refused."""
    version: str = "version"
    """With guard="version": a number that claim, end, hand-back and rescue raise by one; a heartbeat does not."""
    updated_at: str = "updated_at"
    """With guard="timestamp": an instant that claim, end, hand-back and rescue set; a heartbeat does not."""
    guard: Guard = "skip_locked"
    heartbeat_every: Duration = "30s"
    stale_after: Duration = "5m"
    attempts: int = 3
    backoff: Backoff = DEFAULT_BACKOFF
    timeout: Duration | None = None
    """How long one run may take; a longer one counts as a failure."""
    columns: tuple[str, ...] = ()
    """What the handler reads. Nothing else is selected."""
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
    def words(self) -> tuple[str, ...]:
        """Every word that everpoll writes into the status column."""
        words = (self.queued, self.running, self.done, self.failed)
        return tuple(dict.fromkeys(words if self.canceled is None else (*words, self.canceled)))

    @property
    def heartbeat_every_s(self) -> float:
        """`heartbeat_every` in seconds."""
        return seconds(self.heartbeat_every, name="heartbeat_every", positive=True)

    @property
    def stale_after_s(self) -> float:
        """`stale_after` in seconds."""
        return seconds(self.stale_after, name="stale_after", positive=True)

    @property
    def timeout_s(self) -> float | None:
        """`timeout` in seconds; None: no limit."""
        return None if self.timeout is None else seconds(self.timeout, name="timeout", positive=True)

    @property
    def used(self) -> dict[str, str]:
        """Every column that the mapping uses, by its role. The role of a column that only the handler uses is `column
        NAME`.
        """
        roles = ["key", "status", "order_by", "worker", "started_at", "finished_at", "error", "heartbeat", "retries"]
        roles += ["priority", "due_at"]
        roles += [COMPARED[self.guard]] if self.guard in COMPARED else []
        used = {role: getattr(self, role) for role in roles if getattr(self, role) is not None}
        named = set(used.values())
        return used | {f"column {one}": one for one in (*self.columns, *self.results) if one not in named}

    def _check(self) -> None:
        where = f"table {shown(self.name)}"
        if not _is_text(self.name) or len(self.parts) > 2:
            raise BadInput(f'{where}: write its name, or with its schema: "public.execution_jobs"')
        for what, name in [("name", one) for one in self.parts] + list(self.used.items()):
            if not _is_text(name) or len(name.encode()) > NAME_LIMIT:
                raise BadInput(f"{where}: {what}={shown(name)}: write the name of a column, up to {NAME_LIMIT} bytes")
        if self.guard not in GUARDS:
            raise BadInput(f"{where}: guard={shown(self.guard)}: write one of {', '.join(GUARDS)}")
        self._check_written(where)
        words = [self.queued, self.running, self.done, self.failed, *([] if self.canceled is None else [self.canceled])]
        if not all(map(_is_text, words)):
            raise BadInput(f"{where}: queued, running, done, failed and canceled are words of its status column")
        if len({self.queued, self.running}) < 2 or {self.queued, self.running} & set(words[2:]):
            raise BadInput(
                f"{where}: queued, running and the ends must be different words; they are {', '.join(words)}"
            )
        whole_number(
            self.attempts, name=f"{where}: attempts", at_least=1, accepted="how many attempts there are in all"
        )
        if not isinstance(self.backoff, Backoff):
            raise BadInput(f'{where}: backoff={shown(self.backoff)}: write Backoff("5s", factor=2, cap="5m")')
        # Rounded: three times 0.1 s is a little more than 0.3 s.
        if round(self.heartbeat_every_s * 3 - self.stale_after_s, 9) > 0:
            raise BadInput(
                f"{where}: stale_after must be at least three times heartbeat_every, or live workers look dead"
            )
        _ = self.timeout_s

    def _check_written(self, where: str) -> None:
        """Refuse a column with two roles: each is written for one role, and never the key nor what orders the queue."""
        fixed = {"key": self.key, "order_by": self.order_by, "priority": self.priority}
        written = [(use, name) for use, name in self.used.items() if use not in fixed and not use.startswith("column ")]
        taken = {name: use for use, name in fixed.items() if name is not None}
        for use, name in [*written, *(("results", name) for name in dict.fromkeys(self.results))]:
            if name in taken:
                raise BadInput(f"{where}: {shown(name)} is named as {taken[name]} and as {use}: one column, one use")
            taken[name] = use


def _is_text(value: object) -> bool:
    """Return True if the value is a text that a database can store."""
    return isinstance(value, str) and value != "" and "\x00" not in value
