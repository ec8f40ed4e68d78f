"""Each action of the dashboard in a real browser: what it changes on the server, not only that it can be pressed.

Actions on the page of a run, a service and a queue are in `test_runs_and_services_are_operated.py` and
`test_pages_suit_everyone.py`, those of a job in `test_jobs_are_found_and_operated.py`, logging in and out in
`test_pages_offer_what_their_reader_may_do.py`.
"""

import contextlib
import json
import re
import shlex
import sqlite3
import subprocess
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl

from playwright.sync_api import Locator, Page, expect

from cli.health_answers import DOWN, UP, paths
from dashboard.pages import NARROW, Pages, wait_until
from dashboard.shop_server import ShopServer
from watches.adapters.fake_server import by_path


def _row(page: Page, key: str) -> Locator:
    return page.locator(f"[data-row-id='{key}']")


def _press(within: Page | Locator, name: str) -> None:
    within.get_by_role("button", name=name, exact=True).click()


def _listed(shop: ShopServer, path: str, **wanted: Any) -> Any:
    """Return the first item of a list that has these fields, or None."""
    bare, _, query = path.partition("?")
    items = shop.get(bare, **dict(parse_qsl(query)))["items"]
    return next((one for one in items if wanted.items() <= one.items()), None)


def test_a_list_of_runs_offers_every_action_at_every_width(shop: ShopServer, pages: Pages) -> None:
    """Look now on a phone, Extend on a tablet, Cancel on a phone: each reaches the server."""
    run = shop.begin("run-of-the-list")
    page = pages.open("/runs?watch=export", size=NARROW)
    row = page.locator("[data-row-id]").filter(has_text="run-of-the-list")
    before = shop.get(f"/api/runs/{run}")
    expect(row.get_by_role("button", name="Extend")).to_be_in_viewport(ratio=1)
    _press(row, "Look now")
    expect(page.locator(".notice").last).to_contain_text("the next look of export:run-of-the-list is due now")
    shop.until(lambda: shop.get(f"/api/runs/{run}")["looks"] > before["looks"])
    page.set_viewport_size({"width": 860, "height": 800})
    _press(row, "Extend")
    page.get_by_role("dialog").get_by_label("More looks").fill("7")
    _press(page.get_by_role("dialog"), "Extend")
    shop.until(lambda: shop.get(f"/api/runs/{run}")["budget_looks"] == before["budget_looks"] + 7)
    assert shop.get(f"/api/runs/{run}")["budget_s"] == before["budget_s"] + 600
    page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    _press(row, "Cancel")
    page.get_by_role("dialog").get_by_label("Reason").fill("not needed")
    _press(page.get_by_role("dialog"), "Cancel run")
    shop.until(lambda: shop.get(f"/api/runs/{run}")["outcome"] == "canceled")


def test_an_incident_is_acknowledged_and_says_by_which_operator(shop: ShopServer, pages: Pages) -> None:
    """The server keeps who knows of it; there is nothing left to press."""
    shop.post("/api/services", {"name": "ledger", "target": f"{shop.remote.url}/down", "every": "1h"})
    for _ in range(3):
        shop.post("/api/services/ledger/check")
    shop.until(lambda: _listed(shop, "/api/incidents?service=ledger", is_open=True))
    page = pages.open("/services/ledger")
    incidents = page.get_by_role("region", name="Incidents")
    known = _listed(shop, "/api/incidents?service=ledger", dependency=None)["id"]
    incident = incidents.get_by_role("listitem").filter(has_not_text="dependency")
    _press(incident, "Acknowledge")
    expect(incident).to_contain_text("Acknowledged by HTTP from 127.0.0.1")
    expect(incident.get_by_role("button", name="Acknowledge")).to_have_count(0)
    kept = {one["id"]: one["acknowledged_by"] for one in shop.get("/api/incidents", service="ledger")["items"]}
    assert {one: by for one, by in kept.items() if by is not None} == {known: "HTTP from 127.0.0.1"}


