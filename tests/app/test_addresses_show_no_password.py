"""However an address is written or mistaken, no message shows the password in it."""

import traceback

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from everpoll import BadInput, Everpoll
from everpoll.drivers.addresses import masked
from everpoll.drivers.postgres.address import read_address
from everpoll.tables import Table
from everpoll.tables.urls import source_for

MALFORMED = [
    "host=db.example password=hunter2 dbname=shop",
    "host=db.example password = 'hunter2 or more' dbname=shop",
    "dbname=shop user=me password='it\\'s hunter2'",
    "host=db.example password=p@hunter2 user=me",
    "user:hunter2@db.example/shop",
    "user:hunter2@db.example",
    "user/hunter2@db.example",
    "user:pass@hunter2@db.example/shop",
    "me:hunter2",
    "mysql://user:hunter2@db.example/shop",
    "mysql://user:hunter2",
    "postgresqll://user:hunter2@db.example/shop",
    "postgresql:/user:hunter2@db.example/shop",
    "postgresql:user:hunter2@db.example/shop",
    "postgresql+asyncpg://user:a/b#hunter2?x@db.example/shop",
    "redis://:hunter2@db.example/0",
    "mysql://db.example/shop?user=me&password=hunter2",
    "mysql://db.example/shop?password=a&hunter2=1@x",
    "mysql://db.example/shop?sslpassword=hunter2",
    "sqlite://user:hunter2@db.example/shop",
    "sqlite:///shop.db?password=hunter2",
    "sqlite:///shop.db?key=hunter2",
    "mysql://user:hunter2@[::1/shop",
    "postgresql://user:hunter2@db.example:port/shop",
    "postgresql://user:12/hunter2@db.example/shop",
    "postgresql://user:12#hunter2@db.example/shop",
    "postgresql://user:12?hunter2@db.example/shop",
    "postgresql://user:1/2@hunter2@db.example/shop",
]


@pytest.mark.parametrize("url", MALFORMED)
def test_a_malformed_address_is_refused_without_its_password(url: str) -> None:
    table = Table("jobs")
    for use in (Everpoll, lambda url: source_for(url, table)):
        with pytest.raises(BadInput) as refused:
            use(url)
        shown = "".join(traceback.format_exception(refused.value, limit=0))
        assert "hunter2" not in shown
        assert len(shown) < 1_000
    assert "hunter2" not in masked(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:hunter2@db.example:5432/shop", "postgresql://me:***@db.example:5432/shop"),
        ("postgresql://me:hunter%402@db.example/shop", "postgresql://me:***@db.example/shop"),
        ("postgresql://me@db.example:5432/shop", "postgresql://me@db.example:5432/shop"),
        ("postgresql://db.example:5432/shop", "postgresql://db.example:5432/shop"),
        ("postgresql://a:5432,b:5433/shop", "postgresql://a:5432,b:5433/shop"),
        ("postgresql://me@[::1]:5432/shop", "postgresql://me@[::1]:5432/shop"),
        ("postgresql://me:hunter2@[::1]:5432/shop", "postgresql://me:***@[::1]:5432/shop"),
        ("postgresql:///shop?host=/run/postgresql", "postgresql:///shop?host=/run/postgresql"),
        ("postgresql://h/shop?password=hunter2&sslmode=require", "postgresql://h/shop?password=***"),
        ("host=db.example password=hunter2", "host=db.example password=***"),
        ("me:hunter2@db.example/shop", "me:***@db.example/shop"),
        ("sqlite:///everpoll.db", "sqlite:///everpoll.db"),
        ("sqlite:////srv/a@b:c/tasks.db", "sqlite:////srv/a@b:c/tasks.db"),
        ("tasks.db", "tasks.db"),
        ("memory://", "memory://"),
        ("https://abc.supabase.co", "https://abc.supabase.co"),
    ],
)
def test_what_is_no_secret_stays_readable(url: str, shown: str) -> None:
    assert masked(url) == shown


@given(st.text(alphabet="aZ0:/?#@&= '%[]\\", max_size=12))
@example("/2@")
@example("&x=@")
def test_whatever_is_in_a_password_none_of_it_is_shown(noise: str) -> None:
    password = f"{noise}hunter2{noise}"
    for url in (f"postgresql://me:{password}@h/db", f"me:{password}@h/db", f"host=h password={password} port=1"):
        assert "hunter2" not in masked(url)
        assert "hunter2" not in _said_of(url)


def _said_of(url: str) -> str:
    try:
        read = read_address(url)
    except BadInput as refused:
        return str(refused)
    return f"{read!r} at {read.place}"
