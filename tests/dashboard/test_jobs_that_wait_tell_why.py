"""What holds a job shows: its limit, its queue, its workers. What charts, lists and copies show of it is exact."""

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from playwright.sync_api import Page, Route, expect

from dashboard.pages import Pages
from dashboard.shop_server import ShopServer

LARGE = "9007199254740993"


def _answering(answer: Any) -> Callable[[Route], None]:
    return lambda route: route.fulfill(json=answer)


def _copied(page: Page, label: str) -> str:
    page.evaluate("navigator.clipboard.writeText('')")
    page.get_by_role("button", name=label).click()
    expect(page.get_by_role("button", name=label)).to_be_visible()
    return str(page.evaluate("navigator.clipboard.readText()"))


def test_limited_jobs_are_seen_in_job_queue_queues_and_overview(shop: ShopServer, pages: Pages) -> None:
    """A queue of which all jobs wait behind a limit does not look idle."""
    first, second = shop.enqueue("scan", 1), shop.enqueue("scan", 2)
    shop.until(lambda: any(one["name"] == "scans" and one["limited"] for one in shop.get("/api/queues")["items"]))
    held = second if shop.get(f"/api/jobs/{first}")["state"] == "running" else first
    page = pages.open(f"/jobs/{held}")
    expect(page.get_by_role("region", name="Facts")).to_contain_text("scan: 1 at a time")
    expect(page.get_by_role("list", name="Path")).to_contain_text(
        re.compile(r"its limit may hold it: late \d+s"), timeout=20_000
    )
    page = pages.open("/queues")
    expect(page.get_by_role("row").filter(has_text="scans")).to_contain_text("1 due, held by a limit")
    page = pages.open("/queues/scans")
    expect(page.get_by_role("link", name="Limited")).to_contain_text("1")
    page = pages.open("/")
    expect(page.get_by_role("link", name="Queued")).to_contain_text("1 limited")


def test_a_queue_says_how_fast_it_fills_and_empties_and_when_it_is_empty(shop: ShopServer, pages: Pages) -> None:
    """Attempts that are retried or snoozed end no job; a queue that fills faster than it empties never drains."""
    page = pages.open("/doctor")
    now = time.time()
    instant = datetime.fromtimestamp(now - 90, UTC).isoformat()
    point = {"at": instant, "counts": {"done": 140, "failed": 10, "retried": 900, "snoozed": 900}, "count": 1950}
    queue: dict[str, Any] = {
        "name": "slow",
        "ready": 60,
        "oldest_due_at": instant,
        "waiting": 0,
        "running": 1,
        "limited": 0,
        "blocked": 0,
        "paused": None,
    }
    jobs: dict[str, Any] = {"items": [{"created_at": instant}] * 60, "after": None}
    answers = {
        "**/api/series?of=throughput*": {"of": "throughput", "step_s": 60, "items": [point]},
        "**/api/queues": {"items": [queue], "after": None},
        "**/api/jobs?queue=slow&from=*": jobs,
    }
    for address, answer in answers.items():
        page.route(address, _answering(answer))
    page.goto(f"{shop.url}/queues/slow")
    expect(page.get_by_role("link", name="Out")).to_contain_text("0.5/s")
    expect(page.get_by_role("link", name=re.compile("^In"))).to_contain_text(re.compile(r"0\.(1[6-9]|2)\d?/s"))
    expect(page.get_by_role("link", name="Time to drain")).to_contain_text(re.compile(r"3m.*at these rates"))
    jobs["items"] *= 4
    page.reload()
    expect(page.get_by_role("link", name="Time to drain")).to_contain_text("grows")
    expect(page.get_by_role("link", name="Time to drain")).to_contain_text("more come than end")
    queue["ready"] = 3
    page.reload()
    expect(page.get_by_role("link", name="Time to drain")).to_contain_text("keeps up")


def test_a_late_job_says_that_its_queue_is_paused(shop: ShopServer, pages: Pages) -> None:
    page = pages.open(f"/jobs/{shop.ids['held']}")
    path = page.get_by_role("list", name="Path")
    expect(path).to_contain_text(re.compile(r"the queue is paused: late \d+s"), timeout=20_000)
    page = pages.open("/queues/reports")
    expect(page.get_by_role("link", name="Oldest wait")).to_contain_text("the queue is paused")


def test_a_late_job_in_the_list_says_what_holds_it(shop: ShopServer, pages: Pages) -> None:
    page = pages.open("/jobs?queue=reports&state=queued")
    row = page.locator(f"[data-row-id='{shop.ids['held']}']")
    expect(row).to_contain_text(re.compile(r"the queue is paused: late \d+s"), timeout=20_000)


