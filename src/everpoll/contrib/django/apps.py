"""The Django app config: imports jobs when Django starts, and closes old connections after each job.

`manage.py migrate` also migrates everpoll's tables.
"""

import asyncio
import logging
import sys
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.db import close_old_connections
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

from everpoll.contrib.django.configured import given
from everpoll.contrib.django.database_address import address_of
from everpoll.drivers.addresses import masked
from everpoll.engine.threads import between_calls
from everpoll.stores.urls import store_for, with_connections

logger = logging.getLogger("everpoll")


class EverpollConfig(AppConfig):  # type: ignore[misc] # Django has no types
    """everpoll among the installed apps."""

    name = "everpoll.contrib.django"
    label = "everpoll"
    verbose_name = "everpoll"

    def ready(self) -> None:
        """Import the jobs of all installed apps; raise an error for a wrong setting now, not at the first job."""
        # Django closes broken and old connections between requests. Jobs have no requests, so do it between jobs.
        if close_old_connections not in between_calls:
            between_calls.append(close_old_connections)
        post_migrate.connect(_migrate, sender=self)
        module = given().autodiscover
        if module is not None:
            autodiscover_modules(module)
        from everpoll.contrib.django import app  # noqa: F401, PLC0415 - made here, if no module of jobs has asked for it


def _migrate(using: str, verbosity: int = 1, **_: Any) -> None:
    """Bring the tables up to date in the database that Django has just migrated, if tasks live there."""
    setting = given()
    if setting.app is not None or setting.url is not None or setting.database != using:
        return
    from everpoll.contrib.django import app  # noqa: PLC0415 - see `ready`

    address = with_connections(address_of(using, settings.DATABASES), setting.options.get("connections"))
    if app.url != address:
        logger.warning(
            "Django made a test database, and jobs are enqueued in %s: in the settings of your tests, give "
            'DATABASES["%s"] and its TEST the same NAME, or set EVERPOLL = {"url": "memory://"}',
            masked(app.url),
            using,
        )
    elif not address.startswith("memory:"):
        _bring_up_to_date(address, verbosity)


def _bring_up_to_date(address: str, verbosity: int) -> None:
    applied = asyncio.run(_applied(address))
    if applied and verbosity:
        sys.stdout.write(f"  everpoll: applied {', '.join(applied)}\n")


async def _applied(address: str) -> list[str]:
    store = store_for(address)
    try:
        return await store.migrate()
    finally:
        await store.close()
