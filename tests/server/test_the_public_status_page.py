"""The public status page: off by default; switched on, it tells chosen names and states, and nothing else."""

import json
from typing import Any
from xml.etree import ElementTree as ET

import httpx
import pytest

from everpoll import BadInput, Everpoll
from everpoll.errors import StoreUnavailable
from everpoll.server import public_status
from everpoll.server.public_status import PublicStatus, badge
from server.site import TOKEN, environment

PATHS = ("/status", "/status.json", "/badges/Payments.svg")
HTML = {"Accept": "text/html,*/*"}


def _app() -> Everpoll:
    app = Everpoll("memory://")
    app.service("billing", "http://billing.internal:8080/health", every="1h")
    app.service("hidden-thing", "http://10.0.0.7/health", every="1h")
    return app


def _client(app: Everpoll, names: str | None, **options: Any) -> httpx.AsyncClient:
    given = {} if names is None else {public_status.VARIABLE: names}
    with environment(**given):
        transport = httpx.ASGITransport(app.asgi(token=TOKEN, **options), client=("203.0.113.7", 1234))
    return httpx.AsyncClient(transport=transport, base_url="http://status.example")


async def test_it_is_off_by_default() -> None:
    """Its paths then need a token as any other."""
    app = _app()
    async with _client(app, None) as http:
        for path in PATHS:
            assert (await http.get(path)).status_code == 401, path
    await app.close()


@pytest.mark.parametrize("prefix", ["", "/polls"])
async def test_it_tells_the_chosen_names_and_states_without_a_token_and_nothing_else(prefix: str) -> None:
    """No address, no error, no other service, no access; every other path needs the token as before."""
    app = _app()
    async with app, _client(app, "billing=Payments, gone", prefix=prefix) as http:
        page = await http.get(f"{prefix}/status", headers=HTML)
        assert page.status_code == 200
        assert "Payments" in page.text
        assert "Unknown" in page.text
        assert "<script" not in page.text
        assert f'href="{prefix}/plain.css"' in page.text
        assert (await http.get(f"{prefix}/plain.css")).headers["content-type"].startswith("text/css")
        reported = await http.get(f"{prefix}/status.json")
        assert json.loads(reported.text) == {
            "status": "unknown",
            "services": {"Payments": "unknown", "gone": "unknown"},
        }
        picture = await http.get(f"{prefix}/badges/Payments.svg")
        assert picture.headers["content-type"] == "image/svg+xml"
        assert picture.headers["cross-origin-resource-policy"] == "cross-origin"
        for answer in (page, reported, picture):
            assert not [word for word in ("billing", "hidden", "10.0.0.7", "internal", TOKEN) if word in answer.text]
            assert "everpoll-access" not in answer.headers
        for path in ("/badges/hidden-thing.svg", "/badges/billing.svg", "/badges/x", "/status/x", "/api/services", "/"):
            assert (await http.get(f"{prefix}{path}")).status_code == 401, path
        assert (await http.post(f"{prefix}/status")).status_code == 401


async def test_callers_on_other_machines_are_refused_where_no_token_is_set() -> None:
    """A server without a token answers this machine only; its status page as well."""
    app = _app()
    with environment(**{public_status.VARIABLE: "billing"}):
        transport = httpx.ASGITransport(app.asgi(), client=("203.0.113.7", 1234))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        assert (await http.get("/status")).status_code == 403
    await app.close()


async def test_states_are_read_once_for_all_and_a_database_that_is_away_makes_none_of_them_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a minute the last states are told, then unknown."""
    app, now, asked = _app(), [1000.0], []
    status = PublicStatus(app, {"billing": "Payments"}, lambda: now[0])
    is_away = False

    async def state(name: str) -> str:
        asked.append(name)
        if is_away:
            raise StoreUnavailable("away")
        return "up"

    monkeypatch.setattr(status, "_state", state)
    assert [await status.states() for _ in range(3)] == [{"Payments": "up"}] * 3
    assert asked == ["billing"]
    is_away = True
    now[0] += 30
    assert await status.states() == {"Payments": "up"}
    now[0] += 31
    assert await status.states() == {"Payments": "unknown"}
    is_away = False
    now[0] += 6
    assert await status.states() == {"Payments": "up"}
    await app.close()


def test_a_badge_is_a_picture_whatever_its_label() -> None:
    """Markup in a label stays text; the state is a word, not only a colour."""
    drawn = ET.fromstring(badge('a <b> & "c"', "degraded"))  # noqa: S314 - our own
    assert drawn.attrib["aria-label"] == 'a <b> & "c": degraded'
    texts = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ['a <b> & "c"', "degraded"]


@pytest.mark.parametrize("names", ["=x", "a, a", "a=x, b=x", "a=x/y", f"a={'x' * 81}", ",".join(map(str, range(101)))])
def test_names_that_cannot_be_told_are_refused_at_the_start(names: str) -> None:
    """With the name of the variable."""
    with environment(**{public_status.VARIABLE: names}), pytest.raises(BadInput, match=public_status.VARIABLE):
        Everpoll("memory://").asgi()
