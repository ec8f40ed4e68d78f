"""Examination: facts about the database and the fleet for the doctor, gathered without changing anything.

    examiner ──▶ facts: each one gathered, or `NotGathered` with the reason ──▶ `everpoll.doctor` judges them

Promises: gathering needs no open store and raises nothing. If the database is away, the schema is missing or of another
release, or the role lacks a right, the facts that cannot be read are `NotGathered`. One query takes at most LIMIT_S.
Never writes to the database.
"""

import asyncio
from collections.abc import Awaitable
from typing import Literal, Protocol, TypeVar

from msgspec import Struct

from everpoll.errors import EverpollError, SchemaOutdated
from everpoll.stores.contract import QueueInfo, TaskInfo, WorkerInfo

T = TypeVar("T")

LIMIT_S = 2.0
"""How long one query may take."""
CONNECT_S = 5.0
"""How long the first connection may take."""
HEAD_LIMIT = 1_000
"""How many due tasks of each queue are read."""
LEASES_LIMIT = 10_000
KEYS_SHOWN = 5
LISTED_LIMIT = 100


class NotGathered(Struct, frozen=True):
    """A fact that could not be gathered."""

    why: str
    remedy: str = ""


class SchemaFacts(Struct, frozen=True, kw_only=True):
    """Which migrations the database has."""

    is_there: bool = True
    """False if the database has no table of everpoll."""
    missing: tuple[str, ...] = ()
    newer: tuple[str, ...] = ()
    """Migrations that this release does not know."""


class Plan(Struct, frozen=True, kw_only=True):
    """The plan of the database for a frequent query."""

    question: str
    index: str
    """The index that it should use."""
    is_used: bool
    plan: str
    """The plan as the database shows it, shortened."""


class IndexFacts(Struct, frozen=True, kw_only=True):
    """Which indexes of everpoll exist, and whether the planner uses them."""

    there: int
    missing: tuple[str, ...] = ()
    invalid: tuple[str, ...] = ()
    plans: tuple[Plan, ...] = ()
    remedies: tuple[str, ...] = ()
    """The statements that create the missing and the invalid indexes."""


class ClockFacts(Struct, frozen=True, kw_only=True):
    """How far the store's clock is ahead of the clock of this process; negative: behind."""

    ahead_s: float
    uncertain_s: float = 0.0
    """How long the answer took; the error of `ahead_s` is at most half of it."""
    of: Literal["database", "file"]
    """file: a file has no clock, so its newest instant is compared."""


class HeldTransaction(Struct, frozen=True, kw_only=True):
    """A transaction that has been open for long."""

    age_s: float
    holder: str
    """Role, application and address, or the name of a prepared transaction."""
    state: str
    remedy: str
    blocks_writers: bool = False
    """True if no other program can write until it ends."""


class TransactionFacts(Struct, frozen=True, kw_only=True):
    """Transactions that are older than the given age, the oldest first."""

    held: tuple[HeldTransaction, ...] = ()
    hidden: int = 0
    """Sessions of other roles whose transactions this role may not see."""
    grant: str = ""
    """The statement that lets this role see them."""


class TableRows(Struct, frozen=True, kw_only=True):
    """The rows of one table, as the database's statistics count them."""

    table: str
    live: int
    dead: int
    size_bytes: int
    vacuumed_s: float | None
    """How long ago the last vacuum ended; None if the statistics have none."""


class LogFacts(Struct, frozen=True, kw_only=True):
    """The write-ahead log of a SQLite file."""

    path: str
    log_bytes: int
    limit_bytes: int
    """The size to which a running writer limits it."""


class IntegrityFacts(Struct, frozen=True, kw_only=True):
    """The findings of SQLite's quick check."""

    findings: tuple[str, ...] = ()
    is_complete: bool = True
    """False if it did not end in time."""
    path: str
    size_bytes: int


class FileFacts(Struct, frozen=True, kw_only=True):
    """The permissions of a SQLite file."""

    path: str
    mode: int | None
    """None if this system has no such modes."""
    is_writable: bool
    is_folder_writable: bool


