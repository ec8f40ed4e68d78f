"""Pages of a dashboard under test: they fail their test for what a user would find in the console."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, ViewportSize

from dashboard.built import MISSING_PACKAGES, PACKAGES
from server.site import LIMIT_S

AXE = PACKAGES / "axe-core" / "axe.min.js"
WIDE, NARROW = (1440, 900), (360, 800)
Theme = Literal["light", "dark"]
RUN_AXE = """async ({ within, options }) => {
  const { violations } = await window.axe.run(document.querySelector(within), options);
  return violations.flatMap((one) => one.nodes.map((node) =>
    `${one.id} (${one.impact}): ${one.help}: ${node.target.join(" ")}: ${node.failureSummary}`));
}"""


@dataclass
class Complaints:
    """Errors and warnings in the consoles of one test. Chromium reports violations of the policy there, too."""

    found: list[str] = field(default_factory=list)
    expected: list[re.Pattern[str]] = field(default_factory=list)

    def expect(self, pattern: str) -> None:
        """Allow complaints that match: `complaints.expect(r"409")` where a conflict is what the test is about."""
        self.expected.append(re.compile(pattern))

    def unexpected(self) -> list[str]:
        """Return what no pattern allows."""
        return [one for one in self.found if not any(pattern.search(one) for pattern in self.expected)]

    def watch(self, page: Page) -> None:
        """Collect the complaints of a page."""
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.found.append(f"uncaught: {error.stack or error.message}"))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.found.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")


@dataclass
class Pages:
    """Opens pages of one dashboard."""

    browser: Browser
    base: str
    complaints: Complaints
    contexts: list[BrowserContext] = field(default_factory=list)
    tabs: list[Page] = field(default_factory=list)

    def open(self, path: str = "/", *, size: tuple[int, int] = WIDE, theme: Theme = "light", **options: Any) -> Page:
        """Open a view in a fresh window with a storage of its own. It is always visible, whatever is opened later.

        Other options are those of Playwright's `new_context`: `reduced_motion="reduce"`, `timezone_id="UTC"` …
        """
        viewport: ViewportSize = {"width": size[0], "height": size[1]}
        context = self.browser.new_context(viewport=viewport, color_scheme=theme, **options)
        self.contexts.append(context)
        return self._opened(context.new_page(), path)

    def tab(self, path: str = "/", *, size: tuple[int, int] = WIDE, theme: Theme = "light") -> Page:
        """Open a view as a tab of the one window whose tabs really hide each other. They share a storage."""
        page = self.browser.contexts[0].new_page()
        self.tabs.append(page)
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.emulate_media(color_scheme=theme)
        return self._opened(page, path)

    def close(self) -> None:
        """Close every window and tab, and forget what the tabs have stored."""
        for page in self.tabs:
            if not page.is_closed():
                page.evaluate("localStorage.clear()")
                page.close()
        for context in self.contexts:
            context.close()
        self.browser.contexts[0].clear_cookies()

    def _opened(self, page: Page, path: str) -> Page:
        self.complaints.watch(page)
        page.goto(f"{self.base}{path}")
        return page


def wait_until(page: Page, script: str, limit_s: float = LIMIT_S) -> None:
    """Wait until a script answers with something true: `wait_until(page, "document.hidden")`.

    Playwright's own `wait_for_function` evaluates inside the page, which its policy forbids.
    """
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if page.evaluate(script):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"{script} did not become true within {limit_s:g} s")


def axe(page: Page, within: str = "html", **options: Any) -> list[str]:
    """Return the violations of accessibility that axe finds on a page, or within one element of it, one line each.

    DevTools evaluate the script, so the page's policy stays as it is. Options are those of `axe.run`.
    """
    if not AXE.is_file():
        pytest.skip(MISSING_PACKAGES)
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE.read_text("utf-8"))
    found: list[str] = page.evaluate(RUN_AXE, {"within": within, "options": options})
    return found


def requests_of(page: Page, wanted: Callable[[Request], bool] = lambda _: True) -> list[str]:
    """Return a list that grows with each request of the page: "GET /api/jobs?state=failed"."""
    seen: list[str] = []

    def note(request: Request) -> None:
        if wanted(request):
            seen.append(f"{request.method} /{request.url.split('/', 3)[3]}")

    page.on("request", note)
    return seen
