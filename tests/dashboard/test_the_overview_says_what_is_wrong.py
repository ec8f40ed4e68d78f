"""The overview never says "All is well" where something is wrong, however old, far down a list, or unreadable it is."""

import sqlite3
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Route, expect

from dashboard.conftest import need_dashboard
from dashboard.pages import Complaints, Pages
from dashboard.shop_server import ShopServer, shop_server

TWO_HOURS_US = 7_200_000_000


@pytest.fixture(scope="module")
def idle_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShopServer]:
    """A server that runs no worker, on an empty database."""
    need_dashboard()
    with shop_server(tmp_path_factory.mktemp("idle"), is_filled=False, works=False) as server:
        yield server


@pytest.fixture
def idle_pages(browser: Browser, idle_shop: ShopServer, complaints: Complaints) -> Iterator[Pages]:
    """Opens pages of the server without a worker."""
    opened = Pages(browser, idle_shop.url, complaints)
    yield opened
    opened.close()


def test_a_job_that_was_enqueued_long_before_it_failed_is_told_and_the_tile_leads_to_it(
    shop: ShopServer, pages: Pages
) -> None:
    failed = shop.enqueue("charge", 2000)
    shop.until_job(failed, state="failed")
    with sqlite3.connect(shop.database.removeprefix("sqlite:///")) as database:
        database.execute("update everpoll_history set created_at = created_at - ?", (TWO_HOURS_US,))
    page = pages.open("/")
    region = page.get_by_role("region", name="Needs attention")
    expect(region).to_contain_text("Job charge")
    expect(region).to_contain_text("run-failed")
    page.get_by_role("link", name="Failed in 1 h").click()
    expect(page.locator(f"[data-row-id='{failed}']")).to_be_visible()


def test_a_list_that_cannot_be_read_is_a_concern(pages: Pages, complaints: Complaints) -> None:
    """It does not count as an empty one."""
    complaints.expect("503")
    page = pages.open("/doctor")
    busy = '{"title":"busy","detail":"the database took longer than 2 s"}'
    page.route(
        "**/api/loops?*", lambda route: route.fulfill(status=503, body=busy, content_type="application/problem+json")
    )
    page.goto(page.url.replace("/doctor", "/"))
    first = page.get_by_role("region", name="Needs attention").get_by_role("listitem").first
    expect(first).to_contain_text("Not known: this list could not be read to its end.")
    expect(first).to_contain_text("the database took longer than 2 s")


def test_the_verdict_waits_for_every_list(pages: Pages) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page = pages.open("/doctor")
    page.route("**/api/schedules*", hold)
    page.goto(page.url.replace("/doctor", "/"))
    heading = page.get_by_role("heading", level=1)
    expect(page.get_by_role("region", name="Verdict")).to_contain_text("Looking")
    expect(page.locator("[data-state=loading]")).to_be_visible()
    held[0].continue_()
    expect(heading).to_contain_text("attention")


def test_services_in_trouble_are_found_behind_hundreds_of_newer_ones(pages: Pages) -> None:
    """The first page of services is full: those in trouble are asked for by their status."""
    page = pages.open("/doctor")

    def first_page(route: Route) -> None:
        answer = route.fetch()
        found = answer.json()
        if "status=" not in route.request.url:
            found = {"items": [one for one in found["items"] if one["status"] == "up"], "after": "s.1"}
        route.fulfill(response=answer, json=found)

    page.route("**/api/services?*", first_page)
    page.goto(page.url.replace("/doctor", "/"))
    expect(page.get_by_role("region", name="Needs attention")).to_contain_text("Service warehouse")
    expect(page.get_by_role("link", name="Services down")).to_contain_text("of 3+, 1 degraded")


def test_without_a_worker_the_overview_and_the_job_say_so(idle_shop: ShopServer, idle_pages: Pages) -> None:
    waits = idle_shop.enqueue("audit", "https://example.com")
    page = idle_pages.open("/")
    expect(page.get_by_role("region", name="Needs attention")).to_contain_text("No worker is alive, and 1 task waits.")
    page = idle_pages.open(f"/jobs/{waits}")
    expect(page.get_by_role("region", name="Why")).to_contain_text("no worker", ignore_case=True)
    expect(page.get_by_role("region", name="Why")).to_contain_text("everpoll run")


def test_a_problem_of_the_doctor_comes_first_with_the_mark_of_a_failure(
    idle_shop: ShopServer, idle_pages: Pages
) -> None:
    with sqlite3.connect(idle_shop.database.removeprefix("sqlite:///")) as database:
        database.execute("drop index everpoll_history_then")
    assert idle_shop.get("/api/doctor")["checks"]
    page = idle_pages.open("/doctor")
    first = page.get_by_role("region", name="Checks").get_by_role("listitem").first
    expect(first).to_contain_text("problem")
    expect(first.locator(".tone-fail")).to_be_visible()
    expect(page.get_by_role("region", name="Checks").get_by_role("listitem").last.locator(".tone-ok")).to_be_visible()
