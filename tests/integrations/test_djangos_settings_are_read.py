"""An entry of DATABASES becomes the address of that very database; a setting that cannot be meant is refused."""

from typing import Any

import pytest

from everpoll import BadInput
from everpoll.contrib.django.configured import DjangoSettings, read_setting
from everpoll.contrib.django.database_address import address_of
from everpoll.drivers.postgres.address import read_address
from everpoll.drivers.sqlite.address import read_address as read_file

POSTGRES = "django.db.backends.postgresql"
SQLITE = "django.db.backends.sqlite3"


def address(**database: Any) -> str:
    return address_of("default", {"default": database})


@pytest.mark.parametrize(
    ("database", "expected"),
    [
        ({"NAME": "shop"}, "postgresql:///shop"),
        ({"NAME": "shop", "USER": "ann"}, "postgresql:///shop?user=ann"),
        ({"NAME": "shop", "USER": "ann", "HOST": "db", "PORT": 5433}, "postgresql://ann@db:5433/shop"),
        ({"NAME": "a b/c", "HOST": "db", "PASSWORD": None}, "postgresql://db/a%20b%2Fc"),
        ({"NAME": "shop", "HOST": "/run/pg", "PORT": "5433"}, "postgresql:///shop?host=%2Frun%2Fpg&port=5433"),
        ({"NAME": "shop", "HOST": "::1", "USER": "ann"}, "postgresql://ann@[::1]/shop"),
        ({"NAME": "shop", "HOST": "a,b", "PORT": "1,2"}, "postgresql://a:1,b:2/shop"),
        ({"NAME": "shop", "HOST": "a,b", "PORT": "5432"}, "postgresql://a:5432,b:5432/shop"),
        (
            {"NAME": "shop", "HOST": "db", "OPTIONS": {"sslmode": "require", "pool": True, "options": "-c x=a b"}},
            "postgresql://db/shop?options=-c%20x%3Da%20b&sslmode=require",
        ),
    ],
)
def test_an_entry_for_postgres_becomes_an_address(database: dict[str, Any], expected: str) -> None:
    assert address(ENGINE=POSTGRES, **database) == expected
    read_address(expected)


def test_any_sign_may_be_in_a_password() -> None:
    password = "a:b@c/d?e#f%g h&i=j"  # noqa: S105 - an example
    for host in ({"HOST": "db"}, {}):
        read = read_address(address(ENGINE=POSTGRES, NAME="shop", USER="ann", PASSWORD=password, **host))
        assert password in read.secrets
        assert (read.role, read.place) == ("ann", host.get("HOST", "localhost"))


@pytest.mark.parametrize("name", ["/var/lib/shop.db", "shop.db", "/var/lib/the shop?.db", "/var/100%.db"])
def test_an_entry_for_sqlite_becomes_the_address_of_that_file(name: str) -> None:
    path = read_file(address(ENGINE=SQLITE, NAME=name)).path
    assert str(path).endswith(name)


@pytest.mark.parametrize("name", [":memory:", "", "file:memorydb_default?mode=memory&cache=shared"])
def test_a_database_in_memory_has_its_tasks_in_memory(name: str) -> None:
    assert address(ENGINE=SQLITE, NAME=name) == "memory://"


@pytest.mark.parametrize(
    "engine", ["django.contrib.gis.db.backends.postgis", "django_prometheus.db.backends.postgresql"]
)
def test_an_engine_that_wraps_postgres_is_postgres(engine: str) -> None:
    assert address(ENGINE=engine, NAME="shop") == "postgresql:///shop"


@pytest.mark.parametrize(
    ("databases", "words"),
    [
        ({"other": {}}, "DATABASES has no 'default', which EVERPOLL names; it has: other"),
        ({"default": {"ENGINE": "django.db.backends.mysql"}}, "'django.db.backends.mysql', and tasks live in Postgres"),
        ({"default": {"ENGINE": POSTGRES, "OPTIONS": {"service": "shop"}}}, "OPTIONS with a service"),
    ],
)
def test_a_database_that_cannot_keep_tasks_is_refused_with_the_remedy(databases: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        address_of("default", databases)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("shop.jobs:app", "must be a dict"),
        ({"App": "shop.jobs:app"}, "has App; it may have: app, database, url, options, autodiscover"),
        ({"app": "shop.jobs:app", "options": {"slots": 3}}, "options would have no effect"),
        ({"database": "queue", "url": "memory://"}, "database and url"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(setting: object, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        read_setting(setting)


def test_without_a_setting_tasks_live_in_the_default_database() -> None:
    assert read_setting({}) == DjangoSettings(app=None, database="default", url=None, options={}, autodiscover="jobs")
