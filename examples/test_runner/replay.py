"""Replay in a headless Chromium: one browser a job, one fresh profile a row, so that no row sees another's cookies.

Promises: what the tested page does wrong is a row that has not passed, with the step and the reason. What keeps the
test from being made at all (no browser, an application that does not answer) is raised, so that the job is tried again.
The browser is gone when its block ends, however it ends.
"""

import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct
from playwright.async_api import Browser, Error, Page, async_playwright
from playwright.async_api import TimeoutError as TookTooLong
from playwright.async_api import expect as expected

from examples.test_runner.chromium import chromium
from examples.test_runner.recording import Click, Config, Expect, Open, Step, Type, described

MESSAGE_LIMIT = 300
GONE = re.compile(r"has been closed|crashed")
NO_ANSWER = re.compile(r"ERR_(?:ADDRESS|CONNECTION|DNS|EMPTY|INTERNET|NAME|NETWORK|PROXY|TIMED_OUT|TUNNEL)\w*")
"""What Chromium says where no server answered; its other errors (a download, a bad certificate) are the page's own."""


class Unreachable(ConnectionError):
    """The tested application does not answer: that says nothing about the recording."""


class RowResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one row of the CSV went."""

    row: int
    passed: bool
    duration_ms: int
    message: str = ""
    screenshot: str | None = None


class NotMet(Exception):
    """What a step asks for is not what the page does."""


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """A headless Chromium for the length of the block."""
    program = chromium()
    async with async_playwright() as playwright:
        # --no-sandbox: as root, and in most containers, Chromium's own sandbox cannot start.
        started = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--headless=new"])
        try:
            yield started
        finally:
            await started.close()


async def replay(
    started: Browser, steps: tuple[Step, ...], config: Config, *, row: int, picture: Path | None = None
) -> RowResult:
    """One row: every step in order, until one is not met; `picture` is where a screenshot of that moment goes."""
    began = time.perf_counter()
    context = await started.new_context()
    try:
        page = await context.new_page()
        page.set_default_timeout(config.timeout_s * 1000)
        page.set_default_navigation_timeout(config.open_timeout_s * 1000)
        message = await _played(page, steps, config.timeout_s)
        screenshot = await _pictured(page, picture) if message and picture is not None else None
    finally:
        await context.close()
    took_ms = round((time.perf_counter() - began) * 1000)
    return RowResult(row=row, passed=not message, duration_ms=took_ms, message=message, screenshot=screenshot)


def picture_path(job: Any, row: int) -> Path | None:
    """Where the screenshot of a row goes: into `$SCREENSHOTS`; without it there are none.

    The worker's own environment decides, not the table: a program that writes rows does not choose files on this disc.
    """
    folder = os.environ.get("SCREENSHOTS")
    return Path(folder) / f"job-{re.sub(r'[^0-9A-Za-z-]', '_', str(job))}-row-{row}.png" if folder else None


async def _played(page: Page, steps: tuple[Step, ...], timeout_s: float) -> str:
    """Empty where every step was met."""
    for number, step in enumerate(steps, 1):
        try:
            await _take(page, step, timeout_s)
        except NotMet as reason:
            return f"step {number}, {described(step)}: {reason}"[:MESSAGE_LIMIT]
    return ""


async def _take(page: Page, step: Step, timeout_s: float) -> None:
    try:
        match step:
            case Open(url=url):
                await _opened(page, url)
            case Click(selector=selector):
                await page.locator(selector).first.click()
            case Type(selector=selector, text=text):
                await page.locator(selector).first.fill(text)
            case Expect(selector=selector, text=text):
                await _seen(page, selector, text, timeout_s)
    except TookTooLong:
        raise NotMet(f"not possible within {timeout_s:g} s") from None
    except Error as error:
        # A browser that has gone cannot judge the page. `is_connected()` learns of it a moment after the step does.
        if GONE.search(error.message):
            raise
        raise NotMet(error.message.splitlines()[0]) from None


async def _opened(page: Page, url: str) -> None:
    try:
        answer = await page.goto(url, wait_until="domcontentloaded")
    except TookTooLong:
        raise NotMet("did not open in time") from None
    except Error as error:
        if code := NO_ANSWER.search(error.message):
            raise Unreachable(f"{url}: {code[0]}") from None
        raise
    if answer is not None and answer.status >= 400:
        raise NotMet(f"answered {answer.status}")


async def _seen(page: Page, selector: str, text: str, timeout_s: float) -> None:
    """Looks again and again until the page says so, or the time is over: pages change by themselves."""
    element = page.locator(selector).first
    try:
        await expected(element).to_be_visible(timeout=timeout_s * 1000)
        if text:
            await expected(element).to_contain_text(text, timeout=timeout_s * 1000)
    except AssertionError:
        if not await element.count():
            raise NotMet(f"not there within {timeout_s:g} s") from None
        if not await element.is_visible():
            raise NotMet(f"not to be seen within {timeout_s:g} s") from None
        said = " ".join((await element.text_content() or "").split())
        raise NotMet(f"says {said!r}, not {text!r}") from None


async def _pictured(page: Page, picture: Path) -> str:
    picture.parent.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=picture)
    return str(picture)
