"""Dialogs, the palette and the list of keys: accessible, light and dark, on a phone and on a large window."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, expect

from dashboard.pages import NARROW, WIDE, Pages, Theme, axe
from dashboard.shop_server import ShopServer

ASKED_FOR = [
    ("/jobs/{running}", "Cancel"),
    ("/runs/{run waiting}", "Extend"),
    ("/runs/{run waiting}", "Cancel"),
    ("/services/billing", "Mute"),
    ("/services/billing", "Maintenance"),
    ("/services/billing", "Pause"),
    ("/queues/slow", "Pause"),
]
"""A view, and the button that opens a dialog in it."""

CUT = """() => [...document.querySelectorAll("dialog[open] *")]
  .filter((one) => one.clientWidth > 0 && one.getBoundingClientRect().right > innerWidth + 1)
  .map((one) => one.outerHTML.slice(0, 120))"""


@contextmanager
def _open(page: Page, address: str, button: str | None) -> Iterator[None]:
    if page.url != address:
        page.goto(address)
    expect(page.locator("[data-freshness]")).to_contain_text("Live", timeout=60_000)
    expect(page.locator("[data-state=loading]")).to_have_count(0)
    if button is not None:
        page.get_by_role("button", name=button, exact=True).first.click()
        expect(page.get_by_role("dialog")).to_be_visible()
    yield
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [NARROW, WIDE])
def test_open_dialogs_are_accessible_and_whole(
    shop: ShopServer, pages: Pages, size: tuple[int, int], theme: Theme
) -> None:
    """Each is closed by Escape; nothing of it is beyond the window."""
    # A dialog that still fades in has another contrast.
    page = pages.open("/", size=size, theme=theme, reduced_motion="reduce")
    found: dict[str, list[str]] = {}

    def look(name: str) -> None:
        found[name] = [*axe(page, "dialog[open]"), *page.evaluate(CUT)]
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0], name

    for path, button in ASKED_FOR:
        with _open(page, f"{shop.url}{path.format(**shop.ids)}", button):
            look(f"{path} {button}")
    with _open(page, f"{shop.url}/jobs?state=failed", None):
        page.get_by_role("checkbox").last.check()
        page.get_by_role("region", name="Selected jobs").get_by_role("button", name="Delete").click()
        expect(page.locator("[data-dry-run]")).to_be_visible()
        look("bulk")
    for key in ("Control+k", "?"):
        page.keyboard.press(key)
        expect(page.get_by_role("dialog")).to_be_visible()
        look(key)
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
    assert {name: faults for name, faults in found.items() if faults} == {}
