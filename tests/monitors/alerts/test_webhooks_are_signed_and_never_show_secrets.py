"""Webhooks: a signed JSON body under an id; what an answer means; no secret in any text."""

import asyncio
import base64
import hashlib
import hmac
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everpoll.errors import BadInput
from everpoll.monitors.alerts import posting
from everpoll.monitors.alerts.channel import Channel, Tools, Undelivered
from everpoll.monitors.alerts.letter import MAX_NOTICES, body_of
from everpoll.monitors.alerts.signing import is_authentic, signed_headers
from everpoll.monitors.alerts.webhook import Webhook

from .conftest import ENVIRONMENT
from .notices import NOON, letter, notice
from .receiver import receiving


async def failure_of(channel: Channel, tools: Tools) -> Undelivered:
    with pytest.raises(Undelivered) as caught:
        await channel.deliver(letter(), NOON, tools)
    return caught.value


async def test_the_receiver_gets_the_notices_signed_and_under_an_id(runner: asyncio.Runner, tools: Tools) -> None:
    async with receiving() as receiver:
        await Webhook(f"{receiver.url}/hook?key=1", "${OPS_SECRET}").deliver(letter(), NOON, tools)
    [got] = receiver.received
    assert got.headers["content-type"] == "application/json"
    assert got.headers["idempotency-key"] == got.headers["webhook-id"] == got.json["id"] == "00ff00ff00ff00ff"
    assert got.headers["webhook-timestamp"] == str(int(NOON))
    assert is_authentic(ENVIRONMENT["OPS_SECRET"], got.headers, got.body, NOON + 10)
    key = base64.b64decode(ENVIRONMENT["OPS_SECRET"].removeprefix("whsec_"))
    signed = f"00ff00ff00ff00ff.{int(NOON)}.".encode() + got.body
    proof = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert got.headers["webhook-signature"] == f"v1,{proof}"
    assert got.json["subject"] == "billing is down"
    assert got.json["notices"] == [
        {
            "id": "billing:abc:1/alert/ops",
            "kind": "alert",
            "incident": "billing:abc:1",
            "service": "billing",
            "dependency": None,
            "at": NOON,
            "since": NOON - 60,
            "error": "connection refused",
            "heldBy": [],
            "affected": [],
            "number": 0,
            "reason": None,
        }
    ]


async def test_without_a_secret_there_is_an_id_and_no_signature(runner: asyncio.Runner, tools: Tools) -> None:
    async with receiving() as receiver:
        await Webhook(receiver.url).deliver(letter(), NOON, tools)
    [got] = receiver.received
    assert "webhook-signature" not in got.headers
    assert got.headers["idempotency-key"] == got.headers["webhook-id"] == "00ff00ff00ff00ff"


@given(st.binary(max_size=50), st.text(max_size=20), st.integers(0, 10**10))
def test_a_signature_is_of_that_body_id_and_time_alone(body: bytes, word: str, at: int) -> None:
    headers = signed_headers("s3cret", "an-id", at, body)
    assert is_authentic("s3cret", headers, body, at + 299.0)
    assert not is_authentic("s3cret", headers, body + b"x", at)
    assert not is_authentic("s3cret", {**headers, "webhook-id": f"another{word}"}, body, at)
    assert not is_authentic("s3cret", {**headers, "webhook-timestamp": str(at + 1)}, body, at)
    assert not is_authentic(f"another{word}", headers, body, at)
    assert not is_authentic("s3cret", headers, body, at + 301.0)
    assert not is_authentic("s3cret", {**headers, "webhook-timestamp": word}, body, at)
    assert is_authentic("s3cret", {**headers, "webhook-signature": f"v1,old {headers['webhook-signature']}"}, body, at)


@pytest.mark.parametrize("status", [400, 401, 404, 410, 429, 500, 503])
async def test_an_error_status_delivered_nothing(runner: asyncio.Runner, tools: Tools, status: int) -> None:
    async with receiving() as receiver:
        receiver.statuses, receiver.text = [status], "no\r\nsuch <hook>"
        error = await failure_of(Webhook(f"{receiver.url}/T1/s3cr3t-path"), tools)
    assert error.is_certain
    assert str(error) == f"{receiver.url} answered with HTTP {status}: no  such <hook>"


@pytest.mark.parametrize("status", [502, 504])
async def test_a_gateway_may_have_handed_it_on(runner: asyncio.Runner, tools: Tools, status: int) -> None:
    async with receiving() as receiver:
        receiver.statuses = [status]
        assert not (await failure_of(Webhook(receiver.url), tools)).is_certain


async def test_a_redirect_is_not_followed(runner: asyncio.Runner, tools: Tools) -> None:
    async with receiving() as receiver:
        receiver.statuses, receiver.headers = [302], {"Location": f"{receiver.url}/elsewhere"}
        error = await failure_of(Webhook(receiver.url), tools)
        assert len(receiver.received) == 1
    assert error.is_certain
    assert "write the address that it leads to" in str(error)


