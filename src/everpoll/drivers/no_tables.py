"""The error for a database that has no tables of everpoll: most often its address is wrong."""

from everpoll.errors import SchemaOutdated


def no_tables_in(place: str, check: str) -> SchemaOutdated:
    """Return the error; `check` says what to check before `everpoll migrate` creates tables there."""
    return SchemaOutdated(
        f"there are no everpoll tables in {place}. Check {check} first: --url or EVERPOLL_URL must be the address that "
        "the app uses. If it is, `everpoll migrate` creates the tables"
    )
