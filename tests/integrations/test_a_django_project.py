"""A Django project gets its app from its settings, enqueues in its transactions, and runs workers by `manage.py`."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from everpoll import Everpoll
from integrations.django_project import Project
from servers.databases import PostgresServers

LIMIT_S = 120
TWO_ORDERS = """
orders.create_tables()
try:
    orders.order(1, fails=True)
except ValueError:
    pass
print(json.dumps(orders.order(2)))
"""


TESTS = """
from django.test import TestCase
from everpoll import TaskNotFound
from shop.jobs import app
from shop import orders

class Orders(TestCase):
    found = []

    @classmethod
    def setUpTestData(cls):
        cls.addClassCleanup(app.sync.close)
        orders.create_tables()

    def order(self):
        self.assertEqual(orders.rows("orders"), [])
        for task in self.found:
            with self.assertRaises(TaskNotFound):
                app.sync.task(task).info()
        self.found.extend(orders.order(1))
        self.assertEqual(orders.rows("orders"), [1])

    def test_one(self):
        self.order()

    def test_two(self):
        self.order()
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/the shop.db"
        return
    servers: PostgresServers = request.getfixturevalue("postgres_servers")
    with servers[None].fresh() as fresh:
        yield fresh


def test_jobs_are_enqueued_with_the_rows_of_a_view_and_run_by_manage_py(url: str, tmp_path: Path) -> None:
    """The settings name one database: `migrate` prepares it, a rollback leaves nothing, a worker runs the jobs."""
    project = Project(tmp_path / "project", url)
    assert "everpoll: applied" in project.manage("migrate")
    assert "everpoll: applied" not in project.manage("migrate")
    mail, label = project.python(TWO_ORDERS)
    listed = project.everpoll("jobs", "list")
    assert sorted((one["id"], one["name"], one["state"]) for one in listed) == [
        (mail, "send_mail", "queued"),
        (label, "print_label", "queued"),
    ]
    worker = project.start("everpoll", "run", "--slots", "2")
    try:
        results = asyncio.run(_results(url, mail, label))
        assert results == ["mail 2", "label 2"], (project.folder / "worker.log").read_text()
    finally:
        worker.send_signal(signal.SIGTERM)
        ended = worker.wait(LIMIT_S)
    assert ended == 0, (project.folder / "worker.log").read_text()
    assert project.python("print(json.dumps([orders.rows('orders'), orders.rows('mails')]))") == [[2], [2, 2]]


async def _results(url: str, *tasks: int) -> list[object]:
    app = Everpoll(url)
    try:
        return [await app.task(task).result(timeout=LIMIT_S) for task in tasks]
    finally:
        await app.close()


def test_the_command_is_that_of_everpoll_with_its_help_its_exit_codes_and_its_errors(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", f"sqlite:///{tmp_path}/shop.db")
    assert "manage.py everpoll" in project.manage("everpoll", "run", "--help")
    assert "there are no everpoll tables" in project.manage("everpoll", "jobs", "list", code=2)
    assert "has an address of its own" in project.manage("everpoll", "run", "--url", "memory://", code=2)
    project.manage("everpoll", "migrate")
    called = "from django.core.management import call_command\ncall_command('everpoll', 'queues', 'list', '--json')"
    assert isinstance(project.python(called), list)


def test_a_project_may_have_an_app_of_its_own(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", f"sqlite:///{tmp_path}/shop.db", {"app": "shop.own:app"})
    own = "from everpoll import Everpoll\napp = Everpoll('sqlite:///own.db', slots=3)\n"
    (project.folder / "shop/own.py").write_text(own)
    project.manage("everpoll", "migrate")
    assert (project.folder / "own.db").exists()
    program = "from shop.jobs import app\nfrom shop.own import app as own\nprint(json.dumps([app is own, app.url]))"
    assert project.python(program) == [True, "sqlite:///own.db"]


def test_migrating_a_test_database_warns_that_jobs_go_elsewhere(tmp_path: Path) -> None:
    """Django's test runner changes the name of its database after the app was made."""
    project = Project(tmp_path / "project", f"sqlite:///{tmp_path}/shop.db")
    program = """
import logging
said = []
class Kept(logging.Handler):
    def emit(self, record): said.append(record.getMessage())
logging.getLogger("everpoll").addHandler(Kept())
from django.test.utils import setup_databases, teardown_databases
teardown_databases(setup_databases(verbosity=0, interactive=False), verbosity=0)
print(json.dumps(said))
"""
    (said,) = project.python(program)
    assert "Django made a test database, and jobs are enqueued in sqlite:///" in said
    assert not (tmp_path / "shop.db").exists()


def test_threads_of_jobs_get_djangos_care_of_connections(tmp_path: Path) -> None:
    """Django ends broken and old connections between requests; a worker does it between jobs."""
    project = Project(tmp_path / "project", f"sqlite:///{tmp_path}/shop.db")
    program = """
from django.db import connection
from everpoll.engine.threads import DaemonThreads

def opened():
    was_open = connection.connection is not None
    connection.ensure_connection()
    return was_open

threads = DaemonThreads(1)
print(json.dumps([threads.submit(opened).result() for _ in range(3)]))
"""
    assert project.python(program) == [False, False, False]


def test_a_test_case_of_django_enqueues_in_its_test_database_and_rolls_back(url: str, tmp_path: Path) -> None:
    """As the docs tell it: the database and its TEST have the same name."""
    project = Project(tmp_path / "project", url)
    with (project.folder / "settings.py").open("a") as settings:
        settings.write('DATABASES["default"]["NAME"] += "_tests"\n')
        settings.write('DATABASES["default"]["TEST"] = {"NAME": DATABASES["default"]["NAME"]}\n')
    (project.folder / "shop/tests.py").write_text(TESTS)
    project.manage("test", "--noinput")
