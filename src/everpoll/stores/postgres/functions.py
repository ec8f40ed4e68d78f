"""Installs the SQL functions as one set, named by a digest of its content: each release has its own set.

A set is named by a digest of its files. `everpoll.lease(…)` in a statement or in another function means the one of this
release, `everpoll.lease_<digest>`. So a changed file is a new set: installing it changes nothing for workers of the
release before, which go on calling theirs. Tables are not versioned: they change by migrations.

Promises: sets are installed whole, in the caller's transaction. The five newest are kept, and all that are younger than
a month; older ones are dropped.
"""

import hashlib
import re
from functools import cache
from importlib.resources import files

from everpoll.drivers.postgres.lane import Connection
from everpoll.stores.health_batches import DependencyRow
from everpoll.stores.health_chunks import FIGURES
from everpoll.stores.limit_visits import VISITS
from everpoll.stores.postgres.health_sums import CUT_LOOKS, SUMS_OF_LOOKS, sums_of
from everpoll.stores.postgres.lease_sql import DETAILS, DIFFER, HAS_DETAILS, WAITED
from everpoll.stores.set_aside import SET_ASIDE, UNKNOWN_JOB
from everpoll.stores.task_events import REPLACED, canceled_event

# Columns that a task takes with it into history as they are.
KEPT = (
    *("due_at", "created_at", "owner", "started_at", "timeout_s", "sequence", "rank", "version", "cancels_itself"),
    *("indexed", "kind", "queue", "name", "key", "args", "progress"),
    *("limit_key", "limit_running", "limit_starts", "limit_per_s", "then_id", "takes"),
)
# Defined in this order: a function in SQL is checked when it is made, so what it calls must be there.
FILES = (
    *("trail", "partitions", "counts", "lookup", "feed", "flows", "move", "promote", "limited", "lease", "lease_run"),
    *("lease_limited", "recover", "settle", "rescue", "beat", "cancel", "revise", "retry", "forget", "pause"),
    *("set_aside", "unique", "enqueue", "together", "own_transaction", "health_record", "health_figures"),
    *("health_looks", "health_dependencies", "health_upkeep"),
)

TABLE = """create table if not exists everpoll.function_sets (
    digest text primary key, installed_at timestamptz not null default clock_timestamp())"""
IS_INSTALLED = "select exists (select from everpoll.function_sets where digest = $1)"
INSTALLED = "insert into everpoll.function_sets (digest) values ($1)"
OUTDATED = """delete from everpoll.function_sets where installed_at < now() - interval '30 days' and digest not in (
    select digest from everpoll.function_sets order by installed_at desc limit 5) returning digest"""
OF_SET = """select p.oid::regprocedure::text from pg_proc p
    where p.pronamespace = 'everpoll'::regnamespace and p.proname like '%\\_' || $1"""

_LISTS = {
    "kept": ", ".join(KEPT),
    "g.kept": ", ".join(f"g.{column}" for column in KEPT),
    "dependency": ", ".join(DependencyRow._fields),
    "d.dependency": ", ".join(f"d.{column}" for column in DependencyRow._fields),
    "new dependency": ", ".join(f"{column} = excluded.{column}" for column in DependencyRow._fields),
    "d.figures": ", ".join(f"d.{figure}" for figure in FIGURES),
    "h.figures": ", ".join(f"h.{figure}" for figure in FIGURES),
    "sums of d": sums_of("d"),
    "sums of h": sums_of("h"),
    "sums of looks": SUMS_OF_LOOKS,
    "cut looks": CUT_LOOKS,
    "canceled meanwhile": canceled_event().body,
    "replaced": REPLACED,
    "visits": str(VISITS),
    "lock of keys": "7340119",
    "details": DETAILS,
    "has details": HAS_DETAILS,
    "differ": DIFFER,
    "waited": WAITED,
    "unknown job": UNKNOWN_JOB,
    "set aside": SET_ASIDE,
}
"""Lists of columns, expressions of several files, and texts that all stores share: `{name}` in the files."""

_CREATED = re.compile(r"create function everpoll\.(\w+)\(")


@cache
def _sources() -> str:
    folder = files(__package__) / "functions"
    text = "\n".join((folder / f"{name}.sql").read_text("utf-8") for name in FILES)
    for mark, columns in _LISTS.items():
        text = text.replace(f"{{{mark}}}", columns)
    return text


@cache
def digest() -> str:
    """Return the digest that names the set of this release."""
    return hashlib.sha256(_sources().encode()).hexdigest()[:8]


@cache
def _calls() -> re.Pattern[str]:
    return re.compile(rf"\beverpoll\.({'|'.join(_CREATED.findall(_sources()))})\(")


def versioned(sql: str) -> str:
    """Return this SQL with each call of a function replaced by a call of this release's function."""
    return _calls().sub(rf"everpoll.\1_{digest()}(", sql)


async def is_installed(connection: Connection) -> bool:
    """Return whether the database has the set of this release."""
    if not await connection.fetchval("select to_regclass('everpoll.function_sets') is not null"):
        return False
    return bool(await connection.fetchval(IS_INSTALLED, digest()))


async def install(connection: Connection) -> None:
    """Install the set of this release if it is missing; drop old sets that newer ones replaced long ago."""
    await connection.execute(TABLE)
    if await connection.fetchval(IS_INSTALLED, digest()):
        return
    await connection.execute(versioned(_sources()))
    await connection.execute(INSTALLED, digest())
    for row in await connection.fetch(OUTDATED):
        for (signature,) in await connection.fetch(OF_SET, row[0]):
            # Cascades to functions of the same set that call it; the loop may meet one that is gone already.
            await connection.execute(f"drop function if exists {signature} cascade")
