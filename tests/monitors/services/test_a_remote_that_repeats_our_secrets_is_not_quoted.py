"""A remote may repeat the credentials that it was sent: no record, event, alert or log line has them."""

import logging
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from everpoll import Alert
from everpoll.monitors import Message

from .stage import URL, Said, Stage

SECRET = 's3cr3t/"key"-für-uns'  # noqa: S105 - of this test alone
WRITTEN: dict[str, Any] = {
    "as it is": {"status": "DOWN", "components": {"db": {"status": "DOWN", "error": f"bad key {SECRET}"}}},
    "as a name": {"status": "DOWN", "components": {f"db {SECRET}": {"status": "DOWN"}}},
    "as in a URL": [{"name": "db", "healthy": False, "errorMessage": f"GET /?key={quote(SECRET, safe='')}"}],
    "deep inside": [{"name": "db", "healthy": False, "error": {"request": {"headers": [SECRET]}}}],
    "as a warning": {"status": SECRET, "checks": [{"name": "db", "status": SECRET}]},
}


@pytest.mark.parametrize("written", WRITTEN)
def test_what_was_sent_is_shown_nowhere(
    stage: Stage, written: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("BILLING_KEY", SECRET)
    caplog.set_level(logging.DEBUG, "everpoll")
    stage.client.scripts[URL] = Said(WRITTEN[written], 503)
    messages: list[Message] = []

    async def scene() -> None:
        app = stage.app()
        app.services.channel("ops", messages.append, group=0)
        alert = Alert(after=1, to=["ops"])
        one = app.service("billing", URL, every="5s", headers={"X-Billing": "${BILLING_KEY}"}, alert=alert)
        async with app:
            await stage.looked_at()
            await stage.clock.advance(10)
            shown: list[Any] = [await one.info(), await one.dependencies(), await one.history(), await one.errors("db")]
            shown += [await app.services.incidents.list(), messages, await stage.events()]
            shown += [await stage.store.find("check", "billing")]
        answer = [repr(shown), msgspec.json.encode(shown, enc_hook=repr).decode(), caplog.text]
        for text in answer:
            assert "s3cr3t" not in text
            assert "***" in text or written != "as it is"
        assert messages
        assert (await one.info()).status == "down"

    stage.play(scene)


@pytest.mark.parametrize("condition", ['json.key == "other"', 'body contains "other"', 'header.x-key == "other"'])
def test_a_condition_that_fails_says_so_without_the_secret(
    stage: Stage, condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BILLING_KEY", "s3cr3t-key")
    stage.client.scripts[URL] = Said({"key": "s3cr3t-key"}, headers={"x-key": "s3cr3t-key"})

    async def scene() -> None:
        async with stage.service(headers={"X-Billing": "${BILLING_KEY}"}, conditions=[condition]) as one:
            found = await one.info()
            assert found.status == "down"
            assert found.error is not None
            assert "s3cr3t" not in found.error

    stage.play(scene)


def test_conditions_are_judged_by_what_the_remote_said(stage: Stage) -> None:
    """Only what is shown is masked."""
    stage.client.scripts["http://ann:s3cr3t-key@billing/"] = Said({"key": "s3cr3t-key"})

    async def scene() -> None:
        url = "http://ann:s3cr3t-key@billing/"
        async with stage.service(url=url, conditions=['json.key == "s3cr3t-key"']) as one:
            assert (await one.info()).status == "up"

    stage.play(scene)


def test_a_secret_that_changes_is_masked_as_it_was_sent(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BILLING_KEY", "the-old-key")

    async def scene() -> None:
        async with stage.service(headers={"X-Billing": "${BILLING_KEY}"}) as one:
            monkeypatch.setenv("BILLING_KEY", "the-new-key")
            stage.client.scripts[URL] = Said([{"name": "db", "healthy": False, "errorMessage": "no: the-new-key"}])
            await stage.looked_at()
            (db,) = await one.dependencies()
            assert db.error_message == "no: ***"

    stage.play(scene)
