"""Tokens in a real browser: a reader is offered no action, and a session that has ended leads back to its view."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from dashboard.conftest import need_dashboard
from dashboard.pages import Complaints, Pages, axe
from dashboard.shop_server import ShopServer, shop_server
from server.site import READ_TOKEN, TOKEN

ACTIONS = re.compile(
    r"^(Retry|Cancel|Delete|Pause|Resume|Run now|Look now|Check now|Extend|Mute|Unmute|Maintenance|Acknowledge)\b"
)
VIEWS = [
    "/jobs",
    "/jobs/{failed}",
    "/jobs/causes",
    "/jobs/{scheduled}",
    "/runs",
    "/runs/{run waiting}",
    "/services",
    "/services/warehouse",
    "/loops",
    "/workers",
    "/queues",
    "/queues/slow",
    "/queues/reports",
    "/schedules",
]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShopServer]:
    """The shop behind a token and a read token."""
    need_dashboard()
    folder = tmp_path_factory.mktemp("guarded")
    with shop_server(folder, EVERPOLL_TOKEN=TOKEN, EVERPOLL_READ_TOKEN=READ_TOKEN) as server:
        yield server


@pytest.fixture
def guarded_pages(browser: Browser, guarded: ShopServer, complaints: Complaints) -> Iterator[Pages]:
    """Opens pages of the guarded server; the login page is a 401."""
    complaints.expect("401")
    opened = Pages(browser, guarded.url, complaints)
    yield opened
    opened.close()


def _log_in(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("[data-freshness]")).to_contain_text("Live", timeout=60_000)


def _offered(page: Page, path: str) -> list[str]:
    """Return the actions that a view offers, once it is whole."""
    page.goto(path)
    expect(page.locator("[data-freshness]")).to_contain_text("Live", timeout=60_000)
    expect(page.locator("[data-state=loading]")).to_have_count(0)
    expect(page.get_by_role("main")).to_contain_text(re.compile(r"\w{3}"))
    return [one.inner_text() for one in page.get_by_role("main").get_by_role("button", name=ACTIONS).all()]


def test_a_reader_is_offered_no_action_and_a_writer_is(guarded: ShopServer, guarded_pages: Pages) -> None:
    """In every view with actions; the header tells the reader so, and rows cannot be selected."""
    page = guarded_pages.open("/jobs")
    _log_in(page, TOKEN)
    expect(page.get_by_role("checkbox").first).to_be_visible()
    expect(page.get_by_text("Read only")).to_have_count(0)
    addresses = [f"{guarded.url}{path.format(**guarded.ids)}" for path in VIEWS]
    written = [one for address in addresses for one in _offered(page, address)]
    wanted = {"Retry", "Cancel", "Run now", "Look now", "Extend", "Check now", "Mute", "Pause", "Resume"}
    assert wanted <= set(written)

    reader = guarded_pages.open("/jobs")
    _log_in(reader, READ_TOKEN)
    expect(reader.get_by_text("Read only")).to_be_visible()
    expect(reader.locator("[data-row-id]").first).to_be_visible()
    expect(reader.get_by_role("checkbox")).to_have_count(0)
    assert [one for address in addresses for one in _offered(reader, address)] == []


def test_a_session_that_has_ended_leads_over_the_login_page_back_to_its_view(
    guarded: ShopServer, guarded_pages: Pages
) -> None:
    """The view says so and keeps what it shows; after the token it is the same view, with its filter."""
    failed = guarded.ids["failed"]
    page = guarded_pages.open("/jobs?state=failed&q=7")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("That token is not known here.")).to_be_visible()
    _log_in(page, TOKEN)
    assert page.url == f"{guarded.url}/jobs?state=failed&q=7"
    row = page.locator(f"[data-row-id='{failed}']")
    expect(row).to_be_visible()

    page.context.clear_cookies()
    guarded.enqueue("audit", "https://example.com/while-logged-out", delay="1h")
    ended = page.get_by_role("alert").filter(has_text="Your session has ended.")
    expect(ended).to_be_visible(timeout=60_000)
    expect(row).to_be_visible()
    ended.get_by_role("button", name="Log in").click()
    _log_in(page, TOKEN)
    assert page.url == f"{guarded.url}/jobs?state=failed&q=7"
    expect(row).to_be_visible()


def test_logging_out_forgets_the_session(guarded: ShopServer, guarded_pages: Pages) -> None:
    """The button is in the settings; afterwards every page is the login page, in this tab and in others."""
    page = guarded_pages.open("/jobs")
    _log_in(page, TOKEN)
    page.get_by_role("button", name="Settings").click()
    assert axe(page) == []
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.goto(f"{guarded.url}/jobs")
    expect(page.get_by_label("Token")).to_be_visible()


def test_a_login_page_that_is_not_needed_offers_the_way_out(guarded: ShopServer, guarded_pages: Pages) -> None:
    page = guarded_pages.open("/jobs")
    _log_in(page, READ_TOKEN)
    page.goto(f"{guarded.url}/login")
    expect(page.locator("main")).to_contain_text("You are logged in.")
    assert axe(page) == []
    page.get_by_role("link", name="Open the dashboard").click()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.goto(f"{guarded.url}/logout")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()


def test_where_no_token_is_needed_there_is_nothing_to_log_out_of(shop: ShopServer, pages: Pages) -> None:
    page = pages.open("/jobs")
    expect(page.locator("[data-freshness]")).to_contain_text("Live", timeout=60_000)
    page.get_by_role("button", name="Settings").click()
    expect(page.get_by_role("button", name="Keys")).to_be_visible()
    expect(page.get_by_role("button", name="Log out")).to_have_count(0)
