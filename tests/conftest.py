"""For every test: coroutines run as tests, and a real Postgres is there for whoever asks for one.

Asynchronous tests need no plug-in: each runs on a `Runner` of its own, which its fixtures share.
"""

import asyncio
import inspect
import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack

import pytest

import own_threads
from dashboard import built
from servers import postgrest
from servers.databases import PostgresServers


@pytest.fixture(autouse=True)
def _threads_before() -> None:
    """For whoever asks which threads a test has left behind."""
    own_threads.remember()


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of one test: fixtures use it before and after the test does."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function as a test."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    shared = pyfuncitem.funcargs.get("runner")
    if isinstance(shared, asyncio.Runner):
        shared.run(pyfuncitem.obj(**wanted))
    else:
        asyncio.run(pyfuncitem.obj(**wanted))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tests that miss PostgREST are skipped at one place, so that their reason is printed once."""
    report = yield
    if isinstance(report.longrepr, tuple) and postgrest.MISSING in report.longrepr[2]:
        report.longrepr = (postgrest.__file__, 0, report.longrepr[2])
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """What may be skipped on a laptop must run where `CI` is set: a session that skipped it has failed there."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None or not os.environ.get("CI"):
        return
    reasons = [str(report.longrepr) for report in terminal.stats.get("skipped", [])]
    for missing in (postgrest.MISSING, built.MISSING, built.MISSING_PACKAGES):
        if any(missing in reason for reason in reasons):
            terminal.write_line(f"CI is set, and {missing}: the session fails", red=True)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def postgres_servers() -> Iterator[PostgresServers]:
    """Real servers; they end with the session."""
    with ExitStack() as until:
        yield PostgresServers(until)


@pytest.fixture
def postgres_url(postgres_servers: PostgresServers) -> Iterator[str]:
    """An empty database of this test's own, on the newest Postgres."""
    with postgres_servers[None].fresh() as url:
        yield url
