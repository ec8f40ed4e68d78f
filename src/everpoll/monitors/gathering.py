"""Gathering: the dependencies and warnings of one answer, collected within bounds.

Promises: at most 1,000 dependencies, each name once; at most 100 warnings, each once, in the order of their first
occurrence; at most 10,000 items, readable or not. An item that cannot be read causes a warning and changes no other
item.
"""

from typing import Any

from everpoll.monitors import bounds
from everpoll.monitors.report import MAX_DEPENDENCIES, MAX_WARNINGS, Dependency, Report, Status, worse
from everpoll.monitors.words import meaning

MAX_ITEMS = 10_000
"""How many items of one body are read, valid or not."""

_MORE_WARNINGS = "further warnings are left out"


class Unreadable(Exception):
    """The body is not what the format expects; the text says how it differs."""


class Gathering:
    """The dependencies and warnings of one answer so far."""

    __slots__ = ("_by_name", "_items", "_warnings", "lists_failures_only")

    def __init__(self) -> None:
        self._by_name: dict[str, Dependency] = {}
        self._warnings: dict[str, None] = {}
        self._items = 0
        self.lists_failures_only = False

    def more(self) -> bool:
        """Count one more item; return False if it and all following items must be left out."""
        if len(self._by_name) >= MAX_DEPENDENCIES:
            self.warn(f"more than {MAX_DEPENDENCIES:,} dependencies; the further ones are left out")
            return False
        if self._items >= MAX_ITEMS:
            self.warn(f"more than {MAX_ITEMS:,} items; the further ones are not read")
            return False
        self._items += 1
        return True

    def add(self, dependency: Dependency) -> None:
        """Add a dependency; of two with the same name, the worse one counts."""
        earlier = self._by_name.setdefault(dependency.name, dependency)
        if earlier is dependency:
            return
        self.warn(f"dependency {bounds.quoted(dependency.name)}: reported more than once; the worst report counts")
        if worse(earlier.status, dependency.status) is not earlier.status:
            self._by_name[dependency.name] = dependency

    def warn(self, text: str) -> None:
        """Add a warning, unless it was added before."""
        if len(self._warnings) < MAX_WARNINGS:
            self._warnings[text] = None
        elif text not in self._warnings:
            self._warnings.popitem()
            self._warnings[_MORE_WARNINGS] = None

    def word_of_part(self, name: str, word: object) -> Status:
        """Return the status of a dependency by its word; an unfamiliar word means unknown, with a warning."""
        found = meaning(word)
        if found is None:
            self.warn(f"dependency {bounds.quoted(name)}: has {_said(word)}")
            return Status.UNKNOWN
        return found

    def own_word(self, word: object) -> Status | None:
        """Return the status of the service by its word; None, with a warning, if the word is unfamiliar."""
        found = meaning(word)
        if found is None:
            self.warn(f"the body has {_said(word)}; the HTTP status decides")
        return found

    def tree(self, name: str, field: str, value: Any) -> Any:
        """Return an object of a dependency within bounds; warn if part of it was left out."""
        kept, is_whole = bounds.tree(value)
        if not is_whole:
            self.warn(f"dependency {bounds.quoted(name)}: {field} is too large; part of it is left out")
        return kept

    def json_object(self, name: str, field: str, value: Any) -> dict[str, Any] | None:
        """Return an object within bounds; None for anything else."""
        return self.tree(name, field, value) if type(value) is dict else None

    def from_parts(self) -> Status:
        """Return the status of a service without a status word: degraded if a dependency is down or degraded.

        Unknown if there were items and none of them could be read.
        """
        for dependency in self._by_name.values():
            if dependency.status is Status.DOWN or dependency.status is Status.DEGRADED:
                return Status.DEGRADED
        return Status.UNKNOWN if self._items and not self._by_name else Status.UP

    def report(self, status: Status, format_name: str) -> Report:
        """Return everything as a report."""
        return Report(
            status=status,
            format=format_name,
            dependencies=tuple(self._by_name.values()),
            warnings=tuple(self._warnings),
            lists_failures_only=self.lists_failures_only,
        )


def _said(word: object) -> str:
    return "no status" if word is None else f"status {bounds.quoted(word)}, which is not a known word"
