"""A million jobs: the first data of a view is there within a second."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from bench.lists import fill_sqlite
from dashboard.conftest import need_dashboard
from dashboard.pages import Complaints, Pages, wait_until
from dashboard.shop_server import ShopServer, shop_server

ENDED, LIVE = 1_000_000, 100_000
LIMIT_MS = 1000
LOADS = 5
WHEN_SHOWN = """(() => {
  const look = () => {
    if (window.shownMs === undefined && document.querySelector("%s")) window.shownMs = performance.now();
    else requestAnimationFrame(look);
  };
  look();
})()"""
VIEWS = {
    "/": "main .tile .value",
    "/jobs": "[data-row-id]",
    "/jobs?state=failed": "[data-row-id]",
    "/jobs?name=job7&q=user:7": "[data-row-id]",
    "/jobs/1000000": "main .facts",
    "/queues": "[data-row-id]",
    "/events": "[data-row-id]",
}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShopServer]:
    """A shop with a million ended jobs and a hundred thousand that wait."""
    need_dashboard()
    with shop_server(tmp_path_factory.mktemp("large"), is_filled=False) as server:
        server.stop()
        fill_sqlite(Path(server.database.removeprefix("sqlite:///")), ENDED, LIVE)
        server.start()
        yield server


@pytest.mark.prove
@pytest.mark.parametrize(("path", "wanted"), VIEWS.items())
def test_the_first_data_is_shown_within_a_second(
    browser: Browser, large: ShopServer, complaints: Complaints, path: str, wanted: str
) -> None:
    """From the address to the first row, the best of five: others use this machine, too."""
    pages = Pages(browser, large.url, complaints)
    try:
        page = pages.open("/doctor")
        page.add_init_script(WHEN_SHOWN % wanted.replace('"', "'"))
        times: list[float] = []
        for _ in range(LOADS):
            page.goto(f"{large.url}{path}")
            wait_until(page, "window.shownMs !== undefined")
            times.append(page.evaluate("window.shownMs"))
        assert min(times) < LIMIT_MS, times
    finally:
        pages.close()
