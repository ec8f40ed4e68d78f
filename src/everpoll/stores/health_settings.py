"""What operators set beside the records of services, in a database: aliases and maintenance windows.

Promises: names are checked before anything is written; an entry for the log is written with its change, or not at all.
"""

from everpoll.stores.health import MaintenanceWindow
from everpoll.stores.health_limits import check_name, window_body
from everpoll.stores.operations import LogEntry


class HealthSettings:
    """The part of `HealthRecords` that is the same on every database; each has its own statements."""

    set_alias_sql: str
    delete_alias_sql: str
    set_window_sql: str
    delete_window_sql: str

    async def set_alias(self, alias: str, canonical: str, entry: LogEntry | None = None) -> None:
        """See the contract."""
        check_name("alias", alias)
        check_name("canonical name", canonical)
        await self._set(self.set_alias_sql, (alias, canonical), entry)

    async def delete_alias(self, alias: str, entry: LogEntry | None = None) -> bool:
        """See the contract."""
        check_name("alias", alias)
        return await self._set(self.delete_alias_sql, (alias,), entry)

    async def set_window(self, window: MaintenanceWindow, entry: LogEntry | None = None) -> None:
        """See the contract."""
        check_name("maintenance window", window.id)
        await self._set(self.set_window_sql, (window.id, window_body(window.body)), entry)

    async def delete_window(self, window_id: str, entry: LogEntry | None = None) -> bool:
        """See the contract."""
        check_name("maintenance window", window_id)
        return await self._set(self.delete_window_sql, (window_id,), entry)

    async def _set(self, statement: str, values: tuple[str, ...], entry: LogEntry | None) -> bool:
        """Make a change, and write its entry in the same transaction; return whether anything was changed."""
        raise NotImplementedError