def test_a_maintenance_window_is_planned_and_removed(shop: ShopServer, pages: Pages) -> None:
    """With its length and its reason."""
    page = pages.open("/services/search")
    _press(page, "Maintenance")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Lasts").select_option("4 hours")
    dialog.get_by_label("Reason").fill("a new index")
    _press(dialog, "Plan")
    planned = page.get_by_role("region", name="Maintenance")
    expect(planned).to_contain_text("a new index")
    window = shop.get("/api/maintenance")["items"][0]
    assert (window["services"], window["reason"], window["is_active"]) == (["search"], "a new index", True)
    starts, ends = (datetime.fromisoformat(window[name]) for name in ("starts_at", "ends_at"))
    assert ends - starts == timedelta(hours=4)
    _press(planned, "Remove")
    expect(planned).to_have_count(0)
    assert shop.get("/api/maintenance")["items"] == []


def test_a_loop_forgets_its_failures(shop: ShopServer, pages: Pages) -> None:
    page = pages.open("/loops")
    row = page.get_by_role("row").filter(has_text="sync_stock")
    failed = shop.until(lambda: _listed(shop, "/api/loops", name="sync_stock"))
    assert failed["failures"] >= 1
    assert failed["multiplier"] > 1
    _press(row, "Reset")
    expect(page.locator(".notice").last).to_contain_text("loop sync_stock is reset")
    shop.until(lambda: _listed(shop, "/api/loops", name="sync_stock", failures=0, multiplier=1.0))
    expect(row).not_to_contain_text("in a row")


def test_one_job_is_deleted_from_its_page(shop: ShopServer, pages: Pages) -> None:
    """It asks first; then the job is gone, and the list is shown."""
    job = shop.enqueue("charge", 41)
    shop.until_job(job, state="failed")
    page = pages.open(f"/jobs/{job}")
    _press(page, "Delete")
    _press(page.get_by_role("dialog"), "Back")
    assert shop.get(f"/api/jobs/{job}")["state"] == "failed"
    _press(page, "Delete")
    _press(page.get_by_role("dialog"), "Delete job")
    expect(page).to_have_url(re.compile("/jobs$"))
    assert _listed(shop, "/api/jobs?name=charge&q=41", id=int(job)) is None


def test_all_jobs_of_a_filter_are_canceled(shop: ShopServer, pages: Pages) -> None:
    """Those of the filter, and no others."""
    wanted = [shop.enqueue("audit", f"https://unwanted/{n}", delay="1h") for n in range(3)]
    other = shop.enqueue("audit", "https://wanted", delay="1h")
    page = pages.open("/jobs?state=queued&q=unwanted")
    expect(page.locator("[data-row-id]")).to_have_count(3)
    page.get_by_role("checkbox", name="Select all rows that are loaded").check()
    _press(page.get_by_role("region", name="Selected jobs"), "Cancel")
    _press(page.get_by_role("dialog"), "Cancel 3 jobs")
    expect(page.get_by_role("dialog")).to_contain_text("3 jobs canceled or asked to end.")
    assert {shop.get(f"/api/jobs/{one}")["state"] for one in wanted} == {"canceled"}
    assert shop.get(f"/api/jobs/{other}")["state"] == "queued"


def test_ticked_rows_are_retried_and_the_others_are_not(shop: ShopServer, pages: Pages) -> None:
    """A row that was not ticked keeps its one attempt."""
    jobs = [shop.enqueue("charge", order, kwargs={"password": "ticked"}) for order in (51, 52, 53)]
    for one in jobs:
        shop.until_job(one, state="failed")
    trails = {one: len(shop.get(f"/api/jobs/{one}")["actions"]) for one in jobs}
    page = pages.open("/jobs?state=failed&q=ticked")
    for one in jobs[:2]:
        page.get_by_role("checkbox", name=f"Select {one}").check()
    expect(page.get_by_role("region", name="Selected jobs")).to_contain_text("2 jobs selected")
    _press(page.get_by_role("region", name="Selected jobs"), "Retry")
    _press(page.get_by_role("dialog"), "Retry 2 jobs")
    expect(page.get_by_role("dialog")).to_contain_text("2 jobs queued again.")
    _press(page.get_by_role("dialog"), "Close")
    expect(page.get_by_role("region", name="Selected jobs")).to_have_count(0)
    for one in jobs[:2]:
        shop.until(lambda: len(shop.get(f"/api/jobs/{one}")["actions"]) > trails[one])  # noqa: B023 - asked at once
    assert len(shop.get(f"/api/jobs/{jobs[2]}")["actions"]) == trails[jobs[2]]


