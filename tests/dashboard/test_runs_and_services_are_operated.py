"""Runs and services in a real browser: what they show, and that each action reaches the server and is confirmed."""

from playwright.sync_api import expect

from dashboard.pages import Pages
from dashboard.shop_server import ShopServer


def test_a_run_is_looked_at_extended_and_canceled(shop: ShopServer, pages: Pages) -> None:
    """Look now makes another look; Extend raises the budget; Cancel ends the run, after a question."""
    run = shop.begin("run-operated")
    page = pages.open(f"/runs/{run}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("run-operated")
    before = shop.get(f"/api/runs/{run}")
    page.get_by_role("button", name="Look now").click()
    shop.until(lambda: shop.get(f"/api/runs/{run}")["looks"] > before["looks"])
    page.get_by_role("button", name="Extend").click()
    page.get_by_role("dialog").get_by_role("button", name="Extend").click()
    shop.until(lambda: shop.get(f"/api/runs/{run}")["budget_s"] > before["budget_s"])
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel run").click()
    shop.until(lambda: shop.get(f"/api/runs/{run}")["state"] == "canceled")
    expect(page.get_by_role("main")).to_contain_text("canceled")
    expect(page.get_by_role("button", name="Look now")).to_have_count(0)


def test_runs_are_filtered_by_their_state_in_the_url(shop: ShopServer, pages: Pages) -> None:
    """A choice narrows the list; the address opens the same list elsewhere."""
    page = pages.open("/runs")
    expect(page.get_by_role("link", name="run-done")).to_be_visible()
    page.get_by_role("button", name="Failed", exact=True).click()
    expect(page.get_by_role("link", name="run-done")).to_have_count(0)
    expect(page.get_by_role("link", name="run-failed")).to_be_visible()
    elsewhere = pages.open(page.url.removeprefix(shop.url))
    expect(elsewhere.get_by_role("link", name="run-failed")).to_be_visible()
    expect(elsewhere.get_by_role("link", name="run-done")).to_have_count(0)


def test_a_service_is_checked_and_muted(shop: ShopServer, pages: Pages) -> None:
    """Check now looks at once; Mute is confirmed by the server and can be taken back."""
    page = pages.open("/services/warehouse")
    expect(page.get_by_role("region", name="Why")).to_contain_text("db")
    before = shop.get("/api/services/warehouse")["looked_at"]
    page.get_by_role("button", name="Check now").click()
    shop.until(lambda: shop.get("/api/services/warehouse")["looked_at"] != before)
    page.get_by_role("button", name="Mute").click()
    page.get_by_role("dialog").get_by_role("button", name="Mute").click()
    expect(page.get_by_role("button", name="Unmute")).to_be_visible()
    page.get_by_role("button", name="Unmute").click()
    expect(page.get_by_role("button", name="Mute", exact=True)).to_be_visible()


def test_names_with_markup_spaces_and_slashes_stay_text_and_open(shop: ShopServer, pages: Pages) -> None:
    """A service's name is only ever text, and its address leads to its page."""
    name = 'a/b c<img src=x onerror="document.title=1">'
    shop.post("/api/services", {"name": name, "target": "tcp://127.0.0.1:9", "every": "1h"})
    page = pages.open("/services")
    page.get_by_role("link", name=name).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)
    assert page.locator("main img").count() == 0
