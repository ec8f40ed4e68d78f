"""The user's own table as a queue: everpoll claims, runs and settles its rows, with the table's own columns."""

from everpoll.tables.adopted import AdoptedTable, AdoptedTables
from everpoll.tables.mapping import Guard, Table
from everpoll.tables.row import Row

__all__ = ["AdoptedTable", "AdoptedTables", "Guard", "Row", "Table"]
