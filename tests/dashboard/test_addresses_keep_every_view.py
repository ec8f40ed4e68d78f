"""The address is the state of a page: reload, Back and another browser show the same view."""

import re

import pytest
from playwright.sync_api import Page, expect

from dashboard.pages import Complaints, Pages, wait_until
from dashboard.shop_server import ShopServer

VIEWS = {
    "/jobs?state=failed&name=charge": ("[aria-pressed=true]", "Failed"),
    "/jobs/{failed}": ("h1", "charge"),
    "/jobs/causes?name=charge": ("main", "1 failed job"),
    "/runs?state=failed": ("[aria-pressed=true]", "Failed"),
    "/runs/{run with facts}?at=look:2": ("[aria-label^='Facts at look 2']", "copying"),
    "/services?status=down&sort=name": ("[aria-label=Order] [aria-pressed=true]", "By name"),
    "/services/warehouse?range=7d": ("[aria-label=Range] [aria-pressed=true]", "7d"),
    "/graph?focus=search&view=table": ("table", "billing"),
    "/loops?q=stock": ("[data-row-id]", "sync_stock"),
    "/workers?show=all": ("[aria-pressed=true]", "All of the last day"),
    "/queues/slow": ("h1", "Queue slow"),
    "/schedules?q=close": ("[data-row-id]", "close_day"),
    "/tables/orders": ("h1", "Table orders"),
    "/events?kind=queue": ("[aria-pressed=true]", "Queues"),
    "/doctor": ("h1", "Doctor"),
}


def _shows(page: Page, where: str, text: str) -> None:
    expect(page.locator(where).filter(has_text=text).first).to_be_visible()


@pytest.mark.parametrize("path", VIEWS)
def test_reload_back_and_another_window_show_the_same_view(shop: ShopServer, pages: Pages, path: str) -> None:
    """What the address says is shown, whichever way it was come to."""
    (where, text), address = VIEWS[path], path.format(**shop.ids)
    page = pages.open(address)
    _shows(page, where, text)
    reached = page.url
    page.reload()
    _shows(page, where, text)
    page.get_by_role("navigation").first.get_by_role("link", name="Overview").click()
    expect(page).to_have_url(f"{shop.url}/")
    page.go_back()
    _shows(page, where, text)
    assert page.url == reached
    _shows(pages.open(reached.removeprefix(shop.url)), where, text)


def test_a_choice_is_a_step_of_the_history_and_typing_is_not(shop: ShopServer, pages: Pages) -> None:
    """Back undoes a choice; it does not go through what was typed letter by letter."""
    page = pages.open("/jobs")
    page.get_by_role("button", name="Done").click()
    expect(page).to_have_url(re.compile("state=done"))
    steps = page.evaluate("history.length")
    page.get_by_role("searchbox", name="Search in arguments").press_sequentially("example", delay=300)
    expect(page).to_have_url(re.compile("q=example"))
    assert page.evaluate("history.length") == steps
    page.go_back()
    expect(page).to_have_url(re.compile(r"/jobs$"))


def test_dragging_over_the_histogram_sets_the_range(shop: ShopServer, pages: Pages) -> None:
    """The range is in the address, and the list keeps to it."""
    page = pages.open("/jobs")
    expect(page.locator("[data-row-id]").first).to_be_visible()
    chart = page.get_by_role("region", name="Jobs ended over time").locator("svg[role=img]")
    box = chart.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.3, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, y, steps=5)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"ended_from=.+&ended_to=.+"))
    expect(page.locator("[data-state=filtered-empty]")).to_be_visible()


def test_local_storage_holds_only_what_a_person_prefers(shop: ShopServer, pages: Pages) -> None:
    """Neither filters nor data stay behind in the browser."""
    page = pages.open("/jobs?state=failed&q=7")
    page.get_by_role("button", name="Settings").click()
    for choice in ("dark", "compact", "UTC"):
        page.get_by_role("button", name=choice).click()
    page.goto(f"{shop.url}/services?status=down")
    expect(page.locator("[data-row-id]").first).to_be_visible()
    kept = page.evaluate("JSON.stringify({ ...localStorage })")
    assert re.findall(r"dark|compact|utc", kept, re.IGNORECASE)
    assert not re.search(r"state|failed|services|jobs|warehouse", kept), kept
    assert page.evaluate("sessionStorage.length + document.cookie.length") == 0


def test_utc_rules_ages_axes_and_ranges(shop: ShopServer, pages: Pages) -> None:
    """One setting for all times of a page, in a browser of another zone."""
    page = pages.open("/jobs", timezone_id="Asia/Tokyo")
    expect(page.locator("[data-row-id]").first).to_be_visible()
    axis = page.get_by_role("region", name="Jobs ended over time").locator("svg text")
    local = axis.last.text_content() or ""
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("button", name="UTC").click()
    expect(axis.last).not_to_have_text(local)
    hours = (int(local[:2]) - int((axis.last.text_content() or "")[:2])) % 24
    assert hours in {8, 9, 10}, "nine, and a minute may have passed"
    page.goto(f"{shop.url}/events")
    stamp = page.locator("[data-row-id] .mono").first.inner_text()
    newest = shop.get("/api/log", limit=1)["items"][0]["at"]
    assert stamp[6:8] in {newest[11:13], f"{(int(newest[11:13]) - 1) % 24:02}"}


def test_a_page_that_is_left_closes_its_stream(shop: ShopServer, pages: Pages) -> None:
    """A page in the back-forward cache would keep one of the six connections that a browser has per host."""
    page = pages.open("/jobs")
    expect(page.locator("[data-freshness]")).to_contain_text("Live", timeout=60_000)
    with page.expect_event("requestfailed", lambda one: one.url.endswith("/api/changes")):
        page.evaluate("window.dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))")
    page.evaluate("window.dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    wait_until(page, "document.querySelector('[data-freshness]').dataset.freshness === 'live'")


def test_a_page_that_is_left_for_another_site_is_fresh_after_back(
    shop: ShopServer, pages: Pages, complaints: Complaints
) -> None:
    """Its stream ends with it; what has changed meanwhile is there, and later changes come again."""
    complaints.expect("favicon")
    page = pages.open("/jobs?q=left-page")
    expect(page.locator("[data-freshness]")).to_contain_text("Live", timeout=60_000)
    with page.expect_event("requestfailed", lambda one: one.url.endswith("/api/changes")):
        page.goto(f"{shop.remote.url}/up")
    meanwhile = shop.enqueue("audit", "https://left-page/meanwhile", delay="1h")
    # A page that comes out of the back-forward cache is not loaded again, which `go_back()` would wait for.
    page.evaluate("history.back()")
    page.wait_for_url("**/jobs?q=left-page", wait_until="commit")
    expect(page.locator(f"[data-row-id='{meanwhile}']")).to_be_visible()
    wait_until(page, "document.querySelector('[data-freshness]').dataset.freshness === 'live'")
    later = shop.enqueue("audit", "https://left-page/later", delay="1h")
    page.get_by_role("button", name="1 new").click()
    expect(page.locator(f"[data-row-id='{later}']")).to_be_visible()