class ConnectionFacts(Struct, frozen=True, kw_only=True):
    """How many connections are in use, and how many are allowed."""

    used: int
    limit: int
    of: str
    """The server, the database or the role: whichever is nearest to its limit."""


class PushFacts(Struct, frozen=True, kw_only=True):
    """Whether a notification arrives."""

    arrives: bool
    took_s: float


class Held(Struct, frozen=True, kw_only=True):
    """The tasks that one incarnation holds."""

    incarnation: int
    tasks: int


class LeaseFacts(Struct, frozen=True, kw_only=True):
    """Leases by incarnation, and those that are past their deadline."""

    held: tuple[Held, ...] = ()
    overdue: int = 0
    most_overdue_s: float = 0.0


class DueTasks(Struct, frozen=True, kw_only=True):
    """Due tasks of one queue, kind, name and version that no worker has leased; the first HEAD_LIMIT of each queue.

    They include tasks that wait for their limit, and tasks that were set aside, which wait for a worker that registers
    their name.
    """

    queue: str
    kind: str
    name: str
    version: int = 1
    """The version of the arguments."""
    tasks: int
    oldest_s: float
    keys: tuple[str, ...] = ()
    """The keys of the oldest tasks."""


class Facts(Struct, frozen=True, kw_only=True):
    """All facts. None: this kind of store has no such fact."""

    place: str
    """The database, for people."""
    reached: str | NotGathered
    """The name and version of the database; `NotGathered` if it is away or refuses the connection."""
    schema: SchemaFacts | NotGathered
    indexes: IndexFacts | NotGathered
    clock: ClockFacts | NotGathered
    transactions: TransactionFacts | NotGathered
    leases: LeaseFacts | NotGathered
    workers: tuple[WorkerInfo, ...] | NotGathered
    queues: tuple[QueueInfo, ...] | NotGathered
    due: tuple[DueTasks, ...] | NotGathered
    listed: tuple[TaskInfo, ...] | NotGathered
    rows: tuple[TableRows, ...] | NotGathered | None = None
    connections: ConnectionFacts | NotGathered | None = None
    push: PushFacts | NotGathered | None = None
    log: LogFacts | NotGathered | None = None
    integrity: IntegrityFacts | NotGathered | None = None
    files: FileFacts | NotGathered | None = None


class Examiner(Protocol):
    """Gathers facts about one store."""

    async def examine(self, transaction_age_s: float, listed_kind: str) -> Facts:
        """Gather all facts. Transactions older than `transaction_age_s` are reported; the newest LISTED_LIMIT indexed
        tasks of the kind `listed_kind` are listed."""
        ...


SCHEMA_UNFIT = NotGathered("the schema does not fit this release", "run `everpoll migrate`")


def unseen(error: Exception, limit_s: float = LIMIT_S) -> NotGathered:
    """Return why a fact was not gathered; the remedy is taken from the text of the error."""
    if isinstance(error, SchemaOutdated):
        return SCHEMA_UNFIT
    if isinstance(error, TimeoutError):
        return NotGathered(f"there was no answer within {limit_s:g} s", "ask again when the database is less busy")
    for verb in ("run: ", "check ", "grant "):
        what, found, remedy = str(error).partition(f"; {verb}")
        if found:
            return NotGathered(what, f"{verb}{remedy}")
    return NotGathered(str(error) or type(error).__name__)


async def gathered(gathering: Awaitable[T], limit_s: float = LIMIT_S) -> T | NotGathered:
    """Wait for a fact, within the limit."""
    try:
        async with asyncio.timeout(limit_s):
            return await gathering
    except (EverpollError, TimeoutError) as error:
        return unseen(error, limit_s)


def nothing_seen(place: str, why: NotGathered, schema: SchemaFacts | NotGathered | None = None) -> Facts:
    """Return the facts about a database that does not answer, or is not there."""
    rest = NotGathered("the database does not answer", "see the check `database`")
    return Facts(
        place=place,
        reached=why,
        schema=rest if schema is None else schema,
        indexes=rest,
        clock=rest,
        transactions=rest,
        leases=rest,
        workers=rest,
        queues=rest,
        due=rest,
        listed=rest,
    )
