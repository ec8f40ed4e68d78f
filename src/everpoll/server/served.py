"""The part of an app that the HTTP API uses. `Everpoll` implements it; `everpoll serve` may make an empty one."""

from collections.abc import Callable
from typing import Protocol

from everpoll.doctor import Diagnosis
from everpoll.engine.health import Health
from everpoll.engine.worker import Worker
from everpoll.jobs import Jobs
from everpoll.loops import Loops
from everpoll.monitors.services import Services
from everpoll.policy import Duration
from everpoll.stores.contract import Store
from everpoll.tables import AdoptedTables
from everpoll.watches import Watches


class ServedApp(Protocol):
    """The part of an app that the server uses."""

    jobs: Jobs
    watches: Watches
    loops: Loops
    tables: AdoptedTables

    @property
    def services(self) -> Services:
        """The services of the app, by name."""
        ...

    @property
    def needs_store(self) -> bool:
        """Whether the app has work in a database; an app with only loops has none, and is healthy without one."""
        ...

    def pollers(self) -> dict[str, Worker]:
        """Return the workers that run in this process, by name."""
        ...

    async def store(self) -> Store:
        """Return the store, connected."""
        ...

    def health(self) -> Health:
        """Tell whether the app does its work."""
        ...

    async def doctor(self, transaction_age: Duration = "5m") -> Diagnosis:
        """Diagnose the database and the fleet."""
        ...


OnClose = Callable[[], None]