def test_a_queue_is_paused_and_resumed_in_the_list(shop: ShopServer, pages: Pages) -> None:
    page = pages.open("/queues")
    row = _row(page, "slow")
    _press(row, "Pause")
    page.get_by_role("dialog").get_by_label("Reason").fill("the disk is full")
    _press(page.get_by_role("dialog"), "Pause")
    expect(row.get_by_role("button", name="Resume")).to_be_visible()
    assert _listed(shop, "/api/queues", name="slow")["paused"]["reason"] == "the disk is full"
    _press(row, "Resume")
    expect(row.get_by_role("button", name="Pause")).to_be_visible()
    assert _listed(shop, "/api/queues", name="slow")["paused"] is None


def test_a_service_is_operated_in_the_list(shop: ShopServer, pages: Pages) -> None:
    """Check now, Mute, Unmute, Pause and Resume."""
    page = pages.open("/services")
    row = _row(page, "search")
    before = shop.get("/api/services/search")
    _press(row, "Check now")
    shop.until(lambda: shop.get("/api/services/search")["looked_at"] != before["looked_at"])
    _press(row, "Mute")
    page.get_by_role("dialog").get_by_label("8 hours").check()
    _press(page.get_by_role("dialog"), "Mute")
    expect(row).to_contain_text("muted")
    assert shop.get("/api/services/search")["muted_until"] is not None
    _press(row, "Unmute")
    expect(row.get_by_role("button", name="Mute", exact=True)).to_be_visible()
    assert shop.get("/api/services/search")["muted_until"] is None
    _press(row, "Pause")
    page.get_by_role("dialog").get_by_label("Reason").fill("it is moved")
    _press(page.get_by_role("dialog"), "Pause")
    expect(row).to_contain_text("it is moved")
    assert shop.get("/api/services/search")["paused"]["reason"] == "it is moved"
    _press(row, "Resume")
    expect(row.get_by_role("button", name="Check now")).to_be_visible()
    assert shop.get("/api/services/search")["paused"] is None


def test_services_are_sorted_again_when_a_reader_says_so(shop: ShopServer, pages: Pages) -> None:
    """A service that goes down stays where it is until then."""
    page = pages.open("/services")
    rows = page.locator("[data-row-id]")
    names = ["warehouse", "search", "billing"]
    expect(_row(page, "billing")).to_contain_text("up")

    def shown() -> list[str]:
        return [one for one in (row.get_attribute("data-row-id") for row in rows.all()) if one in names]

    assert shown() == names
    shop.remote.answer = by_path({"GET /up": DOWN, "GET /degraded": UP, "GET /down": DOWN})
    try:
        for name in ("billing", "search"):
            shop.post(f"/api/services/{name}/check")
        expect(_row(page, "billing")).to_contain_text("down")
        assert shown() == names
        _press(page, "Sort again")
        expect(page.get_by_role("button", name="Sort again")).to_have_count(0)
        assert shown() == ["billing", "warehouse", "search"]
    finally:
        shop.remote.answer = paths
        for name in ("billing", "search"):
            shop.post(f"/api/services/{name}/check")


def test_a_table_is_looked_at_again(shop: ShopServer, pages: Pages) -> None:
    """A column that the table has got meanwhile is found by Check now."""
    page = pages.open("/tables/orders")
    found = page.get_by_role("region", name="Table orders")
    expect(found).to_contain_text("missing")
    missing = [one for one in _listed(shop, "/api/tables?check=true", name="orders")["findings"] if not one["is_fit"]]
    given = next(one for one in missing if one["ddl"] is not None)
    expect(found).to_contain_text(given["ddl"])
    with contextlib.closing(sqlite3.connect(shop.database.removeprefix("sqlite:///"))) as connection, connection:
        connection.executescript(given["ddl"])
    _press(page, "Check now")
    expect(found).not_to_contain_text(given["ddl"])


def test_the_doctor_runs_again(shop: ShopServer, pages: Pages) -> None:
    """What has gone wrong since the page was opened is in its new report."""
    page = pages.open("/doctor")
    expect(page.get_by_role("region", name="Checks")).to_be_visible()
    shop.post("/api/queues/slow/pause", {"reason": "it is being swept"})
    waiting = shop.enqueue("render")
    try:
        _press(page, "Run")
        expect(page.get_by_role("region", name="Checks")).to_contain_text(
            "queue 'slow' is paused by HTTP from 127.0.0.1 (it is being swept)"
        )
    finally:
        shop.post(f"/api/jobs/{waiting}/cancel")
        shop.post("/api/queues/slow/resume")


