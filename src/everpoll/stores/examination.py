"""What a doctor asks a store: facts about the database and the fleet, gathered without changing anything.

    examiner ──▶ facts: each one gathered, or `NotGathered` with the reason ──▶ `everpoll.doctor` judges them

Promises: gathering needs no open store and raises nothing. A database that is away, a schema that is missing or of
another release, and a role without the right to look: each makes `NotGathered` of the facts that need more. One
question takes LIMIT_S at most. Never writes to the database.
"""

import asyncio
from collections.abc import Awaitable
from typing import Literal, Protocol, TypeVar

from msgspec import Struct

from everpoll.errors import EverpollError, SchemaOutdated
from everpoll.stores.contract import QueueInfo, TaskInfo, WorkerInfo

T = TypeVar("T")

LIMIT_S = 2.0
"""How long one question may take."""
CONNECT_S = 5.0
"""How long the first connection may take."""
HEAD_LIMIT = 1_000
"""How many due tasks of each queue are looked at."""
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
    """False: it has no table of everpoll."""
    missing: tuple[str, ...] = ()
    newer: tuple[str, ...] = ()
    """Migrations that this release does not know."""


class Plan(Struct, frozen=True, kw_only=True):
    """How the database would answer a frequent question."""

    question: str
    index: str
    """The index that it should use."""
    is_used: bool
    plan: str
    """In the database's own words, shortened."""


class IndexFacts(Struct, frozen=True, kw_only=True):
    """Which indexes of everpoll are there, and whether the planner uses them."""

    there: int
    missing: tuple[str, ...] = ()
    invalid: tuple[str, ...] = ()
    plans: tuple[Plan, ...] = ()
    remedies: tuple[str, ...] = ()
    """The statements that make what is missing or invalid."""


class ClockFacts(Struct, frozen=True, kw_only=True):
    """How far the store's clock is ahead of the clock of this process; negative: behind."""

    ahead_s: float
    uncertain_s: float = 0.0
    """The answer took this long, so the difference is known to half of it."""
    of: Literal["database", "file"]
    """file: it has no clock, and its newest instant is compared."""


class HeldTransaction(Struct, frozen=True, kw_only=True):
    """A transaction that is open for long."""

    age_s: float
    holder: str
    """Role, application and address, or the name of a prepared transaction."""
    state: str
    remedy: str
    blocks_writers: bool = False
    """No other program can write until it ends."""


class TransactionFacts(Struct, frozen=True, kw_only=True):
    """Transactions that are older than asked for, the oldest first."""

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
    """How long ago the last vacuum ended; None: never, since the statistics began."""


class LogFacts(Struct, frozen=True, kw_only=True):
    """The write-ahead log of a SQLite file."""

    path: str
    log_bytes: int
    limit_bytes: int
    """Up to which a running writer keeps it."""


class IntegrityFacts(Struct, frozen=True, kw_only=True):
    """What SQLite's quick check found."""

    findings: tuple[str, ...] = ()
    is_complete: bool = True
    """False: it did not end in time."""
    path: str
    size_bytes: int


class FileFacts(Struct, frozen=True, kw_only=True):
    """The permissions of a SQLite file."""

    path: str
    mode: int | None
    """None: this system has no such modes."""
    is_writable: bool
    is_folder_writable: bool


class ConnectionFacts(Struct, frozen=True, kw_only=True):
    """How many connections are in use, and how many there may be."""

    used: int
    limit: int
    of: str
    """What sets the limit: the server, the database or the role, whichever is nearest to its limit."""


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
    """Due tasks of one queue, kind, name and version that no worker has leased; of each queue the first HEAD_LIMIT.

    Among them those that wait for their limit, and those that workers have set aside: they wait for a worker that
    registers their name.
    """

    queue: str
    kind: str
    name: str
    version: int = 1
    """Of the arguments."""
    tasks: int
    oldest_s: float
    keys: tuple[str, ...] = ()
    """Of the oldest."""


class Facts(Struct, frozen=True, kw_only=True):
    """Everything that was gathered. None: this kind of store has no such fact."""

    place: str
    """The database, for people."""
    reached: str | NotGathered
    """What answered; `NotGathered`: the database is away, or refuses."""
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
        """Gather everything. `transaction_age_s`: the age from which on a transaction is reported. `listed_kind`: the
        kind of indexed tasks of which the newest LISTED_LIMIT are listed."""
        ...


SCHEMA_UNFIT = NotGathered("the schema does not fit this release", "run `everpoll migrate`")


def unseen(error: Exception, limit_s: float = LIMIT_S) -> NotGathered:
    """Return why a fact was not gathered; the words of an error of ours say what to do."""
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
