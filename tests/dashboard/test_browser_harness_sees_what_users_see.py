"""The browser of the dashboard's tests: pages are really hidden, and no error of a page goes unnoticed."""

import pytest
from playwright.sync_api import Page, expect

from dashboard.pages import NARROW, Complaints, Pages, axe, requests_of, wait_until


def test_a_tab_is_hidden_by_the_tab_in_front_of_it(pages: Pages) -> None:
    """`document.hidden` is the browser's own word, not a script's."""
    page, other = pages.tab("/"), pages.tab("/")
    wait_until(page, "document.hidden")
    assert not other.evaluate("document.hidden")
    page.bring_to_front()
    wait_until(page, "!document.hidden")
    wait_until(other, "document.hidden")


def test_a_window_of_its_own_hides_nothing(pages: Pages) -> None:
    """Windows side by side are all visible, and each has its own size and theme."""
    wide, narrow = pages.open("/"), pages.open("/", size=NARROW, theme="dark")
    seen = "[document.hidden, innerWidth, matchMedia('(prefers-color-scheme: dark)').matches]"
    assert wide.evaluate(seen) == [False, 1440, False]
    assert narrow.evaluate(seen) == [False, 360, True]


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("setTimeout(() => { throw new Error('not caught') })", "not caught"),
        ("console.error('told')", "told"),
        (
            "document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\">styled</p>')",
            "Applying inline style violates",
        ),
        (
            "document.head.append(Object.assign(document.createElement('script'), {text: '1'}))",
            "Executing inline script violates",
        ),
    ],
)
def test_errors_and_forbidden_markup_are_noticed(
    page: Page, complaints: Complaints, script: str, complaint: str
) -> None:
    """Each of them would fail a test that does not expect it."""
    with page.expect_event("console") if "not caught" not in script else page.expect_event("pageerror"):
        page.evaluate(script)
    assert any(complaint in one for one in complaints.unexpected()), complaints.found
    complaints.expect(".")


def test_axe_runs_under_the_policy_of_the_page(page: Page) -> None:
    """It finds a picture without a text, and the policy of the page is not touched for it."""
    expect(page.get_by_role("main")).to_be_visible()
    page.evaluate("document.querySelector('main').append(document.createElement('img'))")
    assert any("image-alt" in one for one in axe(page, runOnly=["image-alt"]))


def test_requests_are_listed(pages: Pages) -> None:
    """A test can count what a page asks for."""
    page = pages.open("/")
    seen = requests_of(page)
    page.evaluate("fetch('/api/queues').then((answer) => answer.text())")
    assert "GET /api/queues" in seen
