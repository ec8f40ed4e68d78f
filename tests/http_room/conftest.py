"""A client of each kind: every test that asks for `client` runs with both exchanges."""

import asyncio
from collections.abc import Iterator

import pytest

from everpoll.http import HttpClient
from http_room.certificates_for_tests import Authority


@pytest.fixture(params=["lean", "full"])
def client(runner: asyncio.Runner, request: pytest.FixtureRequest) -> Iterator[HttpClient]:
    one = HttpClient(environment={"TOKEN": "s3cret"}, lean=request.param == "lean")
    yield one
    runner.run(one.close())


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))
