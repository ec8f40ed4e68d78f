"""The demo: its dashboard shows life in every front soon after it is ready."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, expect

from dashboard.conftest import need_dashboard
from dashboard.pages import Complaints, Pages
from server.site import LIMIT_S

FOR = "300s"


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


def test_every_front_is_alive(demo: str, browser: Browser, complaints: Complaints) -> None:
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
        statuses = {one["name"]: one["status"] for one in httpx.get(f"{demo}/api/services").json()["items"]}
        assert set(statuses) == {"archive", "port", "search", "shop"}
    finally:
        pages.close()
