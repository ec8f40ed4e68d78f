"""What an operator does to a service, from Python, the shell or over HTTP, is one event with its actor."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from cli.shell import Shell
from everpoll.cli.session import actor
from everpoll.errors import StoreUnavailable
from everpoll.monitors.maintenance import once
from everpoll.stores.contract import Store
from server.incident_writer import incident, write_open
from server.site import Site, example_app, site, until

WINDOW = {"starts_at": "2120-01-01T00:00:00Z", "ends_at": "2120-01-02T00:00:00Z", "services": ["billing"]}
ACTIONS = ("add", "mute", "unmute", "pause", "resume", "check", "add maintenance", "remove maintenance", "acknowledge")

Act = Callable[[], Awaitable[object]]


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys)


def _in_python(here: Site) -> tuple[str, dict[str, Act]]:
    services = here.app.services
    one = services["billing"]
    window = once(datetime(2120, 1, 1, tzinfo=UTC), datetime(2120, 1, 2, tzinfo=UTC))
    return "ada", {
        "add": lambda: services.publish([services.define("new", "http://127.0.0.1:9/", {"every": "1h"})], by="ada"),
        "mute": lambda: one.mute("2h", "a release", by="ada"),
        "unmute": lambda: one.unmute(by="ada"),
        "pause": lambda: one.pause("it moves", by="ada"),
        "resume": lambda: one.resume(by="ada"),
        "check": lambda: one.check(by="ada"),
        "add maintenance": lambda: services.maintenance.add(window, "move", by="ada"),
        "remove maintenance": lambda: services.maintenance.remove("move", by="ada"),
        "acknowledge": lambda: services.incidents.acknowledge("billing:1", "ada"),
        "cancel": lambda: one.remove(by="ada"),
    }


def _in_the_shell(shell: Shell, url: str) -> tuple[str, dict[str, Act]]:
    def run(*arguments: str) -> Act:
        return lambda: asyncio.to_thread(shell, *arguments, "--url", url)

    starts_at, ends_at = str(WINDOW["starts_at"]), str(WINDOW["ends_at"])
    return actor(), {
        "add": run("services", "add", "new", "http://127.0.0.1:9/", "--every", "1h"),
        "mute": run("services", "mute", "billing", "2h"),
        "unmute": run("services", "unmute", "billing"),
        "pause": run("services", "pause", "billing"),
        "resume": run("services", "resume", "billing"),
        "check": run("services", "check", "billing"),
        "add maintenance": run("maintenance", "add", "--from", starts_at, "--until", ends_at, "--id", "move"),
        "remove maintenance": run("maintenance", "remove", "move"),
        "acknowledge": run("services", "ack", "billing:1", "--by", "anna"),
        "cancel": run("services", "remove", "billing"),
    }


def _over_http(here: Site) -> tuple[str, dict[str, Act]]:
    def post(path: str, body: Any = None) -> Act:
        return lambda: here.http.post(path, json=body) if body is not None else here.http.post(path)

    new = {"name": "new", "target": "http://127.0.0.1:9/", "every": "1h"}
    return "HTTP from 127.0.0.1", {
        "add": post("/api/services", new),
        "mute": post("/api/services/billing/mute", {"span": "2h"}),
        "unmute": post("/api/services/billing/unmute"),
        "pause": post("/api/services/billing/pause"),
        "resume": post("/api/services/billing/resume"),
        "check": post("/api/services/billing/check"),
        "add maintenance": post("/api/maintenance", WINDOW | {"id": "move"}),
        "remove maintenance": lambda: here.http.delete("/api/maintenance", params={"id": "move"}),
        "acknowledge": post("/api/incidents/billing:1/ack", {"by": "anna"}),
        "cancel": lambda: here.http.delete("/api/services/billing"),
    }


async def _actions(store: Store, after: str) -> list[tuple[str, str | None]]:
    """Return what operators have done since that position."""
    events = (await store.events(after)).events
    return [(one.body["what"], one.body.get("by")) for one in events if "what" in one.body]


async def _actions_soon(store: Store, after: str) -> list[tuple[str, str | None]]:
    """Wait for the first: on Postgres the feed ends before what a transaction appends that is still open."""
    actions: list[tuple[str, str | None]] = await until(lambda: _actions(store, after))
    return actions


@pytest.mark.parametrize("way", ["Python", "shell", "HTTP"])
async def test_each_action_is_one_event_with_its_actor(url: str, way: str, shell: Shell) -> None:
    async with site(example_app(url)) as here:
        store = await here.app.store()
        await write_open(store, [incident(1)])
        match way:
            case "Python":
                by, acts = _in_python(here)
            case "shell":
                by, acts = _in_the_shell(shell, url)
            case _:
                by, acts = _over_http(here)
        assert set(acts) == {*ACTIONS, "cancel"}
        for what, act in acts.items():
            before = (await store.events(None)).after
            await act()
            assert await _actions_soon(store, before) == [(what, by)]


async def test_an_app_that_starts_is_no_operator(url: str) -> None:
    async with site(example_app(url)) as here:
        assert await _actions(await here.app.store(), "0") == []


async def test_no_action_depends_on_a_second_write(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends after the change has written its event already."""

    async def away(*_: object) -> None:
        raise StoreUnavailable("the process ends here")

    async with site(example_app(url)) as here:
        store = await here.app.store()
        monkeypatch.setattr(store, "log", away)
        await write_open(store, [incident(1)])
        by, acts = _over_http(here)
        acts["alias"] = lambda: here.http.post("/api/aliases", json={"name": "pg", "canonical": "PostgreSQL"})
        acts["remove alias"] = lambda: here.http.delete("/api/aliases", params={"name": "pg"})
        for what in (*ACTIONS, "alias", "remove alias"):
            before = (await store.events(None)).after
            await acts[what]()
            assert await _actions_soon(store, before) == [(what, by)]
