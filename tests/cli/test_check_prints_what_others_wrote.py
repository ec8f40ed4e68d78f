"""`everpoll check` prints what an endpoint wrote as text, and without secrets: it never obeys it."""

from typing import Any

import pytest

from cli.health_answers import CONTROLS, ESCAPES, SHOWN
from cli.shell import Shell
from watches.adapters.fake_server import Answer, Asked, serving

HOSTILE: list[dict[str, Any]] = [
    {
        "name": f"db [red]{ESCAPES}[/red]",
        "healthy": False,
        "type": ESCAPES,
        "impact": f"[bold]:smile: {ESCAPES}",
        "errorMessage": f"{ESCAPES}\n● up  everything\n[link=http://evil]here[/link]",
        "checkDetails": {"connectionString": "postgres://admin:hunter22@h/db", "password": "hunter22"},
    },
    {"name": ESCAPES, "healthy": "maybe"},
]


@pytest.mark.parametrize("columns", [40, 100, 200])
def test_control_characters_and_markup_are_shown_and_not_obeyed(shell: Shell, columns: int) -> None:
    shell.columns(columns)
    with serving(lambda _: Answer(200, HOSTILE)) as remote:
        ended = shell("check", remote.url)
    assert ended.code == 1
    assert not set(ended.out) & CONTROLS
    joined = "".join(ended.out.split())
    # A table breaks long texts into lines of their columns.
    assert f"[red]{SHOWN}"[:20] in joined
    assert "[link=http://evil]here[/link]" in joined
    assert "[bold]:smile:" in joined
    assert not any(line.startswith("● up") for line in ended.out.splitlines()), "no line can be taken for ours"


def test_json_has_the_same_texts_escaped(shell: Shell) -> None:
    with serving(lambda _: Answer(200, HOSTILE)) as remote:
        ended = shell("check", remote.url, "--json")
        printed = shell.json("check", remote.url, code=1)
    assert not set(ended.out) & CONTROLS
    assert printed["dependencies"][0]["type"] == ESCAPES


def test_secrets_are_masked_wherever_the_remote_repeats_them(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def repeating(asked: Asked) -> Answer:
        said = f"{asked.headers['authorization']} {asked.headers['x-key']} {asked.path}"
        return Answer(200, [{"name": said, "healthy": False, "errorMessage": said, "contact": {said: said}}])

    monkeypatch.setenv("HEALTH_TOKEN", "t0ken-of-mine")
    headers = ("--header", "Authorization: Bearer ${HEALTH_TOKEN}", "--header", "X-Key: k3y-of-mine")
    with serving(repeating) as remote:
        url = f"{remote.url}/health?token=qu3ry-of-mine"
        for more in ([], ["--json"], ["--condition", "status == 500"]):
            ended = shell("check", url, *headers, *more)
            assert ended.code == 1
            assert "of-mine" not in "".join((ended.out + ended.err).split())
            assert "***" in ended.out


def test_passwords_in_what_an_endpoint_reports_are_masked(shell: Shell) -> None:
    with serving(lambda _: Answer(200, HOSTILE)) as remote:
        details = shell.json("check", remote.url, code=1)["dependencies"][0]["check_details"]
    assert details == {"connectionString": "postgres://***@h/db", "password": "***"}