async def test_retry_after_is_heeded(runner: asyncio.Runner, tools: Tools) -> None:
    async with receiving() as receiver:
        receiver.statuses, receiver.headers = [429], {"Retry-After": "120"}
        assert (await failure_of(Webhook(receiver.url), tools)).retry_after_s == 120.0


async def test_nothing_arrived_where_no_connection_was_made(runner: asyncio.Runner, tools: Tools) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        refused = await failure_of(Webhook(f"http://127.0.0.1:{taken.getsockname()[1]}/s3cr3t-path"), tools)
    unknown = await failure_of(Webhook("http://nowhere.invalid/s3cr3t-path"), tools)
    assert (refused.is_certain, unknown.is_certain) == (True, True)
    assert "s3cr3t" not in f"{refused}{unknown}"


async def test_silence_after_the_request_leaves_it_open(
    runner: asyncio.Runner, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posting, "TIMEOUT_S", 0.3)
    async with receiving() as receiver:
        receiver.is_silent = True
        error = await failure_of(Webhook(f"{receiver.url}/s3cr3t-path"), tools)
    assert not error.is_certain
    assert str(error) == f"{receiver.url} did not answer within 300ms"


async def test_secrets_come_from_the_environment_of_the_moment_and_are_shown_nowhere(
    runner: asyncio.Runner, tools: Tools
) -> None:
    channel = Webhook("${HOOK}", "${PLAIN_SECRET}")
    missing = await failure_of(channel, tools)
    assert str(missing) == "the url refers to ${HOOK}, which the environment does not have"
    async with receiving() as receiver:
        tools.environment["HOOK"] = f"{receiver.url}/T1/s3cr3t-path?token=abcdef"  # type: ignore[index]
        receiver.statuses, receiver.text = [200, 500], "no /T1/s3cr3t-path?token=abcdef s3cret-of-the-hook"
        await channel.deliver(letter(), NOON, tools)
        assert is_authentic("s3cret-of-the-hook", receiver.received[0].headers, receiver.received[0].body, NOON)
        error = await failure_of(channel, tools)
    assert str(error) == f"{receiver.url} answered with HTTP 500: no *** ***"
    assert repr(channel) == "<Webhook ${HOOK}, signed>"
    assert repr(Webhook("https://user:pw@ops.example.com/s3cr3t?a=b")) == "<Webhook https://ops.example.com>"
    assert "s3cret" not in repr(Webhook("https://ops.example.com", "s3cret"))


async def test_headers_are_sent_along_and_masked(runner: asyncio.Runner, tools: Tools) -> None:
    async with receiving() as receiver:
        channel = Webhook(receiver.url, headers={"Authorization": "Bearer ${PLAIN_SECRET}"})
        receiver.statuses, receiver.text = [200, 403], "not s3cret-of-the-hook"
        await channel.deliver(letter(), NOON, tools)
        assert receiver.received[0].headers["authorization"] == "Bearer s3cret-of-the-hook"
        assert str(await failure_of(channel, tools)) == f"{receiver.url} answered with HTTP 403: not ***"
    missing = await failure_of(Webhook(receiver.url, headers={"X-Key": "${NOWHERE}"}), tools)
    assert str(missing) == "the header X-Key refers to ${NOWHERE}, which the environment does not have"
    tools.environment["BROKEN"] = "s3cret\r\nX: y"  # type: ignore[index]
    broken = await failure_of(Webhook(receiver.url, headers={"X-Key": "${BROKEN}"}), tools)
    assert broken.is_certain
    assert "the header X-Key cannot be sent" in str(broken)
    assert "s3cret" not in str(broken)


@pytest.mark.parametrize("headers", [{"Webhook-Id": "x"}, {"bad name": "x"}, {"X": "a\nb"}, {"X": 5}, ["X"]])
def test_bad_headers_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(BadInput, match="Webhook: "):
        Webhook("https://ops.example.com", headers=headers)


async def test_a_broken_secret_is_told_and_nothing_is_sent(runner: asyncio.Runner, tools: Tools) -> None:
    async with receiving() as receiver:
        error = await failure_of(Webhook(receiver.url, "whsec_not base64!"), tools)
        assert receiver.received == []
    assert error.is_certain
    assert "must be base64" in str(error)


@pytest.mark.parametrize("url", ["", "ftp://host/", "not a url", None, 5])
def test_bad_addresses_are_refused(url: str) -> None:
    with pytest.raises(BadInput, match="Webhook"):
        Webhook(url)


def test_the_body_is_bounded_and_counts_the_rest() -> None:
    many = letter(*(notice(f"s{number}", error="x" * 500) for number in range(5_000)))
    assert b'"more":4900' in body_of(many)
    assert len(body_of(many)) < MAX_NOTICES * 1_500


def test_a_letter_made_again_is_the_same() -> None:
    assert body_of(letter(notice("a"), notice("b"))) == body_of(letter(notice("a"), notice("b")))


@given(st.text())
def test_texts_of_remotes_are_one_line_each(text: str) -> None:
    messages = letter(notice(error=text, dependency=text or None))
    assert all(line.isprintable() for line in (messages.message.subject, *messages.message.lines))
