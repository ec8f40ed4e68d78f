"""Slack and its likes: one text, in which nothing that a remote wrote is a link, a mention or a sign."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everpoll.monitors.alerts import posting
from everpoll.monitors.alerts.channel import Tools, Undelivered
from everpoll.monitors.alerts.webhook import MAX_SLACK_CHARS, Slack, slack_text

from .notices import NOON, letter, notice
from .receiver import receiving


async def test_the_text_is_escaped_and_markup_is_off(runner: asyncio.Runner, tools: Tools) -> None:
    async with receiving() as receiver:
        hostile = notice(error="<!channel> & <https://evil|here>\n*bold* @here [x](http://evil)")
        await Slack(f"{receiver.url}/services/T/B/s3cret").deliver(letter(hostile), NOON, tools)
    [got] = receiver.received
    assert got.json["mrkdwn"] is False
    assert got.json["unfurl_links"] is False
    assert got.json["text"] == (
        "billing is down\n\nbilling has been down for 2m: &lt;!channel&gt; &amp; &lt;https://evil|here&gt; *bold* "
        "@\u200bhere [x]\u200b(http://evil)"
    )


@given(st.text())
def test_no_sign_of_slack_survives(text: str) -> None:
    messages = slack_text(letter(notice(error=text))).replace("&amp;", "").replace("&lt;", "").replace("&gt;", "")
    assert not set(messages) & set("<>&")
    assert "](" not in messages
    assert all(one.startswith("\u200b") for one in messages.split("@")[1:])


def test_the_text_is_bounded() -> None:
    many = [notice(f"s{number}", error="<" * 500) for number in range(3_000)]
    assert len(slack_text(letter(*many))) <= 5 * MAX_SLACK_CHARS


async def test_a_letter_that_may_have_arrived_is_not_repeated_and_the_path_is_a_secret(
    runner: asyncio.Runner, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posting, "TIMEOUT_S", 0.3)
    channel = Slack("${HOOK}/services/T/B/s3cret")
    assert not channel.drops_repeats
    async with receiving() as receiver:
        tools.environment["HOOK"] = receiver.url  # type: ignore[index]
        receiver.is_silent = True
        with pytest.raises(Undelivered) as caught:
            await channel.deliver(letter(), NOON, tools)
    assert not caught.value.is_certain
    assert "s3cret" not in f"{caught.value}{channel!r}"
    assert repr(Slack("https://hooks.example.com/services/T/B/s3cret")) == "<Slack https://hooks.example.com>"
