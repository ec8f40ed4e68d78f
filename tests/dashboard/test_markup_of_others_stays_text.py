"""What users, handlers and remotes write is text in every view: names, arguments, keys, errors and reasons."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from dashboard.conftest import need_dashboard
from dashboard.pages import NARROW, Complaints, Pages
from dashboard.shop_server import ShopServer, shop_server

MARKUP = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>{{7*7}}"


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShopServer]:
    """A server on which everything that can have a name is called like a script."""
    need_dashboard()
    with shop_server(tmp_path_factory.mktemp("marked"), is_filled=False, SHOP_MARKUP=MARKUP) as server:
        server.ids["job"] = server.enqueue(MARKUP, MARKUP, key=MARKUP)
        server.ids["run"] = quote(server.begin(MARKUP, note=MARKUP), safe="")
        server.post("/api/services", {"name": MARKUP, "target": "tcp://127.0.0.1:9", "every": "1h"})
        server.until_job(server.ids["job"], state="failed")
        server.post(f"/api/queues/{quote(MARKUP, safe='')}/pause", {"reason": MARKUP})
        server.until(lambda: any(one["status"] == "down" for one in server.get("/api/services")["items"]))
        yield server


@pytest.fixture
def marked_pages(browser: Browser, marked: ShopServer, complaints: Complaints) -> Iterator[Pages]:
    opened = Pages(browser, marked.url, complaints)
    yield opened
    opened.close()


def test_no_view_makes_markup_of_it(marked: ShopServer, marked_pages: Pages) -> None:
    """Each shows it letter by letter; no element comes of it, and no script of it runs or is refused by the policy."""
    name = quote(MARKUP, safe="")
    views = ["/", "/jobs", f"/jobs?name={name}&q={name}", "/jobs/{job}", "/runs", "/runs/{run}", "/services"]
    views += [f"/services/{name}", "/graph", "/graph?view=table", "/loops", "/queues", f"/queues/{name}", "/events"]
    page = marked_pages.open("/", size=NARROW)
    for view in views:
        page.goto(f"{marked.url}{view.format(**marked.ids)}")
        expect(page.locator("[data-freshness]")).to_contain_text("Live", timeout=60_000)
        shown = page.get_by_text(MARKUP[:20]).or_(page.locator(f"[value*='{MARKUP[:9]}']")).first
        expect(shown).to_be_attached(timeout=60_000)
        assert page.locator("body img, body script").count() == 0, view
        assert page.title() != "run", view
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW[0], view
    page.keyboard.press("Control+k")
    page.keyboard.type("<img")
    expect(page.get_by_role("dialog")).to_contain_text(MARKUP)
    assert page.locator("body img, body script").count() == 0
