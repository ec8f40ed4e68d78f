"""Reads and writes of what is recorded about services go through keys, and cost the same beside a long history."""

from collections.abc import Callable
from typing import Any

import pytest

from everpoll.drivers.sqlite.bulk import ROWS
from everpoll.drivers.sqlite.lane import Op
from everpoll.stores.health import Retention
from everpoll.stores.health_answers import history_request
from everpoll.stores.health_ranges import for_buckets, for_summary
from everpoll.stores.sqlite import (
    SqliteStore,
    health_figures,
    health_reading,
    health_recording,
    health_upkeep,
)
from stores.health_looks import DAY_S, HOUR_S, START, dependency, error, look, looks_every, record_all, roll_up_all

# A scan of one of these would read the history of all services.
LARGE = ("looks", "packed", "minutes", "hours", "days", "errors", "dependencies")
SCANS = [
    health_figures.EVERY_LOOK,  # all services are asked for: what is not rolled up is read whole
]
READS: dict[str, Callable[[Any], object]] = {
    "looks": lambda con: health_reading.looks(con, 1, history_request(START, START + 2 * DAY_S, 100)),
    "last looks": lambda con: health_reading.last_looks(con, ["billing"], 50),
    "dependencies": lambda con: health_reading.dependencies(con, 1),
    "errors": lambda con: health_reading.errors(con, 1, "db", 10),
    "latencies": lambda con: health_reading.latencies(con, 1, "db", history_request(START, START + DAY_S, 100)),
    "summary": lambda con: health_figures.found_for(con, 1, for_summary(START + 90, START + DAY_S + 7_300)),
    "hours": lambda con: health_figures.found_for(con, 1, for_buckets("hour", START, START + DAY_S)),
    "minutes": lambda con: health_figures.found_for(con, 1, for_buckets("minute", START, START + HOUR_S)),
    "availability of a few": lambda con: health_figures.availability(con, ["billing"], START + 3_700),
    "nothing to prune": lambda con: health_upkeep.prune(con, START, Retention()),
    "nothing to roll up": lambda con: health_upkeep.roll_up_some(con, 0, 0),
}


def statements() -> list[str]:
    modules = (health_figures, health_reading, health_recording, health_upkeep)
    values = [value for module in modules for name, value in vars(module).items() if name.isupper()]
    texts = [value for value in values if isinstance(value, str)] + list(health_upkeep.FORGET)
    texts += [*health_upkeep.OLD_BUCKETS.values(), *health_upkeep.DROP_BUCKET.values()]
    verbs = ("select", "insert", "update", "delete", "with", "replace")
    return sorted({_with_a_row(text) for text in texts if text.split()[0] in verbs})


def _with_a_row(text: str) -> str:
    """A statement that is written for any number of rows, for one."""
    columns = text[text.find("(") : text.find(")")].count(",") + 1
    return text.replace(ROWS, f"({', '.join('?' * columns)})")


async def plan_of(store: SqliteStore, statement: str) -> list[str]:
    names = ("look", "rolled", "at_ms", "service", "from_ms", "to_ms", "limit", "services", "n", "name", "hours")
    bound: Any = dict.fromkeys(names, 1) if ":" in statement else (1,) * statement.count("?")
    return await store._read(lambda con: [row[3] for row in con.execute(f"explain query plan {statement}", bound)])


async def test_no_statement_scans_a_history(store: SqliteStore) -> None:
    assert len(statements()) > 40
    for statement in statements():
        plan = [step for step in await plan_of(store, statement) if "VIRTUAL TABLE" not in step]
        scanned = [_table_of(step, statement) for step in plan if step.startswith("SCAN")]
        large = [table for table in scanned if any(f"health_{name}" in table for name in LARGE)]
        assert large == [] or statement in SCANS, (statement, plan)


def _table_of(step: str, statement: str) -> str:
    """The table that a step of a plan names, which may be by its letter."""
    name = step.split()[1]
    for word, letter in zip(statement.split(), statement.split()[1:], strict=False):
        if letter.strip(",)") == name and word.startswith("everpoll_health_"):
            return word
    return name


@pytest.mark.parametrize("is_analyzed", [False, True])
@pytest.mark.parametrize("name", READS)
async def test_beside_many_other_services_it_costs_the_same(store: SqliteStore, name: str, is_analyzed: bool) -> None:
    """Counted in SQLite's own steps, so that no clock decides. Also with statistics of small tables."""
    rich = look(HOUR_S, dependencies=(dependency("db"),), errors=(error("db"),), latencies={"db": 1.0, "cache": 2.0})
    await record_all(store.health, [*looks_every(600, 300), rich])
    await roll_up_all(store.health)
    await record_all(store.health, looks_every(60, 20, first_s=3 * DAY_S))
    for at_s in (0, HOUR_S, 3 * DAY_S):
        first = [f"first-{number}" for number in range(20)]
        changes: Any = {"dependencies": (dependency("db"),), "errors": (error("db"),)}
        await store.health.record([look(at_s, name, **changes) for name in first])
        await roll_up_all(store.health, START + DAY_S)
    if is_analyzed:
        await store._write(Op(lambda con: con.execute("analyze").fetchall()))
    await _steps(store, READS[name])
    alone = await _steps(store, READS[name])
    others = [f"service-{number}" for number in range(60)]
    for at_s in range(0, 40 * 3_600, 3_600):
        await store.health.record([look(at_s, other, errors=(error("db"),)) for other in others])
    await roll_up_all(store.health, START + 2 * DAY_S)
    for at_s in range(0, 600, 60):
        later = 3 * DAY_S + at_s
        await store.health.record([look(later, other, dependencies=(dependency("db"),)) for other in others])
    await _steps(store, READS[name])
    beside = await _steps(store, READS[name])
    # One narrow row a service may be passed over to find the next one that has something to roll up.
    allowed = 60 if name == "nothing to roll up" else 12
    assert beside <= alone + allowed, name


async def _steps(store: SqliteStore, read: Callable[[Any], object]) -> int:
    """Virtual machine instructions, to the nearest ten; whatever is written is rolled back."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    def run(con: Any) -> None:
        con.set_progress_handler(count, 10)
        con.execute("savepoint here")
        read(con)
        con.execute("rollback to here")
        con.set_progress_handler(None, 0)

    await store._write(Op(run))
    return counted


async def test_recording_changes_few_pages(store: SqliteStore) -> None:
    """A batch about 200 of 1,000 services fills the pages at the end, and not one for each service."""
    names = [f"service-{number:04}" for number in range(1_000)]
    for at_s in range(0, 600, 30):
        await store.health.record([look(at_s, name) for name in names])
    some = names[::5]

    async def pages() -> int:
        def count(con: Any) -> int:
            con.execute("pragma wal_checkpoint(truncate)").fetchall()
            return 0

        await store._read(count)
        before = store._address.path.with_name(store._address.path.name + "-wal").stat().st_size
        await store.health.record([look(700, name) for name in some])
        return (store._address.path.with_name(store._address.path.name + "-wal").stat().st_size - before) // 4_096

    assert await pages() < 60
