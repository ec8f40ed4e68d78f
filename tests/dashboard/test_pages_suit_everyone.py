"""Every view: accessible in light and dark, whole on a narrow window, by keyboard, and honest when there is nothing."""

import re

import pytest
from playwright.sync_api import Page, Route, expect

from dashboard.pages import NARROW, Complaints, Pages, Theme, axe
from dashboard.shop_server import ShopServer

VIEWS = [
    "/",
    "/jobs",
    "/jobs/{failed}",
    "/jobs/{retrying}",
    "/jobs/causes",
    "/events",
    "/workers",
    "/queues",
    "/queues/reports",
    "/loops",
    "/runs",
    "/runs/polling",
    "/runs/{run waiting}",
    "/runs/{run failed}",
    "/runs/{run with facts}",
    "/services",
    "/services/search",
    "/graph",
    "/graph?view=table",
    "/schedules",
    "/tables",
    "/doctor",
]
LISTS = {
    "/jobs?q=nothing": "No job fits",
    "/jobs/causes?name=nothing": "No failed job fits",
    "/events?name=nothing": "No event fits",
    "/loops?q=nothing": "No loop fits",
}
CLIPPED = """() => [...document.querySelectorAll("h1, h2, button, .status, dt, .tile .value")]
  .filter((one) => one.clientWidth > 0 && one.scrollWidth > one.clientWidth + 1)
  .filter((one) => getComputedStyle(one).overflowX === "hidden")
  .map((one) => one.textContent)"""

OVERFLOWING = """() => [...document.querySelectorAll("[data-row-id]")]
  .filter((one) => one.scrollWidth > one.clientWidth + 1)
  .map((one) => `${one.scrollWidth} in ${one.clientWidth}: ${one.textContent}`)"""
STATUSES = """() => [...document.querySelectorAll(".status")].map((one) => [
  [...one.classList].find((name) => name.startsWith("tone-")).slice(5),
  one.querySelector("svg path").getAttribute("d"),
  one.querySelector(".word").textContent,
])"""
OPERABLE = """() => {
  const seen = (one) => one.checkVisibility({ visibilityProperty: true }) && !one.disabled && !one.closest("[inert]");
  const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary")].filter(seen);
  // Whatever reacts to a click looks so; a key must lead to it, or to something inside it.
  const pressed = [...document.querySelectorAll("main *")].filter((one) => seen(one)
    && getComputedStyle(one).cursor === "pointer" && getComputedStyle(one.parentElement).cursor !== "pointer"
    && !one.matches("a, button, input, select, summary, label") && !one.querySelector("a, button, input, summary"));
  window.operable = [...new Set([...all, ...pressed])];
  return window.operable.length;
}"""
NOTE_FOCUS = """() => {
  window.focused = new Set();
  document.addEventListener("focusin", (event) => window.focused.add(event.target));
}"""
FOCUS_IS_SEEN = """() => {
  const look = getComputedStyle(document.activeElement);
  return document.activeElement === document.body || look.outlineStyle !== "none" || look.boxShadow !== "none";
}"""
MISSED = """() => window.operable.filter((one) => one.isConnected && !window.focused.has(one)
  && ![...one.querySelectorAll("*")].some((inner) => window.focused.has(inner))
  && !(one.type === "radio" && [...window.focused].some((other) => other.name === one.name)))
  .map((one) => one.outerHTML.slice(0, 200))"""


def _settled(page: Page) -> None:
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator("[data-freshness]")).to_contain_text("Live", timeout=60_000)
    expect(page.locator("[data-state=loading]")).to_have_count(0)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", VIEWS)
def test_axe_finds_nothing(shop: ShopServer, pages: Pages, path: str, theme: Theme) -> None:
    """One h1, main, a navigation, and contrast included."""
    page = pages.open(path.format(**shop.ids), theme=theme)
    _settled(page)
    assert axe(page) == []
    assert page.get_by_role("heading", level=1).count() == 1
    for name in ("Jobs", "Runs", "Services", "Loops", "Workers", "Events"):
        expect(page.get_by_role("navigation").get_by_role("link", name=name)).to_be_visible()


