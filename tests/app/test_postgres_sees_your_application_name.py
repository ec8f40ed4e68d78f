"""The caller's `application_name` is what Postgres shows; `everpoll` is only the fallback, as in libpq."""

import pytest

from everpoll.drivers.postgres.address import read_address
from everpoll.drivers.postgres.lane import Connector

SHOWN = "select current_setting('application_name')"


@pytest.mark.parametrize(
    ("query", "environment", "expected"),
    [
        ("", None, "everpoll"),
        ("?application_name=billing", None, "billing"),
        ("?application_name=billing%20eu", "ignored", "billing eu"),
        ("?options=-c%20application_name%3Dreports", None, "reports"),
        ("?options=--application-name%3Dreports&statement_cache=0", "ignored", "reports"),
        ("?options=-c%20work_mem%3D8MB", None, "everpoll"),
        ("", "nightly", "nightly"),
        ("?options=-c%20work_mem%3D8MB", "nightly", "nightly"),
    ],
)
async def test_the_caller_names_the_application(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, query: str, environment: str | None, expected: str
) -> None:
    if environment is None:
        monkeypatch.delenv("PGAPPNAME", raising=False)
    else:
        monkeypatch.setenv("PGAPPNAME", environment)
    connection = await Connector(read_address(postgres_url + query)).connect()
    try:
        assert await connection.fetchval(SHOWN) == expected
    finally:
        await connection.close()
