"""Reads `settings.EVERPOLL`, and makes the app from it.

{}                                       tasks in DATABASES["default"]
{"database": "queue"}                    tasks in another one of DATABASES
{"url": "memory://"}                     tasks in no database of Django's
{"options": {"slots": 10}}               parameters of Everpoll(…), with any of those above
{"app": "shop.jobs:app"}                 an app of the project's own, alone
{"autodiscover": "tasks"}                the module of jobs in each installed app; None: no module is imported
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import django
from django.apps import apps
from django.conf import settings

from everpoll.app import Everpoll
from everpoll.contrib.django.database_address import address_of
from everpoll.errors import BadInput


@dataclass(frozen=True, slots=True)
class DjangoSettings:
    """The setting, with its defaults."""

    app: str | None = None
    database: str = "default"
    url: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    autodiscover: str | None = "jobs"


def given() -> DjangoSettings:
    """Return the setting of the project."""
    return read_setting(getattr(settings, "EVERPOLL", {}))


def read_setting(setting: object) -> DjangoSettings:
    """Read `EVERPOLL`; raise `BadInput` if it is not valid."""
    if not isinstance(setting, dict):
        raise BadInput(f"EVERPOLL = {setting!r} in Django's settings must be a dict, such as {{'database': 'default'}}")
    known = DjangoSettings.__dataclass_fields__
    unknown = [str(key) for key in setting if key not in known]
    if unknown:
        raise BadInput(f"EVERPOLL in Django's settings has {', '.join(unknown)}; it may have: {', '.join(known)}")
    beside = [key for key in ("database", "url", "options") if key in setting]
    if setting.get("app") is not None and beside:
        raise BadInput(f"EVERPOLL names an app, so {', '.join(beside)} would have no effect: remove one of them")
    if "database" in setting and "url" in setting:
        raise BadInput("EVERPOLL has both database and url: keep only one of them")
    return DjangoSettings(**setting)


def set_up_django() -> None:
    """Set Django up, unless that is done or under way: a worker's process may import a job's module directly."""
    if not apps.ready and not apps.loading:
        django.setup()


def configured_app() -> Everpoll:
    """Return the app that the settings name, or make an app from them."""
    found = given()
    if found.app is not None:
        return _own_app(found.app)
    url = found.url or address_of(found.database, settings.DATABASES)
    return Everpoll(url, **found.options)


def _own_app(path: str) -> Everpoll:
    module, _, name = path.partition(":")
    app = getattr(importlib.import_module(module), name or "app", None)
    if not isinstance(app, Everpoll):
        raise BadInput(f"EVERPOLL['app'] = {path!r} is not an Everpoll app: write module:name, such as shop.jobs:app")
    return app
