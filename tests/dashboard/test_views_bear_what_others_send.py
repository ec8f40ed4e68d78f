"""Huge names and errors, deep values, right-to-left text and very long lists: each view stays whole and quick."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page, Route, expect

from dashboard.pages import NARROW, WIDE, Pages
from dashboard.shop_server import ShopServer

DEPTH = 60
LONG = "x" * 10_000
RIGHT_TO_LEFT = "שלום \u202emoc.elpmaxe العربية"
LATER = "2026-01-02T03:04:05Z"


def _is_whole(page: Page) -> None:
    """Assert that neither width scrolls sideways."""
    for width, height in (WIDE, NARROW):
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, page.url
    page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})


def test_long_errors_deep_values_and_other_scripts_fit_their_pages(shop: ShopServer, pages: Pages) -> None:
    """The list cuts them, the job's own page shows them, and the overview has room for others."""
    deep: Any = RIGHT_TO_LEFT
    for level in range(DEPTH):
        deep = [deep] if level % 2 else {"level": deep}
    nested = shop.begin("run-deep", note=deep)
    failed = shop.enqueue("crash", LONG)
    shop.until_job(failed, state="failed")
    reversed_ = shop.enqueue("audit", RIGHT_TO_LEFT, key=RIGHT_TO_LEFT, delay="1h")
    page = pages.open("/jobs?q=nothing")
    for path in (
        "/jobs",
        f"/jobs/{failed}",
        f"/runs/{nested}",
        "/runs",
        f"/jobs/{reversed_}",
        "/",
        "/jobs/causes",
        "/events",
    ):
        page.goto(f"{shop.url}{path}")
        expect(page.locator("[data-freshness]")).to_contain_text("Live", timeout=60_000)
        expect(page.locator("[data-state=loading]")).to_have_count(0)
        _is_whole(page)
    page.goto(f"{shop.url}/jobs/{failed}")
    expect(page.get_by_role("region", name="Errors")).to_contain_text("x" * 1000)
    page.goto(f"{shop.url}/runs/{nested}")
    operation = page.get_by_role("region", name="Operation")
    expect(operation.get_by_role("button").first).to_be_visible()
    while (closed := operation.locator("[aria-expanded=false]")).count():
        closed.first.click()
    expect(operation).to_contain_text("שלום")
    _is_whole(page)


def test_hundreds_of_queues_are_a_list_of_few_rows(empty_shop: ShopServer, empty_pages: Pages) -> None:
    page = empty_pages.open("/doctor")
    one = {"ready": 1, "waiting": 2, "running": 3, "limited": 0, "blocked": 0, "oldest_due_at": LATER, "paused": None}
    queues = [one | {"name": f"{'very-' * 30}long-{number}"} for number in range(300)]
    page.route("**/api/queues*", lambda route: route.fulfill(json={"items": queues, "after": None}))
    page.goto(f"{empty_shop.url}/queues")
    expect(page.locator("[data-row-id]").first).to_be_visible()
    assert page.locator("[data-row-id]").count() <= 60
    _is_whole(page)
    page.goto(f"{empty_shop.url}/jobs")
    expect(page.get_by_role("combobox").first).to_be_visible()
    _is_whole(page)


def test_thousands_of_services_are_searched_while_typing(shop: ShopServer, pages: Pages) -> None:
    """All are found by their name, though few are in the page, and most are not loaded yet."""
    page = pages.open("/doctor")
    service = shop.get("/api/services")["items"][0]
    services = [service | {"name": f"service-{number:04}"} for number in range(2000)]

    def answer(route: Route) -> None:
        query = parse_qs(urlsplit(route.request.url).query)
        begin = int(query.get("after", ["0"])[0])
        end = begin + int(query["limit"][0])
        route.fulfill(json={"items": services[begin:end], "after": str(end) if end < len(services) else None})

    page.route("**/api/services?*", answer)
    page.goto(f"{shop.url}/services?sort=name")
    rows = page.locator("[data-row-id]")
    expect(rows.first).to_be_visible()
    assert rows.count() <= 60
    _is_whole(page)
    page.get_by_role("searchbox", name="Name or target").fill("service-1999")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("service-1999")
