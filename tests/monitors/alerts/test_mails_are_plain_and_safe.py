"""E-mail: a real SMTP conversation; no header can be injected; what a refusal means; no password in clear."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everpoll.errors import BadInput
from everpoll.monitors.alerts import mail
from everpoll.monitors.alerts.channel import Tools, Undelivered
from everpoll.monitors.alerts.mail import Email
from everpoll.monitors.alerts.mail_message import address_of, mail_of, recipients_of

from .mail_server import MailServer, certificate_for, mail_server
from .notices import NOON, letter, notice


def to(server: MailServer, host: str = "127.0.0.1", **more: Any) -> Email:
    options = {"to": ["ops@example.com", "Dev <dev@example.com>"], "sender": "Everpoll <ev@example.com>", "tls": "none"}
    return Email(host, server.port, **{**options, **more})


async def failure_of(channel: Email, tools: Tools) -> Undelivered:
    with pytest.raises(Undelivered) as caught:
        await channel.deliver(letter(), NOON, tools)
    return caught.value


async def test_the_mail_is_plain_text_to_all_recipients(runner: asyncio.Runner, tools: Tools) -> None:
    async with mail_server() as server:
        await to(server).deliver(letter(notice(error=".\nnaïve ✂ line")), NOON, tools)
    assert [one.split(" ")[0] for one in server.said] == ["ehlo", "mail", "rcpt", "rcpt", "data", "quit"]
    assert server.said[1].startswith("mail FROM:<ev@example.com>")
    assert server.said[2:4] == ["rcpt TO:<ops@example.com>", "rcpt TO:<dev@example.com>"]
    got = server.mail
    assert got["Subject"] == "billing is down"
    assert got["To"] == "ops@example.com, Dev <dev@example.com>"
    assert got["From"] == "Everpoll <ev@example.com>"
    assert got["Message-ID"] == "<00ff00ff00ff00ff@example.com>"
    assert got["Auto-Submitted"] == "auto-generated"
    assert got.get_content_type() == "text/plain"
    assert got.get_content().splitlines() == ["billing is down", "", "billing has been down for 2m: . naïve ✂ line"]
    assert server.mails[0].isascii()


@given(st.text(), st.text(min_size=1))
def test_no_text_adds_a_header_or_a_part(error: str, name: str) -> None:
    sender, recipients = address_of("sender", "ev@example.com"), recipients_of("ops@example.com")
    hostile = letter(notice(error=error, dependency=f"db\r\nBcc: evil@example.com\r\n\r\n{name}"))
    made = mail_of(hostile, sender, recipients, NOON).as_bytes()
    head = made.split(b"\r\n\r\n", 1)[0]
    names = {line.split(b":")[0] for line in head.split(b"\r\n") if not line.startswith((b" ", b"\t"))}
    assert b"Bcc" not in names
    assert len(names) == 9
    assert made.isascii()


async def test_a_password_travels_encrypted(runner: asyncio.Runner, tools: Tools, tmp_path: Path) -> None:
    context, ca_file = certificate_for("localhost", tmp_path)
    for tls in ("starttls", "implicit"):
        async with mail_server(context, is_encrypted=tls == "implicit") as server:
            channel = to(server, "localhost", tls=tls, ca_file=ca_file, user="me", password="${MAIL_PASSWORD}")  # noqa: S106
            await channel.deliver(letter(), NOON, tools)
        said = [one for one in server.said if not one.lower().startswith(("ehlo", "starttls"))]
        assert said[0] == "\0me\0p4ssword-of-the-mail"
        assert len(server.mails) == 1
        assert "p4ssword" not in repr(channel)


async def test_a_server_that_no_authority_vouches_for_gets_nothing(
    runner: asyncio.Runner, tools: Tools, tmp_path: Path
) -> None:
    context, _ = certificate_for("localhost", tmp_path)
    async with mail_server(context) as server:
        error = await failure_of(to(server, "localhost", tls="starttls"), tools)
    assert error.is_certain
    assert "CERTIFICATE_VERIFY_FAILED" in str(error)
    assert [one.split(" ")[0] for one in server.said] == ["ehlo", "STARTTLS"]


async def test_a_server_without_starttls_gets_nothing(runner: asyncio.Runner, tools: Tools) -> None:
    async with mail_server() as server:
        server.replies["STARTTLS"] = "502 no such command"
        error = await failure_of(to(server, tls="starttls"), tools)
    assert error.is_certain
    assert str(error).endswith("it answered 502 no such command")


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        ("hello", "554 not you"),
        ("hello", None),
        ("MAIL FROM", "550 not from you"),
        ("RCPT TO", "550 unknown"),
        ("DATA", "451 later"),
        ("content", "554 looks like spam"),
    ],
)
async def test_a_refusal_delivered_nothing(
    runner: asyncio.Runner, tools: Tools, command: str, reply: str | None
) -> None:
    async with mail_server() as server:
        server.replies[command] = reply
        assert (await failure_of(to(server), tools)).is_certain


async def test_no_server_at_all_delivered_nothing(runner: asyncio.Runner, tools: Tools) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        error = await failure_of(to(MailServer(taken.getsockname()[1])), tools)
    assert error.is_certain
    assert "refused" in str(error)


async def test_one_recipient_that_is_refused_keeps_the_mail_from_no_other(
    runner: asyncio.Runner, tools: Tools, caplog: pytest.LogCaptureFixture
) -> None:
    async with mail_server() as server:
        server.replies["RCPT TO:<DEV@EXAMPLE.COM>"] = "550 unknown"
        await to(server).deliver(letter(), NOON, tools)
    assert len(server.mails) == 1
    assert [one.message for one in caplog.records] == [
        "127.0.0.1 refuses dev@example.com; the other recipients have the mail"
    ]


async def test_a_connection_that_ends_after_the_content_leaves_it_open(runner: asyncio.Runner, tools: Tools) -> None:
    async with mail_server() as server:
        server.replies["content"] = None
        error = await failure_of(to(server), tools)
    assert not error.is_certain
    assert len(server.mails) == 1


@pytest.mark.parametrize(("silent_after", "is_certain"), [("hello", True), ("RCPT TO", True), ("content", False)])
async def test_a_silent_server_costs_the_timeout_and_no_thread(
    runner: asyncio.Runner, tools: Tools, monkeypatch: pytest.MonkeyPatch, silent_after: str, is_certain: bool
) -> None:
    monkeypatch.setattr(mail, "TIMEOUT_S", 0.3)
    async with mail_server() as server:
        server.is_silent_after = silent_after
        error = await failure_of(to(server), tools)
        # The thread is free again, without waiting for its own timeout.
        await asyncio.get_running_loop().run_in_executor(tools.threads, tools.threads.shutdown, False)
    assert error.is_certain is is_certain
    assert str(error) == "127.0.0.1 took longer than 300ms"


@pytest.mark.parametrize(
    "options",
    [
        {"to": []},
        {"to": "no address"},
        {"to": ["a@example.com\r\nRCPT TO:<evil@example.com>"]},
        {"to": ["<a@b> evil"]},
        {"to": [f"a{number}@example.com" for number in range(51)]},
        {"to": 5},
        {"sender": "ev@exa mple.com"},
        {"sender": "Ev\nBcc: x <ev@example.com>"},
        {"port": 0},
        {"port": True},
        {"tls": "ssl"},
        {"user": "me"},
        {"user": "me", "password": ""},
        {"user": "me", "password": "${X}", "host": "smtp.example.com"},
        {"host": "two words"},
        {"host": None},
    ],
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    given_ones = {"host": "127.0.0.1", "to": "ops@example.com", "sender": "ev@example.com", "tls": "none", **options}
    with pytest.raises(BadInput, match="Email"):
        Email(**given_ones)
