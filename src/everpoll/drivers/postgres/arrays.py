"""Registers array types with the driver, which would otherwise query the server for them on every connection.

asyncpg knows text[] and looks up every other array type when it first meets it, by three statements that change a
setting of the session (jit) and put it back; behind a transaction pooler, other clients use that session, too.
The types below have the same numbers in every version of Postgres. A driver that does not accept them looks them up.
"""

import contextlib
from typing import Any

# type → (its number, the number of its elements), from Postgres's pg_type.dat
ARRAYS = {
    "_bool": (1000, 16),
    "_bytea": (1001, 17),
    "_int2": (1005, 21),
    "_int4": (1007, 23),
    "_int8": (1016, 20),
    "_float8": (1022, 701),
    "_timestamp": (1115, 1114),
    "_timestamptz": (1185, 1184),
    "_uuid": (2951, 2950),
}
_UNUSED = dict.fromkeys(("basetype", "range_subtype", "attrtypoids", "attrnames", "elemtype_name"))
RECORDS = [
    {**_UNUSED, "oid": oid, "ns": "pg_catalog", "name": name, "kind": b"b", "elemtype": element, "elemdelim": ","}
    for name, (oid, element) in ARRAYS.items()
]


def register_arrays(connection: Any) -> None:
    """Register the types with the driver of this connection."""
    with contextlib.suppress(AttributeError, KeyError, TypeError):
        connection._protocol.get_settings().register_data_types(RECORDS)  # noqa: SLF001 - there is no public way
