"""An app of loops opens no database, unless it has one and something to show its loops with."""

import asyncio
from pathlib import Path

import pytest

from everpoll import Everpoll


def loops_alone(url: str | None = None) -> Everpoll:
    app = Everpoll(url)

    @app.loop(every="1h")
    async def prices() -> None: ...

    return app


async def _run(app: Everpoll) -> None:
    async with app:
        await asyncio.sleep(0)


async def _published(url: str) -> list[str]:
    reader = Everpoll(url)
    try:
        return [card.name for one in await (await reader.store()).published_loops() for card in one.loops]
    finally:
        await reader.close()


def published(app: Everpoll, url: str) -> list[str]:
    """Run the app; return what its heartbeat has published by its end."""
    asyncio.run(_run(app))
    return asyncio.run(_published(url))


@pytest.mark.parametrize("url", [None, "sqlite:///own.db"])
def test_without_http_nothing_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str | None) -> None:
    """Whether it has an address of its own or not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVERPOLL_URL", raising=False)
    asyncio.run(_run(loops_alone(url)))
    assert list(tmp_path.iterdir()) == []


def test_an_app_without_an_address_opens_nothing_for_its_http_api(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default file would be a database that its user never asked for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVERPOLL_URL", raising=False)
    app = loops_alone()
    app.asgi()
    asyncio.run(_run(app))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_an_app_with_an_address_that_answers_http_publishes_its_loops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Its last heartbeat, at the latest, has them."""
    url = f"sqlite:///{tmp_path / 'own.db'}"
    monkeypatch.setenv("EVERPOLL_URL", url)
    app = loops_alone(url if by == "argument" else None)
    app.asgi()
    assert published(app, url) == ["prices"]


def test_an_app_whose_store_is_open_already_publishes_its_loops(tmp_path: Path) -> None:
    """A program that enqueues or asks has opened it for itself."""
    url = f"sqlite:///{tmp_path / 'own.db'}"
    app = loops_alone(url)

    async def main() -> None:
        await app.store()
        await _run(app)

    asyncio.run(main())
    assert asyncio.run(_published(url)) == ["prices"]


def test_an_app_of_services_and_loops_publishes_its_loops(tmp_path: Path) -> None:
    """Its services need the database anyhow."""
    url = f"sqlite:///{tmp_path / 'own.db'}"
    app = loops_alone(url)
    app.service("backup", "beat:", every="1d")
    assert published(app, url) == ["prices"]
