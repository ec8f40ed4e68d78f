"""Live pages: changes arrive, nothing moves under the pointer, hidden and paused pages ask for nothing."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest
from playwright.sync_api import Page, Request, Route, expect

from dashboard.pages import Complaints, Pages, requests_of, wait_until
from dashboard.shop_server import ShopServer

GONE_MS = 15_000
WATCH_MUTATIONS = """() => {
  window.mutations = [];
  new MutationObserver((seen) => window.mutations.push(...seen.map((one) => one.target.nodeName)))
    .observe(document.querySelector("[role=table]"), { subtree: true, childList: true, attributes: true });
}"""
WATCH_FRESHNESS = """() => {
  window.freshness = [];
  const chip = document.querySelector("[data-freshness]");
  new MutationObserver(() => window.freshness.push(chip.dataset.freshness))
    .observe(chip, { attributeFilter: ["data-freshness"] });
}"""
WATCH_SHIFTS = """() => {
  window.shifted = [];
  new PerformanceObserver((list) => list.getEntries().forEach((one) => window.shifted.push(
    ...one.sources.map((source) => `${source.node?.nodeName} ${source.node?.textContent.slice(0, 60)}`))))
    .observe({ type: "layout-shift" });
}"""


def _is_data(request: Request) -> bool:
    return "/api/" in request.url


def _until_quiet(page: Page) -> None:
    """Wait until the page has asked for nothing for a second."""
    seen = requests_of(page, _is_data)
    before = -1
    while len(seen) > before:
        before = len(seen)
        page.wait_for_timeout(1000)


def _chip(page: Page, word: str) -> None:
    expect(page.locator("[data-freshness]")).to_contain_text(word, timeout=60_000)


def test_a_row_changes_in_place_and_new_rows_wait(shop: ShopServer, pages: Pages) -> None:
    """A canceled job changes its state where it stands; an enqueued one waits behind a button."""
    watched = shop.enqueue("audit", "https://still", delay="1h")
    page = pages.open("/jobs?q=still")
    row = page.locator(f"[data-row-id='{watched}']")
    expect(row).to_contain_text("queued")
    _chip(page, "Live")
    shop.post(f"/api/jobs/{watched}/cancel")
    expect(row).to_contain_text("canceled")
    second = shop.enqueue("audit", "https://still/2", delay="1h")
    button = page.get_by_role("button", name="1 new")
    expect(button).to_be_visible()
    assert page.locator(f"[data-row-id='{second}']").count() == 0
    button.click()
    expect(page.locator("[data-row-id]")).to_have_count(2)


def test_a_row_that_leaves_the_filter_stays_marked(shop: ShopServer, pages: Pages) -> None:
    """Until the person clears it away."""
    leaving = shop.enqueue("audit", "https://leaving", delay="1h")
    page = pages.open("/jobs?state=queued&q=leaving")
    row = page.locator(f"[data-row-id='{leaving}']")
    expect(row).to_be_visible()
    _chip(page, "Live")
    shop.post(f"/api/jobs/{leaving}/cancel")
    expect(row).to_contain_text("left this list")
    page.get_by_role("button", name="Clear 1 that left the list").click()
    expect(page.locator("[data-state=filtered-empty]")).to_be_visible()


@contextmanager
def _enqueueing(shop: ShopServer, per_s: int) -> Iterator[None]:
    """Enqueue so many jobs a second beside the block, in bursts of a tenth of a second; at the end, at least one."""
    is_over = threading.Event()

    def enqueue() -> None:
        number = 0
        while not is_over.wait(0.1) or number == 0:
            for _ in range(per_s // 10):
                shop.enqueue("audit", f"https://burst/{number}", delay="1h")
                number += 1

    thread = threading.Thread(target=enqueue)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("path", ["/jobs?state=queued", "/"])
@pytest.mark.parametrize("seconds", [3, pytest.param(30, marks=pytest.mark.prove)])
def test_a_hundred_changes_a_second_shift_nothing_and_cost_four_requests_a_second(
    shop: ShopServer, pages: Pages, seconds: int, path: str
) -> None:
    """Focus and selection survive, and the row under the pointer stays where it is."""
    # A loop that begins to need attention is a new line of the overview.
    shop.post("/api/loops/sync_stock/pause")
    kept = shop.enqueue("audit", "https://kept", delay="1h")
    page = pages.open(path)
    _chip(page, "Live")
    row = page.locator(f"[data-row-id='{kept}']")
    if path != "/":
        row.get_by_role("checkbox").check()
        row.get_by_role("link").focus()
        row.hover()
    # The reads of a page that has just been opened are over.
    _until_quiet(page)
    page.evaluate(WATCH_SHIFTS)
    top = row.bounding_box() if path != "/" else None
    seen = requests_of(page, _is_data)
    began = page.evaluate("performance.now()")
    with _enqueueing(shop, 100):
        page.wait_for_timeout(1000 * seconds)
    spent_s = (page.evaluate("performance.now()") - began) / 1000
    assert 0 < len(seen) <= 4 * spent_s + 1, seen
    assert page.evaluate("window.shifted") == []
    if path != "/":
        expect(page.get_by_role("button", name="new")).to_be_visible()
        assert row.bounding_box() == top
        expect(row.get_by_role("checkbox")).to_be_checked()
        expect(row.get_by_role("link")).to_be_focused()


def test_unchanged_data_is_answered_with_304_and_changes_nothing(shop: ShopServer, pages: Pages) -> None:
    """Going on after a pause reads everything again: all answers are 304, and the list is not touched."""
    page = pages.open("/jobs?state=done")
    expect(page.locator("[data-row-id]").first).to_be_visible()
    _chip(page, "Live")
    page.wait_for_timeout(2500)
    answers: list[int] = []
    page.on("response", lambda one: answers.append(one.status) if "/api/jobs?" in one.url else None)
    page.keyboard.press("p")
    _chip(page, "Paused")
    page.evaluate(WATCH_MUTATIONS)
    page.keyboard.press("p")
    wait_until(page, "performance.now() > 0")
    for _ in range(200):
        if answers:
            break
        page.wait_for_timeout(50)
    assert set(answers) == {304}
    assert page.evaluate("window.mutations") == []


def test_a_paused_page_asks_for_nothing_for_two_minutes(shop: ShopServer, pages: Pages) -> None:
    """Neither for data nor for changes: another window sees the change, and the page's clock passes two minutes."""
    page = pages.open("/doctor")
    page.clock.install()
    page.goto(f"{shop.url}/jobs?q=while-paused")
    witness = pages.open("/jobs?q=while-paused")
    for one in (page, witness):
        expect(one.locator("[data-state=filtered-empty]")).to_be_visible()
        _chip(one, "Live")
    seen = requests_of(page, _is_data)
    page.clock.run_for(120_000)
    assert seen, "a page that is not paused reads again within two minutes, also without a change"
    _chip(page, "Live")
    page.keyboard.press("p")
    _chip(page, "Paused")
    seen.clear()
    shop.enqueue("audit", "https://while-paused", delay="1h")
    expect(witness.locator("[data-row-id]").or_(witness.get_by_role("button", name="1 new")).first).to_be_visible()
    page.clock.run_for(120_000)
    assert seen == []
    page.get_by_role("button", name="Paused").click()
    expect(page.locator("[data-row-id]")).to_have_count(1)


