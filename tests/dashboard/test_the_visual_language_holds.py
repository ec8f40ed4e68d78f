"""The colours, sizes and figures that every view shares: readable in each theme, also without seeing all colours."""

import itertools
import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from build_dashboard import Dashboard
from dashboard.pages import Pages
from dashboard.shop_server import ShopServer

TOKENS = (Dashboard().sources / "src" / "app" / "tokens.css").read_text("utf-8")
Colour = tuple[float, float, float]
TEXTS = ("text-1", "text-2", "text-3", "accent", "ok", "active", "warn", "fail", "idle")
GROUNDS = ("bg", "surface", "raised")
# Machado, Oliveira and Fernandes (2009): how a colour is seen without cones of one kind, in linear RGB.
SEEN_BY = {
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
LEAST_CONTRAST = 4.5
LEAST_DIFFERENCE = 20.0
"""In CIE Lab, where 2.3 is just noticeable."""


def _theme(name: str) -> dict[str, Colour]:
    block = TOKENS.split(':root[data-theme="dark"]')[0 if name == "light" else 1]
    found = re.findall(r"--([\w-]+): #([0-9a-f]{6});", block)
    return {token: _linear(text) for token, text in found}


def _linear(text: str) -> Colour:
    red, green, blue = (int(text[at : at + 2], 16) / 255 for at in (0, 2, 4))

    def one(value: float) -> float:
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    return one(red), one(green), one(blue)


def _luminance(colour: Colour) -> float:
    return 0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2]


def _contrast(one: Colour, other: Colour) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _seen(colour: Colour, matrix: tuple[Colour, Colour, Colour]) -> Colour:
    red, green, blue = (
        min(1.0, max(0.0, sum(part * share for part, share in zip(colour, row, strict=True)))) for row in matrix
    )
    return red, green, blue


def _lab(colour: Colour) -> Colour:
    red, green, blue = colour
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = _luminance(colour)
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089

    def one(value: float) -> float:
        return float(value ** (1 / 3)) if value > 0.008856 else 7.787 * value + 16 / 116

    return 116 * one(y) - 16, 500 * (one(x) - one(y)), 200 * (one(y) - one(z))


def _difference(one: Colour, other: Colour) -> float:
    return float(sum((a - b) ** 2 for a, b in zip(_lab(one), _lab(other), strict=True)) ** 0.5)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_is_readable_on_every_ground(theme: str) -> None:
    colours = _theme(theme)
    found = {
        (text, ground): round(contrast, 2)
        for text, ground in itertools.product(TEXTS, GROUNDS)
        if (contrast := _contrast(colours[text], colours[ground])) < LEAST_CONTRAST
    }
    assert found == {}
    assert _contrast(colours["on-accent"], colours["accent"]) >= LEAST_CONTRAST


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_bars_are_told_apart_without_cones_of_one_kind(theme: str) -> None:
    colours = _theme(theme)
    for kind, matrix in SEEN_BY.items():
        for one, other in itertools.combinations(("bar-ok", "bar-warn", "bar-fail"), 2):
            difference = _difference(_seen(colours[one], matrix), _seen(colours[other], matrix))
            assert difference >= LEAST_DIFFERENCE, (theme, kind, one, other)


def _height(page: Page, selector: str) -> float:
    box = page.locator(selector).first.bounding_box()
    assert box is not None
    return box["height"]


def test_the_frame_fits_its_window(empty_pages: Pages) -> None:
    """A sidebar with words, one of icons, and a bar at the bottom; a very wide window keeps lines short."""
    page = empty_pages.open("/jobs")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert _height(page, "header") == 48
    widths: dict[int, float] = {}
    for width in (1440, 1000, 700):
        page.set_viewport_size({"width": width, "height": 800})
        box = page.get_by_role("navigation").first.bounding_box()
        assert box is not None
        widths[width] = box["width"]
        if width == 700:
            assert box["y"] > 700, "a bar at the bottom"
    assert (widths[1440], widths[1000], widths[700]) == (208, 56, 700)
    page.set_viewport_size({"width": 2400, "height": 900})
    assert page.evaluate("document.querySelector('main').firstElementChild.getBoundingClientRect().width") <= 1440


def test_rows_are_low_where_a_reader_wants_more_of_them(shop: ShopServer, pages: Pages) -> None:
    page = pages.open("/jobs")
    expect(page.locator("[data-row-id]").first).to_be_visible()
    assert _height(page, "[data-row-id]") == 36
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("button", name="compact").click()
    assert _height(page, "[data-row-id]") == 28


@pytest.mark.parametrize(("motion", "duration"), [("reduce", "0s"), ("no-preference", "0.12s")])
def test_nothing_moves_where_a_reader_wants_no_motion(empty_pages: Pages, motion: str, duration: str) -> None:
    page = empty_pages.open("/jobs", reduced_motion=motion)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.querySelector('dialog[open]')).animationDuration") == duration


def test_counts_beyond_their_bound_say_so(empty_shop: ShopServer, empty_pages: Pages) -> None:
    """Ten thousand is what is counted: there may be more."""
    page = empty_pages.open("/doctor")
    queue: dict[str, Any] = {"name": "mail", "waiting": 9999, "running": 1, "limited": 0, "blocked": 0, "paused": None}
    queue |= {"ready": 10_000, "oldest_due_at": None}
    page.route("**/api/queues*", lambda route: route.fulfill(json={"items": [queue], "after": None}))
    page.goto(f"{empty_shop.url}/queues")
    row = page.locator("[data-row-id=mail]")
    expect(row).to_contain_text("10,000+")
    expect(row).to_contain_text("9,999")
    expect(row).not_to_contain_text("9,999+")


def test_an_uptime_is_never_rounded_up_to_a_hundred(shop: ShopServer, pages: Pages) -> None:
    page = pages.open("/doctor")
    answer = shop.get("/api/services")
    for one in answer["items"]:
        one["uptime_24h"] = {"percent": 99.99999, "covered": 0.999999}
    page.route("**/api/services?*", lambda route: route.fulfill(json=answer))
    page.goto(f"{shop.url}/services")
    row = page.locator("[data-row-id=billing]")
    expect(row).to_contain_text("99.99%")
    expect(row).not_to_contain_text("100%")
