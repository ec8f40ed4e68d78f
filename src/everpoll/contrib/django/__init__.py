"""The Django app: `INSTALLED_APPS = [..., "everpoll.contrib.django"]`.

    settings.EVERPOLL, settings.DATABASES ──▶ app ◀── jobs.py of each installed app
                                               ▲
                          manage.py everpoll … ┘

`from everpoll.contrib.django import app` returns the app that the settings describe: one in the database that Django
itself uses, or one of the project's own. Promises: one app for each process. Django is set up first if it is not yet,
so that a job's module can be imported by a worker without `manage.py`. Never: opens the database when it is imported.
"""

from typing import TYPE_CHECKING

__all__ = ["app"]

if TYPE_CHECKING:
    from everpoll.app import Everpoll

    app: Everpoll
else:

    def __getattr__(name: str) -> object:
        if name != "app":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from everpoll.contrib.django.configured import configured_app, set_up_django  # noqa: PLC0415 - imports Django

        set_up_django()
        if "app" not in globals():  # setting Django up imports the modules of jobs, which ask for the app
            globals()["app"] = configured_app()
        return globals()["app"]
