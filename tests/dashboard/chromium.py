"""A real Chromium with a debugging port, in which pages can really be hidden.

Playwright's own `launch()` tells every page that it is visible and focused, whatever lies in front of it. In a browser
that was started elsewhere, and `no_defaults`, it does not: `other.bring_to_front()` hides the page before.
"""

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from examples.test_runner.chromium import chromium
from servers.postgrest import KEEPER

START_S = 60.0
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-proxy-server",
    "--remote-debugging-port=0",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-sync",
    "--hide-scrollbars",
    "--mute-audio",
    # What is not on this machine does not exist.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)


@contextlib.contextmanager
def chromium_browser() -> Iterator[Browser]:
    """Start a Chromium with a profile of its own, and connect to it. It ends with the block, or with this process."""
    with tempfile.TemporaryDirectory(prefix="everpoll-chromium-", ignore_cleanup_errors=True) as profile:
        command = ["sh", "-c", KEEPER, "keeper", chromium(), *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        log = (Path(profile) / "chromium.log").open("wb")
        with log, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log) as keeper:
            assert keeper.stdin is not None
            try:
                port = _debugging_port(Path(profile), keeper)
                with sync_playwright() as playwright:
                    browser = playwright.chromium.connect_over_cdp(f"http://127.0.0.1:{port}", no_defaults=True)
                    yield browser
                    browser.close()
            finally:
                keeper.stdin.close()


def _debugging_port(profile: Path, keeper: "subprocess.Popen[bytes]") -> int:
    """Return the port that Chromium has written into its profile."""
    end = time.monotonic() + START_S
    while time.monotonic() < end and keeper.poll() is None:
        with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
            return int((profile / "DevToolsActivePort").read_text().splitlines()[0])
        time.sleep(0.02)
    raise AssertionError(f"Chromium did not start: {(profile / 'chromium.log').read_text('utf-8', 'replace')[-2000:]}")