def test_a_hidden_page_closes_its_stream_and_asks_for_nothing(shop: ShopServer, pages: Pages) -> None:
    """The tab in front of it sees the change. Shown again, it catches up by itself."""
    page = pages.tab("/jobs?q=while-hidden")
    expect(page.locator("[data-state=filtered-empty]")).to_be_visible()
    _chip(page, "Live")
    with page.expect_event("requestfailed", lambda one: one.url.endswith("/api/changes")):
        front = pages.tab("/jobs?q=while-hidden")
        wait_until(page, "document.hidden")
    _chip(front, "Live")
    seen = requests_of(page, _is_data)
    shop.enqueue("audit", "https://while-hidden", delay="1h")
    expect(front.locator("[data-row-id]").or_(front.get_by_role("button", name="1 new")).first).to_be_visible()
    assert seen == []
    page.bring_to_front()
    expect(page.locator("[data-row-id]")).to_have_count(1)
    _chip(page, "Live")


def test_eight_windows_all_hear_of_a_change(shop: ShopServer, pages: Pages) -> None:
    """A browser has six connections per host: tabs that are hidden hold none."""
    tabs = [pages.tab("/jobs?q=eight-tabs") for _ in range(8)]
    shop.enqueue("audit", "https://eight-tabs", delay="1h")
    for tab in tabs:
        tab.bring_to_front()
        expect(tab.locator("[data-row-id]")).to_have_count(1)


