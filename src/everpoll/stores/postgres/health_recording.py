"""Recording looks: one function call for a batch, see `functions/health.sql`.

A look that is not newer than what is rolled up of its service may be in there: such a batch is checked, look by look,
while no roll-up can come in between. That is what happens to a batch that is written again long after it was.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from everpoll.drivers.postgres.lane import Connection, Lane
from everpoll.stores.contract import encode
from everpoll.stores.health_batches import ServiceBatch
from everpoll.stores.health_chunks import HOUR_MS, LookRow, unpack_looks
from everpoll.stores.health_ranges import Horizon
from everpoll.stores.postgres.functions import versioned

RECORD = versioned(
    """select ids, late from everpoll.record_looks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
        $11::text::json, $12::text::json)"""
)
HORIZON = "select looks, minutes, hours, errors_ms from everpoll.health_horizon"
LOCK = "select 1 from everpoll.health_services where id = any($1::int[]) order by id for no key update"
PACKED = """select p.service, p.hour, p.looks from unnest($1::int[], $2::int[]) n(hour, service) cross join lateral (
    select * from everpoll.health_packed k where k.hour = n.hour and k.service = n.service limit 1) p"""


class Rows(NamedTuple):
    """A batch as the function takes it."""

    names: list[str]
    places: list[int]
    looks: list[LookRow]
    dependencies: list[dict[str, Any]]
    errors: list[dict[str, Any]]

    def call(self, *, is_checked: bool) -> list[Any]:
        """Return the statement and its arguments."""
        columns = zip(*self.looks, strict=True) if self.looks else [()] * len(LookRow._fields)
        # A column without a value is null: the driver looks at each element of an array.
        arrays = [None if column and column.count(None) == len(column) else list(column) for column in columns]
        dependencies, errors = (encode(rows) if rows else None for rows in (self.dependencies, self.errors))
        return [RECORD, self.names, self.places, *arrays, is_checked, dependencies, errors]


def rows_of(batch: Mapping[str, ServiceBatch]) -> Rows:
    """Return the rows of a batch."""
    rows = Rows(list(batch), [], [], [], [])
    for place, of_service in enumerate(batch.values(), 1):
        rows.places.extend([place] * len(of_service.looks))
        rows.looks.extend(of_service.looks.values())
        rows.dependencies.extend({"place": place, **row._asdict()} for row in of_service.dependencies.values())
        rows.errors.extend({"place": place, **row._asdict()} for row in of_service.errors.values())
    return rows


async def record(lane: Lane, rows: Rows) -> None:
    """Write the looks that are not recorded yet."""
    if (await lane.row(*rows.call(is_checked=False)))["late"] is not None:
        await lane.call(lambda connection: _record_late(connection, rows))


async def _record_late(connection: Connection, rows: Rows) -> None:
    async with connection.transaction():
        answer = await connection.fetchrow(*rows.call(is_checked=False))
        await connection.fetch(LOCK, answer["ids"])
        answer = await connection.fetchrow(*rows.call(is_checked=False))
        if answer["late"] is None:
            return
        row = await connection.fetchrow(HORIZON)
        checked = await _without_known(connection, rows, answer, Horizon(*row) if row else Horizon())
        await connection.fetchrow(*checked.call(is_checked=True))


async def _without_known(connection: Connection, rows: Rows, answer: Any, horizon: Horizon) -> Rows:
    """Return the batch without the looks that are rolled up or were pruned."""
    ids, numbers = answer["ids"], [number - 1 for number in answer["late"]]
    late = {number: (ids[rows.places[number] - 1], rows.looks[number]) for number in numbers}
    wanted = sorted({(look.at_ms // HOUR_MS, service) for service, look in late.values()})
    hours, services = ([pair[place] for pair in wanted] for place in (0, 1))
    known = {
        (service, look.at_ms)
        for service, hour, packed in await connection.fetch(PACKED, hours, services)
        for look in unpack_looks(hour * HOUR_MS, packed)
    }
    kept = [
        number
        for number in range(len(rows.looks))
        if number not in late
        or (late[number][1].at_ms // HOUR_MS >= horizon.looks and (late[number][0], late[number][1].at_ms) not in known)
    ]
    return rows._replace(places=[rows.places[number] for number in kept], looks=[rows.looks[number] for number in kept])
