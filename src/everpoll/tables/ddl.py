"""DDL for people to read and run: the columns that a mapping names, the index of the poll, the index of due times.

Pure, and written once: each database gives its names of types and a few choices.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from everpoll.tables.contract import Finding
from everpoll.tables.mapping import NAME_LIMIT, Table
from everpoll.tables.shape import Column, Shape
from everpoll.tables.sql_names import identifier, literal

READ, WRITTEN = "read", "written"
"""Keys of `Ddl.types` for columns that only the handler reads, or writes: the mapping does not say their types."""


class Ddl(Struct, frozen=True, kw_only=True):
    """The DDL of one table in one database."""

    table: Table
    target: str
    """The table's name, quoted, with its schema."""
    types: Mapping[str, str]
    """By role; `{queued}` stands for the quoted word."""
    types_of_new_table: Mapping[str, str] = {}
    """Where they differ in `create table`."""
    quoted_text: Callable[[str], str] = literal
    if_not_exists: str = ""
    """Set to "if not exists " where columns and tables may be added twice."""
    index_prefix: str = ""
    priority_order: str = " desc"
    has_key_in_index: bool = True
    is_partial: bool = False
    """Whether indexes hold the rows that wait or run, and no others."""

    def create_table(self) -> str:
        """Create the table with every column that the mapping names."""
        types = {**self.types, **self.types_of_new_table}
        columns = ",\n    ".join(self._declared(types, role, name) for role, name in self.table.used.items())
        return f"create table {self.if_not_exists}{self.target} (\n    {columns}\n)"

    def add_column(self, role: str, name: str) -> str | None:
        """Add a column; return None where it cannot be added afterwards."""
        if role == "key" and role not in self.types:
            return None
        return f"alter table {self.target} add column {self.if_not_exists}{self._declared(self.types, role, name)}"

    def _declared(self, types: Mapping[str, str], role: str, name: str) -> str:
        kind = types.get(role, types[WRITTEN if name in self.table.results else READ])
        return f"{identifier(name)} {kind.format(queued=self.quoted_text(self.table.queued))}".strip()

    def index(self) -> str:
        """Create the index of the poll and of the search for stale rows.

        The key comes last, so that equal times need no sort. A partial one leaves out rows that have ended: a table
        with a million of those has an index as small as its queue, and ending a row writes no entry.
        """
        table = self.table
        ways = dict.fromkeys((table.order_by, *((table.key,) if self.has_key_in_index else ())), "")
        first = {} if table.priority is None else {table.priority: self.priority_order}
        columns = [identifier(table.status), *(identifier(name) + way for name, way in {**first, **ways}.items())]
        words = ", ".join(map(literal, (table.queued, table.running)))
        return self._index("queue", columns, f"{identifier(table.status)} in ({words})")

    def due_index(self) -> str:
        """Create the index of the next due time, which an idle worker asks for.

        A partial one has only rows with a due time: it must be of no use to the poll, whose rows it does not have in
        order. While statistics know nothing of a queue that has just been filled, the planner would take the smaller
        index and sort.
        """
        assert self.table.due_at is not None, "asked for where there is one"
        status, due_at = identifier(self.table.status), identifier(self.table.due_at)
        waits = f"{status} = {literal(self.table.queued)} and {due_at} is not null"
        return self._index("due", [due_at] if self.is_partial else [status, due_at], waits)

    def _index(self, what: str, columns: Sequence[str], where: str) -> str:
        name = identifier(fitted(f"{self.table.parts[-1]}_{self.index_prefix}{what}"))
        made = f"create index if not exists {name} on {self.target} ({', '.join(dict.fromkeys(columns))})"
        return f"{made}\n    where {where}" if self.is_partial else made

    def lacking(self, shape: Shape[Column] | None, found: Sequence[Finding], more: Sequence[str] = ()) -> list[str]:
        """Return the statements that would help, in the order to run them. `shape` None: there is no table.

        Indexes are offered as well while nothing is known of them, unless the table cannot be mended by DDL.
        """
        if shape is None:
            made: list[str | None] = [self.create_table()]
        else:
            lacks = [(role, name) for role, name in self.table.used.items() if shape.column(name) is None]
            made = [self.add_column(role, name) for role, name in lacks]
        fit = {one.what for one in found if one.is_fit}
        if all(one.is_fit or one.ddl for one in found if one.is_needed):
            made += [] if "index" in fit else [self.index()]
            made += [] if "index of due times" in fit or self.table.due_at is None else [self.due_index()]
        return list(dict.fromkeys([*filter(None, made), *more]))


def fitted(name: str) -> str:
    """Shorten a name to what Postgres keeps of it; the whole of it still counts."""
    if len(name.encode()) <= NAME_LIMIT:
        return name
    tail = "_" + hashlib.sha256(name.encode()).hexdigest()[:16]
    return name.encode()[: NAME_LIMIT - len(tail)].decode(errors="ignore") + tail
