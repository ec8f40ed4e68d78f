"""For tests in a real browser: a filled server, a Chromium, and pages that fail their test for console errors.

Tests that use these are plain functions (Playwright's synchronous API has an event loop of its own).

    def test_jobs_can_be_filtered(shop, pages):
        page = pages.open("/jobs?state=failed")
        expect(page.get_by_role("row")).to_have_count(2)
        assert axe(page) == []
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from build_dashboard import Dashboard
from dashboard.built import MISSING
from dashboard.chromium import chromium_browser
from dashboard.pages import Complaints, Pages
from dashboard.shop_server import ShopServer, shop_server
from examples.test_runner.chromium import NoBrowser, chromium


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShopServer]:
    """A server with one of everything in it, shared by the tests of a module."""
    need_dashboard()
    with shop_server(tmp_path_factory.mktemp("shop")) as server:
        yield server


@pytest.fixture(scope="module")
def empty_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShopServer]:
    """A server whose database has no jobs and no runs."""
    need_dashboard()
    with shop_server(tmp_path_factory.mktemp("shop"), is_filled=False) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium, shared by the tests of a module."""
    try:
        chromium()
    except NoBrowser as error:
        pytest.skip(str(error))
    with chromium_browser() as started:
        yield started


@pytest.fixture
def complaints() -> Iterator[Complaints]:
    """What the pages of a test complain about. The test fails for what it has not expected."""
    collected = Complaints()
    yield collected
    assert collected.unexpected() == []


@pytest.fixture
def pages(browser: Browser, shop: ShopServer, complaints: Complaints) -> Iterator[Pages]:
    """Opens pages of the filled server."""
    opened = Pages(browser, shop.url, complaints)
    yield opened
    opened.close()


@pytest.fixture
def empty_pages(browser: Browser, empty_shop: ShopServer, complaints: Complaints) -> Iterator[Pages]:
    """Opens pages of the server that has no jobs and no runs."""
    opened = Pages(browser, empty_shop.url, complaints)
    yield opened
    opened.close()


@pytest.fixture
def page(pages: Pages) -> Page:
    """The overview in a window of 1440 by 900, light."""
    return pages.open("/")


def need_dashboard() -> None:
    """Skip the test where the dashboard was not built."""
    if not Dashboard().is_current():
        pytest.skip(MISSING)
