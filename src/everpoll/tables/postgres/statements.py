"""The phrases that statements about one table are made of, from its mapping and its columns.

Identifiers are quoted; words are literals of the column's own type, for an index on some of them to be found; all else
is a parameter. The fence of a claimed row, in every later write: its key, `running`, its worker and its start.
"""

from everpoll.tables.mapping import Table
from everpoll.tables.postgres import ddl
from everpoll.tables.postgres.shape import Column, Relation
from everpoll.tables.sql_names import identifier, literal

PLAIN_KEYS = {"int2": "int2", "int4": "int4", "int8": "int8", "uuid": "uuid", "text": "text", "varchar": "text"}
"""Types that the driver sends in arrays without asking the server; keys of any other type travel as texts."""
SECOND = "interval '1 second'"
LOCKED = "for update of t skip locked"
"""Every change takes the rows that it may have first: so none waits for a transaction of another program, and
no two of them deadlock. What is locked is looked up by its place, `ctid = any(array)`, whose plan does not depend on
how many there are, and which costs less than by keys. (A row that was just changed is at another place than this
statement can see: it is left for the next time. Partitions share places: there, keys serve.)"""


class Phrases:
    """The table is `t` in all of them."""

    def __init__(self, table: Table, relation: Relation) -> None:
        self.table = table
        self.relation = relation
        self.name = f"{relation.sql} t"
        key = relation.columns[table.key]
        plain = PLAIN_KEYS.get(key.base)
        self.key = f"t.{identifier(table.key)}"
        self.key_out = f"{self.key}::{plain or 'text'} as k"
        self.keys_in = f"{plain}[]" if plain else f"text[]::{key.type}[]"
        self.start_type = self.column_of("started_at").base
        self.worker_type = f"text::{self.column_of('worker').type}"
        self.place = self.key if relation.has_parts else "t.ctid"
        self.order = ddl.ordering(table, relation)

    def column_of(self, use: str) -> Column:
        """Of one that is mapped."""
        return self.relation.columns[getattr(self.table, use)]

    def at(self, use: str) -> str:
        """The column."""
        return f"t.{identifier(getattr(self.table, use))}"

    def instant(self, use: str) -> str:
        """The column as an instant: without a time zone it is in the session's, as everywhere in Postgres."""
        return f"{self.at(use)}::timestamptz"

    def word(self, word: str) -> str:
        """A word, as the status column has it."""
        return f"{literal(word)}::{self.column_of('status').type}"

    def has_status(self, word: str) -> str:
        """A condition by which rows are found."""
        return f"{self.at('status')} = {self.word(word)}"

    def is_still(self, word: str) -> str:
        """The same about rows that are found already, in terms that fit no index.

        While statistics know nothing of the rows that wait or run by now, the planner takes them for few, reads all of
        them by their status, and looks for ours among them.
        """
        return f"{self.at('status')}::text || '' = {literal(word)}"

    @property
    def is_due(self) -> str:
        """A condition."""
        return self.has_status(self.table.queued) + self.and_it_is_time

    @property
    def and_it_is_time(self) -> str:
        """The end of a condition."""
        if self.table.due_at is None:
            return ""
        return f" and ({self.at('due_at')} is null or {self.instant('due_at')} <= now())"

    def is_ours(self, worker: str) -> str:
        """The fence, but for key and start."""
        return f"{self.at('worker')} = {worker}::{self.worker_type} and {self.is_still(self.table.running)}"

    @property
    def ordered(self) -> str:
        """The order of the queue."""
        return ", ".join(f"t.{identifier(name)}{way}" for name, way in self.order)

    def held(self, more: str = "") -> str:
        """Claimed rows, as arrays: $1 keys, $2 starts."""
        return f"unnest($1::{self.keys_in}, $2::{self.start_type}[]{more})"

    def is_one_of(self, picked: str) -> str:
        """A condition: its place is in that common table expression."""
        return f"{self.place} = any(array(select * from {picked}))"

    def sets(self, values: dict[str, str]) -> str:
        """Assignments by use; what is not mapped is left out, and what notes every change is added."""
        table = self.table
        sets = {getattr(table, use): value for use, value in values.items() if getattr(table, use) is not None}
        if table.guard == "version":
            sets[table.version] = f"coalesce({self.at('version')}, 0) + 1"
        if table.guard == "timestamp":
            sets[table.updated_at] = "now()"
        return ", ".join(f"{identifier(name)} = {value}" for name, value in sets.items())

    @property
    def emptied(self) -> dict[str, str]:
        """What a row that waits again has no more, where it may be empty."""
        uses = [use for use in ("worker", "started_at", "heartbeat") if getattr(self.table, use) is not None]
        return {use: "null" for use in uses if self.column_of(use).is_nullable}

    @property
    def retries(self) -> str:
        """How often it was tried in vain."""
        return "0" if self.table.retries is None else f"coalesce({self.at('retries')}, 0)"

    def error(self, text: str | None) -> str:
        """For the error column: as long as it may be, and empty as it may be."""
        if self.table.error is None:
            return "null"
        column = self.column_of("error")
        if text is None:
            return "null" if column.is_nullable else "''"
        return text if column.length is None else f"left({text}, {column.length})"
