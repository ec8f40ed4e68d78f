"""For every test: coroutines run as tests, and tests that ask for one get a real Postgres.

Asynchronous tests need no plug-in: each runs on a `Runner` of its own, which its fixtures share.
"""

import asyncio
import gc
import inspect
import os
import signal
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

import own_threads
from dashboard import built
from servers import postgrest
from servers.databases import PostgresServers
from servers.postgres import binary_folders

# No clock decides a test: an example may take any time, and drawing it too, on a machine that has other work.
# The same examples come in every session: what fails, fails again.
hypothesis.settings.register_profile(
    "everpoll",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("everpoll")
# It would also draw constants of loaded modules, and which are loaded depends on the tests that a worker ran before.
providers._get_local_constants = Constants

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would every process that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent

WAITING = ("faults", "dashboard", "tables", "examples", "docs", "cli", "integrations", "server", "servers", "stores")
"""Folders whose tests wait for other processes, those with the longest modules first."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Decide which tests are long proofs, then the order of modules."""
    leave_cases_of_older_servers_to_prove(items)
    put_modules_in_turns(items)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Let the garbage collector skip modules and tests: a collection took 0.4 s, and an eighth of the CPU time."""
    gc.collect()
    gc.freeze()


def leave_cases_of_older_servers_to_prove(items: list[pytest.Item]) -> None:
    """Run each test on every version of Postgres, but all of its other cases on the newest version only.

    What differs between versions is SQL, and a test runs the same SQL in all its cases; `make prove` runs them all.
    """
    older = tuple(f"postgres-{major}" for major in sorted(binary_folders())[:-1])
    seen: set[tuple[str, str]] = set()
    for item in items:
        test, _, cases = item.nodeid.partition("[")
        for version in older:
            if version in cases and item.get_closest_marker("prove") is None:
                if (test, version) in seen:
                    item.add_marker("prove")
                seen.add((test, version))


def put_modules_in_turns(items: list[pytest.Item]) -> None:
    """Put the modules that wait and those that compute in turns, the longest early.

    With `--no-loadscope-reorder` modules are started in this order: a test that waits leaves a core to one that
    computes. By default the modules with the fewest tests come last: these take the longest, and left one core idle.
    """
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    folders = {path: path.relative_to(TESTS).parts[0] for path in modules if path.is_relative_to(TESTS)}
    waiting = [path for path in modules if folders.get(path) in WAITING]
    waiting.sort(key=lambda path: WAITING.index(folders[path]))
    computing = [path for path in reversed(modules) if folders.get(path) not in WAITING]
    order = [one for pair in zip_longest(waiting, computing) for one in pair if one is not None]
    items[:] = [item for path in order for item in modules[path]]


@pytest.fixture(autouse=True)
def _threads_before() -> None:
    """For tests that ask which threads a test has left behind."""
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