def test_a_chart_is_viewed_as_a_table(shop: ShopServer, pages: Pages) -> None:
    """Its figures are those of the server."""
    page = pages.open("/jobs")
    chart = page.get_by_role("region", name="Jobs ended over time")
    _press(chart, "View as table")
    table = chart.get_by_role("table", name="Jobs ended, by outcome")
    expect(table.get_by_role("columnheader")).to_have_text(["From", "done", "failed", "canceled"])

    def shows_the_sum() -> bool:
        series = shop.get("/api/series", of="throughput", range="1h", step="1m")["items"]
        wanted = sum(int((one["counts"] or {}).get("failed", 0)) for one in series)
        cells = table.locator("tbody td:nth-child(3)").all_inner_texts()
        return wanted > 0 and sum(int(one) for one in cells if one.isdigit()) == wanted

    shop.until(shows_the_sum)
    _press(chart, "View as chart")
    expect(table).to_have_count(0)


def test_the_graph_is_focused_deepened_and_reduced_to_problems(shop: ShopServer, pages: Pages) -> None:
    """Each choice shows what the server knows around it."""
    for name, needs in {"front": "middle", "middle": "back", "back": "warehouse"}.items():
        shop.post(
            "/api/services", {"name": name, "target": f"{shop.remote.url}/up", "every": "1h", "depends_on": [needs]}
        )
        shop.post(f"/api/services/{name}/check")
    page = pages.open("/graph")
    drawing = page.get_by_role("region", name="Drawing of the graph")

    def shows(**query: Any) -> None:
        wanted = {str(one["name"]) for one in shop.get("/api/graph", **query)["nodes"]}
        expect(drawing.locator("a.node .strong")).to_have_text([re.compile(".")] * len(wanted))
        assert set(drawing.locator("a.node .strong").all_inner_texts()) == wanted

    shows()
    drawing.get_by_role("link", name=re.compile("^front")).click()
    expect(page).to_have_url(re.compile("focus=front"))
    shows(focus="front", depth=2)
    _press(page.get_by_role("group", name="Steps around the focus"), "1")
    expect(drawing.get_by_role("link", name=re.compile("^back"))).to_have_count(0)
    shows(focus="front", depth=1)
    _press(page.get_by_role("group", name="Steps around the focus"), "4")
    expect(drawing.get_by_role("link", name=re.compile("^warehouse"))).to_be_visible()
    shows(focus="front", depth=4)
    _press(page, "Whole graph")
    _press(page, "Problems only")
    expect(drawing.get_by_role("link", name=re.compile("^billing"))).to_have_count(0)
    shows(problems="true")


def test_a_job_is_copied_as_python_and_as_curl_that_enqueue_it_again(shop: ShopServer, pages: Pages) -> None:
    """What stands in the clipboard is carried out."""
    job = shop.enqueue("audit", "https://copied/it's", kwargs={"depth": 3}, delay="1h")
    page = pages.open(f"/jobs/{job}", permissions=["clipboard-read", "clipboard-write"])

    def copied(label: str) -> str:
        _press(page, label)
        wait_until(page, "navigator.clipboard.readText().then((text) => text !== window.before)")
        text = page.evaluate("navigator.clipboard.readText().then((text) => (window.before = text))")
        assert isinstance(text, str)
        return text

    python, curl = copied("Copy as Python"), copied("Copy as curl")
    asked: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    class Audit:
        async def enqueue(self, *args: Any, **kwargs: Any) -> None:
            asked.append((args, kwargs))

    kept: dict[str, Any] = {"app": SimpleNamespace(jobs={"audit": Audit()})}
    exec(f"async def again():\n    {python}\n", kept)  # noqa: S102 - the page offers it to be run
    with contextlib.suppress(StopIteration):
        kept["again"]().send(None)
    assert asked == [(("https://copied/it's",), {"depth": 3})]
    words = shlex.split(curl)
    assert words[0] == "curl"
    done = subprocess.run([words[0], "--silent", "--noproxy", "*", *words[1:]], capture_output=True, check=True)
    again = shop.get(f"/api/jobs/{json.loads(done.stdout)['id']}")
    assert (again["name"], again["args"], again["kwargs"]) == ("audit", ["https://copied/it's"], {"depth": 3})