def test_a_killed_server_shows_and_its_return_needs_no_reload(
    shop: ShopServer, pages: Pages, complaints: Complaints
) -> None:
    """Stale, then Disconnected within 15 s, with the last data still there; then Live with new data."""
    complaints.expect("ERR_")
    kept = shop.enqueue("audit", "https://outage", delay="1h")
    page = pages.open("/jobs?q=outage")
    row = page.locator(f"[data-row-id='{kept}']")
    expect(row).to_be_visible()
    _chip(page, "Live")
    shop.kill()
    chip = page.locator("[data-freshness]")
    expect(chip).to_contain_text("Stale", timeout=GONE_MS)
    expect(chip).to_contain_text("Disconnected", timeout=GONE_MS)
    expect(row).to_be_visible()
    shop.start()
    shop.post(f"/api/jobs/{kept}/cancel")
    _chip(page, "Live")
    expect(row).to_contain_text("canceled")


def test_a_stream_without_data_is_not_live(shop: ShopServer, pages: Pages, complaints: Complaints) -> None:
    """The server is there, and its database is not: bytes of the stream do not make old data fresh."""
    complaints.expect("503")
    kept = shop.enqueue("audit", "https://no-data", delay="1h")
    page = pages.open("/jobs?q=no-data")
    row = page.locator(f"[data-row-id='{kept}']")
    expect(row).to_contain_text("queued")
    _chip(page, "Live")
    away = re.compile(r"/api/(?!changes)")
    page.route(away, lambda route: route.fulfill(status=503, content_type="application/problem+json", body="{}"))
    shop.post(f"/api/jobs/{kept}/cancel")
    _chip(page, "Stale")
    page.evaluate(WATCH_FRESHNESS)
    with page.expect_response(lambda answer: answer.status == 503, timeout=60_000):
        # One more hint, so one more frame of the stream, and one more answer without data.
        shop.enqueue("audit", "https://no-data/2", delay="1h")
    assert page.evaluate("window.freshness") == [], "it stays stale"
    expect(row).to_contain_text("queued")
    page.unroute(away)
    shop.enqueue("audit", "https://no-data/3", delay="1h")
    _chip(page, "Live")
    expect(row).to_contain_text("canceled")


def test_a_read_that_failed_is_made_again_without_a_hint(
    shop: ShopServer, pages: Pages, complaints: Complaints
) -> None:
    """No hint comes for it, and beside a stream the refresh loop is a minute away: it is made again within seconds."""
    complaints.expect("503")
    page = pages.open("/workers")
    _chip(page, "Live")
    failed: list[Route] = []

    def fail_twice(route: Route) -> None:
        if len(failed) == 2:
            route.continue_()
            return
        failed.append(route)
        route.fulfill(status=503, content_type="application/problem+json", body="{}")

    page.route("**/api/doctor", fail_twice)
    page.get_by_role("link", name="Doctor").click()
    expect(page.locator("[data-state=error]")).to_be_visible()
    expect(page.get_by_role("region", name="Checks")).to_be_visible()
    assert len(failed) == 2
    expect(page.locator("[data-state=error]")).to_have_count(0)


def test_countdowns_and_ages_follow_the_clock_of_the_server(shop: ShopServer, pages: Pages) -> None:
    """A browser whose clock is five minutes ahead counts down to the same instant, within a second."""
    job = shop.enqueue("audit", "https://clock", delay="20m")
    due_at = datetime.fromisoformat(shop.get(f"/api/jobs/{job}")["due_at"]).timestamp()
    page = pages.open("/workers")
    page.add_init_script("const real = Date.now; Date.now = () => real() + 300000;")
    page.goto(f"{shop.url}/jobs/{job}")
    _chip(page, "Live")
    before = time.time()
    text = page.locator("ol[aria-label=Path] .countdown").inner_text()
    after = time.time()
    minutes, seconds = (int(part) for part in text.split(":"))
    assert due_at - after - 2 <= minutes * 60 + seconds <= due_at - before + 2
    expect(page.locator(".facts time").first).to_contain_text(re.compile(r"^(now|\d+s ago|1m \d*s? ?ago)"))
