"""Takes docs/pictures: each view of the demo's dashboard, light and dark: `python docs/take_pictures.py`.

It runs the demo for a while first, so that the charts have something to show. Pictures are WebP, made by Chromium.
"""

import base64
import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from examples.test_runner.chromium import chromium  # noqa: E402 - the repository's own, found by the line above

FOLDER = ROOT / "docs" / "pictures"
FILL_S = 90.0
SIZE = (1200, 750)
QUALITY = 0.7
TOTAL_LIMIT = 1_500_000
Theme = Literal["light", "dark"]
VIEWS = {
    "overview": "/",
    "jobs": "/jobs",
    "causes": "/jobs/causes",
    "job": "/jobs?state=failed",
    "runs": "/runs",
    "run": "/runs?state=done",
    "services": "/services",
    "service": "/services/shop?range=1h",
    "graph": "/graph",
    "loops": "/loops",
    "workers": "/workers",
    "queues": "/queues",
    "schedules": "/schedules",
    "tables": "/tables",
    "events": "/events",
    "doctor": "/doctor",
}
OPENS_A_ROW = {"job", "run"}
TO_WEBP = """async ([png, quality]) => {
  const picture = new Image();
  picture.src = "data:image/png;base64," + png;
  await picture.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [picture.width, picture.height];
  canvas.getContext("2d").drawImage(picture, 0, 0);
  return canvas.toDataURL("image/webp", quality).split(",")[1];
}"""


@contextlib.contextmanager
def demo() -> Iterator[str]:
    """Run the demo, and yield where its dashboard is."""
    command = [sys.executable, "-m", "everpoll", "demo", "--port", "0", "--for", "20m"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVERPOLL_")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=kept | {"PYTHONUNBUFFERED": "1"}) as process:  # noqa: S603 - our own command
        if process.stdout is None:
            raise AssertionError
        try:
            yield process.stdout.readline().removeprefix("dashboard: ").strip()
        finally:
            process.terminate()
            process.stdout.read()


def take(page: Page, url: str, name: str) -> bytes:
    """Open a view, wait until it is whole, and return its picture as PNG."""
    page.goto(f"{url}{VIEWS[name]}")
    page.locator("[data-freshness=live]").wait_for()
    if name in OPENS_A_ROW:
        page.locator("[data-row-id] a").first.click()
        page.wait_for_url(re.compile(r"/(jobs|runs)/.+"))
    page.wait_for_timeout(1500)
    return page.screenshot()


def main() -> None:
    """Take all pictures."""
    FOLDER.mkdir(exist_ok=True)
    with demo() as url, sync_playwright() as playwright:
        time.sleep(FILL_S)
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        plain = browser.new_page()
        themes: tuple[Theme, ...] = ("light", "dark")
        for theme in themes:
            viewport = {"width": SIZE[0], "height": SIZE[1]}
            page = browser.new_page(viewport=viewport, color_scheme=theme)  # type: ignore[arg-type]
            for name in VIEWS:
                png = base64.b64encode(take(page, url, name)).decode()
                made = plain.evaluate(TO_WEBP, [png, QUALITY])
                (FOLDER / f"{name}-{theme}.webp").write_bytes(base64.b64decode(made))
        browser.close()
    total = sum(path.stat().st_size for path in FOLDER.glob("*.webp"))
    print(f"{total:,} bytes in {FOLDER.relative_to(ROOT)}")  # noqa: T201 - a script
    if total > TOTAL_LIMIT:
        raise SystemExit(f"must be at most {TOTAL_LIMIT:,}: lower QUALITY or SIZE")


if __name__ == "__main__":
    main()
