"""The replay, in a real Chromium against the demo's own shop: what passes, what does not, and what gives no verdict."""

import asyncio
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from example_runs import needs_chromium
from playwright.async_api import Error

from examples.test_runner.chromium import NoBrowser, chromium
from examples.test_runner.recording import Click, Config, Expect, Open, Recording, Step, Type, steps_for
from examples.test_runner.replay import RowResult, Unreachable, browser, picture_path, replay
from examples.test_runner.site import problem_of, shop

SIGN_UP: tuple[Step, ...] = (
    Open("/"),
    Type("#name", "${name}"),
    Type("#email", "${email}"),
    Type("#seats", "${seats}"),
    Click("button"),
)
ADA = {"name": "Ada", "email": "ada@example.com", "seats": "3"}


@pytest.fixture(scope="module")
def shop_url() -> Iterator[str]:
    with shop() as url:
        yield url


def ready(url: str, *steps: Step, values: dict[str, str] | None = None) -> tuple[Step, ...]:
    return steps_for(Recording("A", steps), values or {}, Config(base_url=url))


async def played(
    url: str, *steps: Step, values: dict[str, str] | None = None, picture: Path | None = None, timeout_s: float = 30.0
) -> RowResult:
    async with browser() as started:
        config = Config(timeout_s=timeout_s)
        return await replay(started, ready(url, *steps, values=values), config, row=1, picture=picture)


@needs_chromium
async def test_a_recording_whose_expectations_are_met_has_passed(shop_url: str) -> None:
    steps = (*SIGN_UP, Expect("h1", "Thank you"), Expect("#welcome", "Welcome, ${name}! ${seats} seats"))
    result = await played(shop_url, *steps, values=ADA)
    assert (result.row, result.passed, result.message, result.screenshot) == (1, True, "", None)
    assert result.duration_ms > 0


@needs_chromium
async def test_the_pages_own_scripts_run(shop_url: str) -> None:
    result = await played(shop_url, Open("/"), Type("#seats", "12"), Expect("#price", "96 € a month"))
    assert result.message == ""


NOT_MET: list[tuple[tuple[Step, ...], str]] = [
    ((Open("/"), Expect("h1", "Log in")), "step 2, expect h1: says 'Sign up', not 'Log in'"),
    ((Open("/"), Expect("h1", "sign up")), "step 2, expect h1: says 'Sign up', not 'sign up'"),
    ((Open("/"), Expect("#welcome")), "step 2, expect #welcome: not there within 0.5 s"),
    ((Open("/"), Expect("title")), "step 2, expect title: not to be seen within 0.5 s"),
    ((Open("/"), Click("#nothing")), "step 2, click #nothing: not possible within 0.5 s"),
    ((Open("/"), Type("h1", "x")), "step 2, type into h1: "),
    ((Open("/"), Click("a[")), "step 2, click a[: "),
    ((Open("/nowhere"),), "/nowhere: answered 404"),
]


@needs_chromium
async def test_what_the_page_does_not_do_is_a_row_that_failed(shop_url: str) -> None:
    async with browser() as started:
        for row, (steps, message) in enumerate(NOT_MET, 1):
            result = await replay(started, ready(shop_url, *steps), Config(timeout_s=0.5), row=row)
            assert not result.passed
            assert result.row == row
            assert message in result.message


@needs_chromium
async def test_a_failed_row_leaves_a_picture_where_one_is_wanted(shop_url: str, tmp_path: Path) -> None:
    picture = tmp_path / "new" / "row.png"
    result = await played(shop_url, Open("/"), Expect("h1", "Log in"), picture=picture, timeout_s=0.5)
    assert result.screenshot == str(picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


@needs_chromium
async def test_an_application_that_is_down_is_no_verdict() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(Unreachable, match="ERR_CONNECTION_REFUSED"):
            await played(f"http://127.0.0.1:{closed.getsockname()[1]}", Open("/"))


@needs_chromium
async def test_rows_do_not_see_each_others_cookies(shop_url: str) -> None:
    async with browser() as started:
        first = await started.new_context()
        await first.add_cookies([{"name": "who", "value": "Ada", "url": shop_url}])
        second = await started.new_context()
        assert await second.cookies() == []


@needs_chromium
async def test_a_browser_that_dies_is_no_verdict(shop_url: str) -> None:
    async with browser() as started:
        waiting = asyncio.ensure_future(replay(started, ready(shop_url, Open("/"), Expect("#never")), Config(), row=1))
        # No event tells that the page is there; whether the end comes while it opens or later, it gives no verdict.
        while not any(page.url != "about:blank" for context in started.contexts for page in context.pages):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await started.close()
        with pytest.raises(Error, match="closed"):
            await waiting


def test_a_machine_without_a_browser_is_told_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoBrowser, match=r"none of chromium, .* is on PATH; install one"):
        chromium()
    monkeypatch.setenv("CHROMIUM", "/nowhere/chrome")
    with pytest.raises(NoBrowser, match="'/nowhere/chrome', which is not a program"):
        chromium()


def test_the_environment_names_the_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = shutil.which("sh")
    assert shell is not None
    monkeypatch.setenv("CHROMIUM", shell)
    assert chromium() == shell


@pytest.mark.parametrize("job", [7, "a1b2-c3", "../../etc/passwd", "a/b\\c"])
def test_a_key_of_a_row_cannot_choose_the_file_of_a_picture(
    job: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SCREENSHOTS", str(tmp_path))
    path = picture_path(job, 3)
    assert path is not None
    assert path.parent == tmp_path
    monkeypatch.delenv("SCREENSHOTS")
    assert picture_path(job, 3) is None


@pytest.mark.parametrize(
    ("name", "email", "seats", "problem"),
    [
        ("Ada", "ada@example.com", "3", ""),
        ("", "ada@example.com", "3", "Please tell us your name"),
        ("Ada", "ada@example", "3", "That is not an e-mail address"),
        ("Ada", "a@b@example.com", "3", "That is not an e-mail address"),
        ("Ada", "ada@example.com", "0", "Between 1 and 100 seats, please"),
        ("Ada", "ada@example.com", "101", "Between 1 and 100 seats, please"),
        ("Ada", "ada@example.com", "²", "Between 1 and 100 seats, please"),
    ],
)
def test_the_shop_validates_its_form(name: str, email: str, seats: str, problem: str) -> None:
    assert problem_of(name, email, seats) == problem
