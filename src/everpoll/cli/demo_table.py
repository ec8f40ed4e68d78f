"""The demo's adopted table: another program inserts rows, which everpoll claims and settles in place."""

import asyncio
import contextlib
import random
import sqlite3
from collections import Counter
from pathlib import Path

from everpoll.app import Everpoll
from everpoll.tables import Row, Table

TABLE = "demo_orders"
NEW_EVERY_S = 1.5
_CREATE = f"""create table {TABLE} (id integer primary key, status text not null default 'queued', item text not null,
    created_at text not null default current_timestamp, worker_id text, started_at text, finished_at text,
    error text)"""
_INDEX = f'create index "{TABLE}_queue" on {TABLE} (status, created_at)'
ITEMS = ("book", "lamp", "cup", "broken cup")


def add_table(app: Everpoll, database: Path) -> Counter[str]:
    """Create a table in the demo's file, adopt it, and register a loop that inserts rows; return the counts of ends."""
    rng = random.Random(3)  # noqa: S311 - the same story every time
    ends: Counter[str] = Counter()
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(_CREATE)
        connection.execute(_INDEX)
    orders = app.table(Table(TABLE, finished_at="finished_at", error="error", columns=("item",)), slots=2)

    @orders.handler
    async def pack(row: Row) -> None:
        await asyncio.sleep(0.3)
        if row["item"].startswith("broken"):
            ends["failed"] += 1
            raise ValueError(f"cannot pack a {row['item']}")
        ends["packed"] += 1

    @app.loop(every=NEW_EVERY_S, name="new orders", first=0, when_hidden=1)
    def insert() -> None:
        with contextlib.closing(sqlite3.connect(database, timeout=10)) as connection, connection:
            connection.execute(f"insert into {TABLE} (item) values (?)", (rng.choice(ITEMS),))  # noqa: S608 - our name

    return ends
