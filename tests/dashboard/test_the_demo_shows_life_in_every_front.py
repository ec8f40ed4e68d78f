"""The demo: its dashboard shows life in every front soon after it is ready."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from dashboard.conftest import need_dashboard
from dashboard.pages import Complaints, Pages
from everpoll.cli.demo_formats import FORMATS
from server.site import LIMIT_S

FOR = "300s"
READY_S = 10.0


@pytest.fixture
def demo() -> Iterator[str]:
    """Where the dashboard of a demo is."""
    need_dashboard()
    command = [sys.executable, "-m", "everpoll", "demo", "--port", "0", "--for", FOR]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVERPOLL_")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=kept | {"PYTHONUNBUFFERED": "1"}) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("dashboard: http://"), line
            yield line.removeprefix("dashboard: ").strip()
        finally:
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            assert process.wait(LIMIT_S) == 0


def _items(demo: str, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{demo}{path}", timeout=LIMIT_S).json()["items"]
    return found


REMOTE_WORDS = {"queued", "copying", "sealing", "complete", "failed"}
LIFE: dict[str, Callable[[str], object]] = {
    "a job ended": lambda demo: _items(demo, "/api/jobs?state=done"),
    "a job failed": lambda demo: _items(demo, "/api/jobs?state=failed"),
    "a job waits for its next attempt": lambda demo: [
        one for one in _items(demo, "/api/jobs?limit=200") if one["attempt"] > 1
    ],
    "a run was looked at twice": lambda demo: [one for one in _items(demo, "/api/runs") if one["looks"] > 1],
    "the remote was asked for a run": lambda demo: [
        one
        for one in _items(demo, "/api/runs")
        if str(one["target"]).startswith("127.0.0.1:") and one["status"] in REMOTE_WORDS
    ],
    "every service was looked at": lambda demo: all(one["looked_at"] for one in _items(demo, "/api/services")),
    "a service is down": lambda demo: _items(demo, "/api/services?status=down"),
    "an incident is open": lambda demo: _items(demo, "/api/incidents"),
    "loops run again and again": lambda demo: [one for one in _items(demo, "/api/loops") if one["runs"] > 2],
    "a loop backs off": lambda demo: [one for one in _items(demo, "/api/loops") if one["multiplier"] > 1],
    "rows of a table are worked on": lambda demo: [
        one for one in _items(demo, "/api/tables") if one["poller"]["rows_per_poll"]
    ],
}
"""What happens in each front, not only what is registered."""


def _until_alive(demo: str) -> dict[str, float]:
    """Return after how many seconds each sign of life was seen."""
    began, seen = time.monotonic(), dict[str, float]()
    while len(seen) < len(LIFE) and time.monotonic() - began < LIMIT_S:
        for sign in [one for one in LIFE if one not in seen]:
            if LIFE[sign](demo):
                seen[sign] = time.monotonic() - began
        time.sleep(0.05)
    return seen


def test_something_happens_in_every_front(demo: str) -> None:
    """Jobs end, fail and are tried again; runs, services and loops are looked at; rows are worked on."""
    assert set(_until_alive(demo)) == set(LIFE)


@pytest.mark.prove
def test_that_takes_less_than_ten_seconds(demo: str) -> None:
    """From the printed address on; under `make prove`, since others may use the machine of a usual run."""
    seen = _until_alive(demo)
    assert set(seen) == set(LIFE)
    assert max(seen.values()) < READY_S, seen


def test_every_view_shows_it(demo: str, browser: Browser, complaints: Complaints) -> None:
    """Jobs that ended, runs, services with a status, loops, a schedule, an adopted table, workers and events."""
    pages = Pages(browser, demo, complaints)
    try:
        page = pages.open("/")
        alive = {
            "/jobs?state=done": "audit",
            "/runs": "export",
            "/services": "shop",
            "/loops": "prices",
            "/workers": "default",
            "/queues": "default",
            "/schedules": "nightly_sweep",
            "/events": "export",
        }
        for path, name in alive.items():
            page.goto(f"{demo}{path}")
            row = page.get_by_role("main").locator("[data-row-id]").filter(has_text=name).first
            expect(row).to_be_visible(timeout=1000 * LIMIT_S)
        page.goto(f"{demo}/tables")
        expect(page.get_by_role("main")).to_contain_text("demo_orders", timeout=1000 * LIMIT_S)
        page.goto(f"{demo}/services")
        expect(page.get_by_role("row").filter(has_text="archive")).to_contain_text("down", timeout=1000 * LIMIT_S)
        names = {one["name"] for one in _items(demo, "/api/services")}
        assert names == {"archive", "backup", "port", *FORMATS}
    finally:
        pages.close()
