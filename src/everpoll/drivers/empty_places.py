"""What to say about a file or database that has nothing of everpoll in it: most often the address is another one."""

from everpoll.errors import SchemaOutdated


def nothing_in(place: str, check: str) -> SchemaOutdated:
    """Return the error; `check` says what to look at before `everpoll migrate` makes tables there."""
    return SchemaOutdated(
        f"there are no everpoll tables in {place}. Check {check} first: --url or EVERPOLL_URL must be the address that "
        "the app uses. If it is, `everpoll migrate` creates the tables"
    )