@pytest.mark.parametrize("path", VIEWS)
def test_a_narrow_window_shows_everything_without_sideways_scroll(shop: ShopServer, pages: Pages, path: str) -> None:
    """At 360 by 800 the page is as wide as the window, and no title, button or status is cut."""
    page = pages.open(path.format(**shop.ids), size=NARROW, theme="dark")
    _settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW[0]
    assert page.evaluate(CLIPPED) == []
    assert axe(page) == []


@pytest.mark.parametrize("width", [1440, 1200, 1000, 860])
def test_rows_are_whole_on_windows_of_any_width(shop: ShopServer, pages: Pages, width: int) -> None:
    """No list puts a part of its rows, such as the last action, beyond their end."""
    page = pages.open("/", size=(width, 800))
    found: dict[str, list[str]] = {}
    for path in VIEWS:
        page.goto(f"{shop.url}{path.format(**shop.ids)}")
        _settled(page)
        found[path] = page.evaluate(OVERFLOWING)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert page.evaluate(CLIPPED) == [], path
    assert {path: rows for path, rows in found.items() if rows} == {}


def test_statuses_are_told_apart_without_colours(shop: ShopServer, pages: Pages) -> None:
    """Each status is an icon and a word; icons of different tones have different shapes, and bars different heights."""
    page = pages.open("/")
    shapes: dict[str, set[str]] = {}
    for path in VIEWS:
        page.goto(f"{shop.url}{path.format(**shop.ids)}")
        _settled(page)
        for tone, shape, word in page.evaluate(STATUSES):
            assert word.strip(), path
            shapes.setdefault(tone, set()).add(shape)
    assert {"ok", "active", "warn", "fail", "idle"} <= set(shapes)
    assert all(len(found) == 1 for found in shapes.values()), shapes
    assert len({next(iter(found)) for found in shapes.values()}) == len(shapes)
    page.goto(f"{shop.url}/services?sort=name")
    _settled(page)
    heights = {
        word: page.locator(f"[data-row-id={name}] svg[role=img] rect").last.get_attribute("height")
        for name, word in {"billing": "up", "search": "degraded", "warehouse": "down"}.items()
    }
    assert len(set(heights.values())) == 3, heights


def test_the_overview_says_at_once_what_is_wrong(shop: ShopServer, pages: Pages) -> None:
    """A sentence, and a ranked list whose entries lead to what they are about."""
    page = pages.open("/")
    expect(page.get_by_role("heading", level=1)).to_contain_text("need attention")
    concerns = page.get_by_role("region", name="Needs attention")
    expect(concerns).to_contain_text("Service warehouse Down.")
    expect(concerns).to_contain_text("Queue reports Paused, and 1 task waits.")
    concerns.get_by_role("link", name=re.compile("Job charge")).click()
    expect(page.get_by_role("region", name="Errors")).to_contain_text("was declined")


def test_an_overview_of_nothing_is_calm(empty_pages: Pages) -> None:
    """Services of the shop may be down; jobs and queues are not mentioned."""
    page = empty_pages.open("/")
    _settled(page)
    expect(page.get_by_role("region", name="Figures")).to_contain_text("nothing waits")
    expect(page.locator("main")).not_to_contain_text("failed within the hour")


@pytest.mark.parametrize(("path", "says"), [("/jobs", "No job yet"), ("/jobs?state=failed", "No job fits this filter")])
def test_never_had_any_is_not_no_match(empty_pages: Pages, path: str, says: str) -> None:
    """Two looks: one explains how the first comes about, the other clears the filter."""
    page = empty_pages.open(path)
    expect(page.locator("[data-state=filtered-empty]" if "?" in path else "[data-state=empty]")).to_contain_text(says)
    if "?" in path:
        page.get_by_role("button", name="Clear filters").click()
        expect(page.locator("[data-state=empty]")).to_contain_text("No job yet")


@pytest.mark.parametrize(("path", "says"), LISTS.items())
def test_a_filter_that_fits_nothing_says_so(pages: Pages, path: str, says: str) -> None:
    """Each list has its own words."""
    expect(pages.open(path).locator("[data-state=filtered-empty]")).to_contain_text(says)


