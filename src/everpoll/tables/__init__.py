"""The user's own table as a queue: claimed, run, and given back with the columns that it has already."""

from everpoll.tables.adopted import AdoptedTable
from everpoll.tables.mapping import Guard, Table
from everpoll.tables.row import Row

__all__ = ["AdoptedTable", "Guard", "Row", "Table"]
