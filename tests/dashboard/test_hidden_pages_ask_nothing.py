"""The dashboard's refresh is the loop: a page that is really hidden asks nothing, and catches up when it is shown."""

import time
from collections.abc import Callable
from urllib.parse import urlsplit

from playwright.sync_api import Page, Request, expect

from dashboard.pages import Pages, requests_of, wait_until
from dashboard.shop_server import ShopServer
from server.site import LIMIT_S

STREAM = "/api/changes"


def _live(page: Page) -> None:
    expect(page.locator("[data-freshness]")).to_have_attribute("data-freshness", "live")


def _given_up(page: Page) -> list[str]:
    """Return a list of the paths of requests that were given up; a stream that is closed is one."""
    seen: list[str] = []

    def note(request: Request) -> None:
        seen.append(urlsplit(request.url).path)

    page.on("requestfailed", note)
    return seen


def _until(page: Page, has_come: Callable[[], bool]) -> None:
    """Wait for something that the page's events tell; they come while Playwright waits."""
    end = time.monotonic() + LIMIT_S
    while not has_come():
        assert time.monotonic() < end, "it did not come true in time"
        page.wait_for_timeout(20)


def _asks_for_jobs(asked: list[str]) -> bool:
    return any(one.startswith("GET /api/jobs") for one in asked)


def test_a_hidden_page_closes_its_stream_and_asks_nothing_until_it_is_shown(pages: Pages, shop: ShopServer) -> None:
    """A window that is visible meanwhile proves that there was something to ask for."""
    witness, page = pages.open("/jobs"), pages.tab("/jobs")
    for one in (witness, page):
        with one.expect_response(f"**{STREAM}"):
            one.reload()
        _live(one)
    given_up = _given_up(page)
    cover = pages.tab("/doctor")
    wait_until(page, "document.hidden")
    _until(page, lambda: STREAM in given_up)

    asked = requests_of(page)
    for number in range(2):
        witnessed = requests_of(witness)
        shop.until_job(shop.enqueue("audit", f"https://example.com/{number}"), state="done")
        _until(witness, lambda: _asks_for_jobs(witnessed))  # noqa: B023 - it is asked before the next turn
    assert asked == []

    cover.close()
    page.bring_to_front()
    _until(page, lambda: _asks_for_jobs(asked))
    _live(page)
    assert asked.count(f"GET {STREAM}") == 1
