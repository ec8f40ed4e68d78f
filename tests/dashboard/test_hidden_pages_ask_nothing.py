"""The dashboard's refresh is the loop: a page that is really hidden asks nothing, and catches up when it is shown."""

import time
from collections.abc import Callable
from urllib.parse import urlsplit

from playwright.sync_api import Page, Request, expect

from dashboard.pages import Complaints, Pages, requests_of, wait_until
from dashboard.shop_server import ShopServer
from server.site import LIMIT_S

STREAM = "/api/changes"
_OF_JOBS = ["GET /api/changes", "GET /api/jobs", "GET /api/queues", "GET /api/series"]


def _live(page: Page) -> None:
    expect(page.locator("[data-freshness]")).to_have_attribute("data-freshness", "live")


def _given_up(page: Page) -> list[str]:
    """Return a list of the paths of requests that were given up; a stream that is closed is one."""
    seen: list[str] = []

    def note(request: Request) -> None:
        seen.append(urlsplit(request.url).path)

    page.on("requestfailed", note)
    return seen


def _until(page: Page, has_come: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Wait for something that the page's events tell; they come while Playwright waits."""
    end = time.monotonic() + limit_s
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


def test_a_page_that_is_shown_again_reads_everything_once(empty_shop: ShopServer, empty_pages: Pages) -> None:
    """Also as the only page: then the server begins to look for changes with it."""
    empty_shop.until(lambda: all(one["looked_at"] for one in empty_shop.get("/api/services")["items"]))
    page = empty_pages.tab("/jobs")
    _live(page)
    given_up = _given_up(page)
    cover = empty_pages.tab("/doctor")
    wait_until(page, "document.hidden")
    _until(page, lambda: STREAM in given_up)
    # What was read within two seconds counts as fresh.
    page.wait_for_timeout(2100)
    asked = requests_of(page)
    cover.close()
    page.bring_to_front()
    _until(page, lambda: len(asked) >= len(_OF_JOBS))
    _live(page)
    # A second refresh would come with the first looks of the server for changes, a second apart.
    page.wait_for_timeout(2500)
    assert sorted(one.partition("?")[0] for one in asked) == _OF_JOBS, asked


def test_a_page_that_is_shown_while_no_stream_can_be_opened_polls(empty_pages: Pages, complaints: Complaints) -> None:
    """The interval is that of polling, not the long one that a stream allows."""
    complaints.expect("ERR_")
    page = empty_pages.tab("/jobs")
    _live(page)
    given_up = _given_up(page)
    cover = empty_pages.tab("/doctor")
    wait_until(page, "document.hidden")
    _until(page, lambda: STREAM in given_up)
    page.route(f"**{STREAM}", lambda route: route.abort())
    asked = requests_of(page)
    cover.close()
    page.bring_to_front()
    # With a stream it would read again after 60 s.
    _until(page, lambda: sum(one.startswith("GET /api/jobs") for one in asked) >= 2, limit_s=40)
