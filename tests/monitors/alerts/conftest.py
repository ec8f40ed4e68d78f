"""What channels send with, for every test that asks for it."""

import asyncio
from collections.abc import Iterator

import pytest

from everpoll.engine.threads import DaemonThreads
from everpoll.http import HttpClient
from everpoll.monitors.alerts.channel import Tools

ENVIRONMENT = {
    "OPS_SECRET": "whsec_c2VjcmV0LWtleS1vZi10aGUtdGVzdA==",
    "PLAIN_SECRET": "s3cret-of-the-hook",
    "MAIL_PASSWORD": "p4ssword-of-the-mail\n",
}


@pytest.fixture
def tools(runner: asyncio.Runner) -> Iterator[Tools]:
    """The event loop is that of the test."""
    environment = dict(ENVIRONMENT)
    client = HttpClient(environment=environment)
    threads = DaemonThreads(8, "alerts")
    yield Tools(client, environment, threads)
    runner.run(client.close())
    threads.shutdown()