def test_loading_and_error_are_looks_of_their_own(shop: ShopServer, pages: Pages, complaints: Complaints) -> None:
    """Loading shows while an answer is on its way; an error says what the server said, and tries again."""
    complaints.expect("503")
    page = pages.open("/workers")
    held: list[Route] = []
    page.route("**/api/jobs?*", lambda route: held.append(route))  # noqa: PLW0108 - Playwright takes no builtin
    page.get_by_role("navigation").get_by_role("link", name="Jobs").click()
    expect(page.locator("[data-state=loading]")).to_be_visible()
    problem = '{"title":"Unavailable","status":503,"detail":"the database took longer than 2 s"}'
    while held:
        held.pop().fulfill(status=503, body=problem, content_type="application/problem+json")
    expect(page.locator("[data-state=error]")).to_contain_text("the database took longer than 2 s")
    page.unroute("**/api/jobs?*")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("[data-row-id]").first).to_be_visible()


def test_everything_is_reached_by_keys(shop: ShopServer, pages: Pages) -> None:
    """g and a letter, j and k, x, Enter, brackets, the filter, the palette and the list of keys."""
    page = pages.open("/")
    _settled(page)
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page).to_have_url(re.compile(r"/jobs$"))
    rows = page.locator("[data-row-id]")
    expect(rows.first).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(rows.nth(1).get_by_role("link")).to_be_focused()
    page.keyboard.press("x")
    expect(rows.nth(1).get_by_role("checkbox")).to_be_checked()
    page.keyboard.press("k")
    opened = rows.first.get_attribute("data-row-id")
    after = rows.nth(1).get_attribute("data-row-id")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/jobs/{opened}$"))
    expect(page.get_by_role("region", name="Why")).to_be_visible()
    page.keyboard.press("]")
    expect(page).to_have_url(re.compile(f"/jobs/{after}$"))
    page.keyboard.press("[")
    expect(page).to_have_url(re.compile(f"/jobs/{opened}$"))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("Previous job of the list")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Control+k")
    page.keyboard.type(shop.ids["failed"])
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"charge {shop.ids['failed']}")
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Search in arguments")).to_be_focused()
    page.keyboard.type("jg?x")
    expect(page.get_by_role("searchbox", name="Search in arguments")).to_have_value("jg?x")


def test_tab_reaches_everything_that_can_be_pressed(shop: ShopServer, pages: Pages) -> None:
    """In every view each link, button and field, and whatever else reacts to a click; the focus is always seen."""
    page = pages.open("/")
    for path in VIEWS:
        page.goto(f"{shop.url}{path.format(**shop.ids)}")
        _settled(page)
        page.keyboard.press("p")
        page.evaluate(NOTE_FOCUS)
        # Scrolling brings more rows into a long list, so there may be more presses than things.
        for _ in range(5 * page.evaluate(OPERABLE)):
            page.keyboard.press("Tab")
            assert page.evaluate(FOCUS_IS_SEEN), page.evaluate("document.activeElement.outerHTML")
            if page.evaluate("document.activeElement === document.body"):
                break
        assert page.evaluate(MISSED) == [], path
        page.keyboard.press("p")


def test_theme_and_time_zone_are_kept_in_this_browser(shop: ShopServer, pages: Pages) -> None:
    """Chosen once, they hold after a reload; times say the zone."""
    page = pages.open(f"/jobs/{shop.ids['done']}", timezone_id="Asia/Tokyo")
    _settled(page)
    expect(page.locator(".facts time").first).to_have_attribute("title", re.compile(r"GMT\+9$"))
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("button", name="dark").click()
    page.get_by_role("button", name="UTC").click()
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.locator(".facts time").first).to_have_attribute("title", re.compile(r"UTC$"))


def test_a_queue_is_paused_and_resumed(shop: ShopServer, pages: Pages) -> None:
    """With a reason and an actor."""
    page = pages.open("/queues/slow")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("dialog").get_by_label("Reason").fill("a flood")
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.locator("main")).to_contain_text("Paused by HTTP from 127.0.0.1")
    expect(page.locator("main")).to_contain_text("a flood")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".notice").last).to_contain_text("queue slow is resumed")
    assert shop.get("/api/queues")["items"][-1]["paused"] is None


def test_a_loop_is_triggered_paused_and_resumed(shop: ShopServer, pages: Pages) -> None:
    """In the process that serves the page."""
    page = pages.open("/loops")
    row = page.get_by_role("row").filter(has_text="refresh_prices")
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("paused")
    row.get_by_role("button", name="Resume").click()
    expect(row).to_contain_text("waiting")
    row.get_by_role("button", name="Run now").click()
    expect(page.locator(".notice").last).to_contain_text("loop refresh_prices runs now")
