"""Each list is readable when it is empty, filtered to nothing, loading and failing, and each of the four looks differs.

Answers are replaced on their way to the page, so one server without jobs is enough.
"""

import json

import pytest
from playwright.sync_api import Page, Route, expect

from dashboard.pages import NARROW, WIDE, Complaints, Pages, axe
from dashboard.shop_server import ShopServer

NOTHING: dict[str, object] = {"items": [], "after": None}
LISTS = {
    "/jobs": ("**/api/jobs?*", NOTHING, "No job yet", "/jobs?q=x", "No job fits this filter"),
    "/jobs/causes": (
        "**/api/jobs/causes*",
        {"items": [], "is_capped": False, "searched": 0},
        "No job has failed",
        "/jobs/causes?name=x",
        "No failed job fits this filter",
    ),
    "/runs": ("**/api/runs?*", NOTHING, "No run yet", "/runs?watch=x", "No run fits this filter"),
    "/runs/polling": (
        "**/api/polling*",
        {"items": [], "runs": 0, "is_capped": False, "since": None},
        "No run to count looks of",
        "/runs/polling?watch=x",
        "No run fits this filter",
    ),
    "/services": (
        "**/api/services?*",
        NOTHING,
        "No service is monitored",
        "/services?q=x",
        "No service fits this filter",
    ),
    "/graph": (
        "**/api/graph*",
        {"nodes": [], "edges": [], "is_cut": False},
        "No service is monitored",
        "/graph?problems=true&focus=x",
        "Nothing fits",
    ),
    "/loops": ("**/api/loops?*", NOTHING, "No loop", "/loops?q=x", "No loop fits this filter"),
    "/schedules": ("**/api/schedules*", NOTHING, "No schedule", "/schedules?q=x", "No schedule fits this filter"),
    "/events": ("**/api/log?*", NOTHING, "No event yet", "/events?name=x", "No event fits this filter"),
    "/workers": ("**/api/workers?*", NOTHING, "No worker within the last day", None, ""),
    "/queues": ("**/api/queues?*", NOTHING, "No queue yet", None, ""),
    "/tables": ("**/api/tables*", NOTHING, "No table", None, ""),
}
BUSY = json.dumps({"title": "Unavailable", "status": 503, "detail": "the database took longer than 2 s"})
LOOK = "() => [...document.querySelectorAll('main [data-state]')].map((one) => one.dataset.state)"
CUT = """() => [...document.querySelectorAll("main [data-state], main [data-state] *")]
  .filter((one) => one.clientWidth > 1 && one.scrollWidth > one.clientWidth + 1).map((one) => one.outerHTML)"""


def _is_readable(page: Page, state: str) -> str:
    """Assert that the list is in this state, in both themes and sizes; return what it says."""
    shown = page.locator(f"main [data-state={state}]")
    expect(shown.first).to_be_visible()
    assert set(page.evaluate(LOOK)) == {state}
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        assert axe(page, "main") == [], f"{state}, {theme}"
    page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW[0], state
    assert page.evaluate(CUT) == [], state
    page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
    return shown.first.inner_text()


@pytest.mark.parametrize("path", LISTS)
def test_the_four_looks_are_readable_and_differ(
    empty_shop: ShopServer, empty_pages: Pages, complaints: Complaints, path: str
) -> None:
    """Loading shows at once, an error says what the server said, empty explains, and a filter can be cleared."""
    complaints.expect("503")
    api, nothing, empty, filtered_path, filtered = LISTS[path]
    page = empty_pages.open("/doctor")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    held: list[Route] = []
    page.route(api, lambda route: held.append(route))  # noqa: PLW0108 - Playwright takes no builtin
    page.goto(f"{empty_shop.url}{path}")
    said = {_is_readable(page, "loading")}
    page.unroute(api)
    page.route(api, lambda route: route.fulfill(status=503, body=BUSY, content_type="application/problem+json"))
    page.goto(f"{empty_shop.url}{path}")
    said.add(failing := _is_readable(page, "error"))
    assert "the database took longer than 2 s" in failing
    assert "Try again" in failing
    page.unroute(api)
    page.route(api, lambda route: route.fulfill(json=nothing))
    page.goto(f"{empty_shop.url}{path}")
    said.add(text := _is_readable(page, "empty"))
    assert empty in text
    page.unroute(api)
    if filtered_path is not None:
        page.goto(f"{empty_shop.url}{filtered_path}")
        said.add(text := _is_readable(page, "filtered-empty"))
        assert filtered in text
        expect(page.get_by_role("button", name="Clear filters")).to_be_visible()
    assert len(said) == (3 if filtered_path is None else 4)
