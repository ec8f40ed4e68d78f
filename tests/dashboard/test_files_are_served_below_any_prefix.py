"""The server delivers the dashboard's files: every view by its address, below any prefix, and nothing else."""

from pathlib import Path
from urllib.parse import urljoin

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from everpoll import Everpoll
from everpoll.server import dashboard_files

PAGE = """<!doctype html>
<meta name="everpoll-base" content="./" />
<script type="module" src="./assets/index-1a2b.js"></script>
"""
BROWSER = {"Accept": "text/html,application/xhtml+xml"}


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A built dashboard: one page and one script."""
    folder = tmp_path / "dashboard"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text(PAGE)
    (folder / "assets" / "index-1a2b.js").write_text("'script'")
    (tmp_path / "secret.txt").write_text("secret")
    monkeypatch.setattr(dashboard_files, "FOLDER", folder)
    return folder


def _client(prefix: str = "") -> TestClient:
    app = Everpoll("memory://")
    if not prefix:
        return TestClient(app.asgi(), base_url="http://localhost")
    frame = FastAPI()
    frame.mount(prefix, app.asgi())
    return TestClient(frame, base_url="http://localhost")


def _script_of(page: str) -> str:
    return page.partition('src="')[2].partition('"')[0]


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("prefix", ["", "/polls", "/a/b/polls"])
@pytest.mark.parametrize("path", ["/", "/jobs", "/jobs/", "/jobs/7", "/services/shop.example.com", "/queues/a%2Fb"])
def test_every_view_finds_its_script_below_any_prefix(prefix: str, path: str) -> None:
    """The relative addresses in the page lead to the mount, however deep the requested path is."""
    http = _client(prefix)
    page = http.get(prefix + path, headers=BROWSER)
    assert page.status_code == 200
    assert page.headers["cache-control"] == "no-cache"
    script = urljoin(prefix + path, _script_of(page.text))
    assert script == f"{prefix}/assets/index-1a2b.js"
    assert http.get(script).text == "'script'"


@pytest.mark.usefixtures("built")
def test_the_mount_without_its_slash_finds_its_script_too() -> None:
    """`/polls` is a page as well as `/polls/`: a framework that passes the path on may not redirect."""
    http = TestClient(Everpoll("memory://").asgi(prefix="/a/po lls"), base_url="http://localhost")
    page = http.get("/a/po%20lls", headers=BROWSER)
    assert urljoin("/a/po%20lls", _script_of(page.text)) == "/a/po%20lls/assets/index-1a2b.js"


@pytest.mark.usefixtures("built")
def test_assets_are_cached_for_ever_and_typed() -> None:
    """The names of assets change with their content, and browsers believe the type they are told."""
    answer = _client().get("/assets/index-1a2b.js")
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"].startswith("text/javascript")


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("path", ["/assets/gone.js", "/assets/..%2F..%2Fsecret.txt", "/api/nothing", "/api"])
def test_what_is_no_view_is_not_found(path: str) -> None:
    """A missing script or a wrong call of the API is 404, not a page; no path leads out of the folder."""
    assert _client().get(path, headers=BROWSER).status_code == 404


@pytest.mark.usefixtures("built")
def test_programs_get_no_page_for_a_wrong_path() -> None:
    """A client that does not ask for HTML is told that the path does not exist."""
    assert _client().get("/job", headers={"Accept": "application/json"}).status_code == 404


def test_without_built_files_one_sentence_says_how_to_build_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation without the dashboard still answers at `/`."""
    monkeypatch.setattr(dashboard_files, "FOLDER", tmp_path)
    answer = _client().get("/", headers=BROWSER)
    assert answer.status_code == 200
    assert "make dashboard" in answer.text
    assert answer.text.count("\n") == 1
    assert _client().get("/jobs", headers=BROWSER).status_code == 404