def test_the_end_of_a_group_says_how_far_its_group_is(shop: ShopServer, pages: Pages) -> None:
    """In the job, in the list, in its queue and in the overview; its version is shown, because it is not the first."""
    closing = shop.enqueue("close_books", "2026-11")
    shop.until_job(closing, state="done")
    end = str(shop.get("/api/jobs", name="total")["items"][0]["id"])
    shop.until(lambda: shop.get(f"/api/jobs/{end}")["members"]["ended"] == 1)
    page = pages.open(f"/jobs/{end}")
    facts = page.get_by_role("region", name="Facts")
    expect(facts.locator("dt:has-text('Group') + dd")).to_have_text("1 of 2 ended")
    expect(facts.locator("dt:has-text('Version') + dd")).to_have_text("2")
    expect(page.get_by_role("list", name="Path")).to_contain_text("for 1 other job")
    page.goto(f"{shop.url}/jobs/{closing}")
    expect(facts).to_contain_text("Priority")
    expect(facts).not_to_contain_text("Version")
    expect(facts).not_to_contain_text("Group")
    page.goto(f"{shop.url}/jobs?name=total")
    expect(page.locator(f"[data-row-id='{end}']")).to_contain_text("waits for 1 other job")
    page.goto(f"{shop.url}/queues")
    expect(page.get_by_role("row").filter(has_text="default")).to_contain_text("1 waits for other jobs")
    page.goto(f"{shop.url}/queues/default")
    expect(page.get_by_role("link", name="Blocked")).to_contain_text("1")


def test_long_integers_are_shown_and_copied_as_numbers(shop: ShopServer, pages: Pages) -> None:
    """And what is copied to enqueue it again has a number, too."""
    made = shop.post("/api/jobs", {"name": "scan", "kwargs": {"page": int(LARGE)}, "delay": "3h"})["id"]
    page = pages.open(f"/jobs/{made}", permissions=["clipboard-read", "clipboard-write"])
    arguments = page.get_by_role("region", name="Arguments")
    expect(arguments).to_contain_text(LARGE)
    expect(arguments).not_to_contain_text(f'"{LARGE}"')
    assert json.loads(_copied(page, "Copy arguments as JSON")) == {"page": int(LARGE)}
    assert f"enqueue(page={LARGE})" in _copied(page, "Copy as Python")
    assert f'{{"page":{LARGE}}}' in _copied(page, "Copy as curl")


def test_masked_secrets_are_not_copied_without_a_warning(shop: ShopServer, pages: Pages) -> None:
    made = shop.post("/api/jobs", {"name": "charge", "args": [1], "kwargs": {"password": "p"}, "delay": "3h"})["id"]
    page = pages.open(f"/jobs/{made}")
    expect(page.get_by_role("region", name="Enqueue again")).to_contain_text("Secrets are masked")
    page = pages.open(f"/jobs/{shop.ids['done']}")
    expect(page.get_by_role("region", name="Facts")).to_be_visible()
    expect(page.get_by_role("region", name="Enqueue again")).not_to_contain_text("Secrets are masked")


def test_a_bar_of_the_chart_leads_to_its_jobs(shop: ShopServer, pages: Pages) -> None:
    """Dragging over a bar lists the jobs that ended then, whenever they were enqueued, and no others."""
    page = pages.open("/jobs?state=failed")
    chart = page.get_by_role("region", name="Jobs ended over time").locator("svg[role=img]")
    bars = chart.locator("rect.bar-fail")
    expect(bars.first).to_be_visible()
    expect(chart.locator("rect.bar-ok")).to_have_count(0)
    bar = bars.last.bounding_box()
    assert bar is not None
    x, y = bar["x"] + bar["width"] / 2, bar["y"] + bar["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"ended_from=.+&ended_to=.+"))
    expect(page.get_by_text(re.compile("^Ended from"))).to_be_visible()
    expect(page.locator(f"[data-row-id='{shop.ids['failed']}']")).to_be_visible()
    expect(page.locator("[data-row-id]")).to_have_count(1)


def test_selected_jobs_are_run_now(shop: ShopServer, pages: Pages) -> None:
    """Those that wait; the others are counted."""
    waiting = [shop.enqueue("audit", f"https://later.example/{n}", delay="4h") for n in range(2)]
    page = pages.open("/jobs?q=later.example")
    expect(page.locator("[data-row-id]")).to_have_count(2)
    page.get_by_role("checkbox", name="Select all rows that are loaded").check()
    page.get_by_role("region", name="Selected jobs").get_by_role("button", name="Run now").click()
    expect(page.locator(".notice")).to_contain_text("2 jobs are due now.")
    for one in waiting:
        shop.until_job(one, state="done")


def test_the_durations_have_this_job_also_where_sixty_newer_ones_ran(shop: ShopServer, pages: Pages) -> None:
    last = ""
    for n in range(61):
        last = shop.enqueue("report_day", n)
    shop.until_job(last, state="done")
    oldest = str(int(last) - 60)
    shop.until_job(oldest, state="done")
    page = pages.open(f"/jobs/{oldest}")
    durations = page.get_by_role("region", name="Durations")
    expect(durations.locator("rect.marked")).to_have_count(1)
    expect(durations).to_contain_text("This one")


def test_a_table_shows_its_rows_by_status_and_the_palette_leads_to_it(pages: Pages) -> None:
    page = pages.open("/")
    expect(page.get_by_role("heading", level=1)).to_contain_text("attention")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill("orders")
    page.get_by_role("option", name="orders").first.click()
    expect(page).to_have_url(re.compile("/tables/orders$"))
    rows = page.get_by_role("list", name="Rows by status")
    expect(rows).to_contain_text("completed 1")
    expect(rows).to_contain_text("failed 1")
