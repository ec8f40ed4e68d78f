"""A Django project in a folder of its own, as `startproject` would make it, with one app that has jobs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

MANAGE = """
import os, sys
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
SETTINGS = """
INSTALLED_APPS = ["everpoll.contrib.django", "shop"]
DATABASES = {{"default": {database!r}}}
EVERPOLL = {everpoll!r}
USE_TZ = True
SECRET_KEY = "tests"
"""
JOBS = """
from everpoll.contrib.django import app
from shop.orders import mailed

@app.job()
def send_mail(order: int) -> str:
    mailed(order)
    return f"mail {order}"

@app.job(run="process")
def print_label(order: int) -> str:
    mailed(order)
    return f"label {order}"
"""
# As a view would: rows of the project's own and jobs, in one transaction.
ORDERS = """
from django.apps import apps
from django.db import connection, transaction

apps.check_models_ready()

def create_tables():
    with connection.cursor() as cursor:
        cursor.execute("create table orders (id integer primary key)")
        cursor.execute("create table mails (order_id integer)")

def order(number, *, fails=False):
    from shop.jobs import send_mail, print_label
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("insert into orders values (%s)", [number])
        tasks = [job.sync.enqueue(number, connection=connection) for job in (send_mail, print_label)]
        if fails:
            raise ValueError("the card was refused")
    return [task.id for task in tasks]

def mailed(order):
    with connection.cursor() as cursor:
        cursor.execute("insert into mails values (%s)", [order])

def rows(table):
    with connection.cursor() as cursor:
        cursor.execute(f"select * from {table}")
        return sorted(number for number, in cursor.fetchall())
"""


def database_of(url: str) -> dict[str, Any]:
    """Return the entry of DATABASES for a database of the tests."""
    if url.startswith("sqlite"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url.partition("?")[0].removeprefix("sqlite:///")}
    at = make_url(url.partition("?")[0])
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": at.database,
        "USER": at.username,
        "PASSWORD": at.password or "",
        "HOST": at.host,
        "PORT": at.port,
    }


class Project:
    """Its files, and what may be done with them."""

    def __init__(self, folder: Path, url: str, everpoll: dict[str, Any] | None = None) -> None:
        self.folder = folder
        (folder / "shop").mkdir(parents=True)
        written = SETTINGS.format(database=database_of(url), everpoll=everpoll or {})
        files = {"manage.py": MANAGE, "settings.py": written, "shop/__init__.py": "", "shop/jobs.py": JOBS}
        for name, text in (files | {"shop/orders.py": ORDERS}).items():
            (folder / name).write_text(text)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("EVERPOLL", "DJANGO"))}
        self.environment = kept | {"DJANGO_SETTINGS_MODULE": "settings"}

    def manage(self, *arguments: str, code: int = 0) -> str:
        """Run `manage.py`, and return what it printed."""
        return self._run([sys.executable, "manage.py", *arguments], code)

    def everpoll(self, *arguments: str, code: int = 0) -> Any:
        """Run `manage.py everpoll … --json`."""
        return json.loads(self.manage("everpoll", *arguments, "--json", code=code))

    def python(self, program: str) -> Any:
        """Run a program in the project, and return the JSON that it printed."""
        head = "import json, django; django.setup()\nfrom shop import orders\n"
        return json.loads(self._run([sys.executable, "-c", head + program], 0))

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start `manage.py`."""
        with (self.folder / "worker.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "manage.py", *arguments],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
            )

    def _run(self, command: list[str], code: int) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stdout + done.stderr
