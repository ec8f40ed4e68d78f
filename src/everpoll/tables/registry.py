"""The adopted tables of an app, by name."""

from everpoll.errors import TableNotFound
from everpoll.tables.adopted import AdoptedTable


class AdoptedTables(dict[str, AdoptedTable]):
    """A dictionary of adopted tables: `app.tables["orders"]`. An unknown name raises `TableNotFound`."""

    def __missing__(self, name: str) -> AdoptedTable:
        adopted = ", ".join(sorted(self)[:20]) or "none"
        raise TableNotFound(f"no table is called {name!r}; adopted: {adopted}")
