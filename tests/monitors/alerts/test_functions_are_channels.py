"""Any function that takes a Message is a channel, async or plain."""

import asyncio
import functools
import threading

import pytest

from everpoll.errors import BadInput
from everpoll.monitors.alerting import GROUP_S, Message
from everpoll.monitors.alerts import function_channel
from everpoll.monitors.alerts.channel import Tools, Undelivered
from everpoll.monitors.alerts.channels import Channels
from everpoll.monitors.alerts.function_channel import FunctionChannel
from everpoll.monitors.alerts.webhook import Slack

from .notices import NOON, letter


async def test_it_is_called_with_the_message(runner: asyncio.Runner, tools: Tools) -> None:
    got: list[tuple[Message, str]] = []

    async def in_loop(message: Message) -> None:
        got.append((message, threading.current_thread().name))

    def plain(message: Message) -> None:
        got.append((message, threading.current_thread().name))

    await FunctionChannel(in_loop).deliver(letter(), NOON, tools)
    await FunctionChannel(plain).deliver(letter(), NOON, tools)
    await FunctionChannel(functools.partial(in_loop)).deliver(letter(), NOON, tools)
    assert [one for one, _ in got] == [letter().message] * 3
    assert (got[0][0].id, got[0][0].subject) == ("00ff00ff00ff00ff", "billing is down")
    assert [name for _, name in got] == ["MainThread", "alerts-1", "MainThread"]


async def test_one_that_raises_delivered_nothing(runner: asyncio.Runner, tools: Tools) -> None:
    def broken(_: Message) -> None:
        raise LookupError("no\nsuch room")

    with pytest.raises(Undelivered, match="its function raised LookupError: no such room") as caught:
        await FunctionChannel(broken).deliver(letter(), NOON, tools)
    assert caught.value.is_certain


async def test_one_that_hangs_may_have_delivered(
    runner: asyncio.Runner, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function_channel, "TIMEOUT_S", 0.05)
    release = threading.Event()

    async def hangs(_: Message) -> None:
        await asyncio.Event().wait()

    for function in (hangs, lambda _: release.wait()):
        with pytest.raises(Undelivered) as caught:
            await FunctionChannel(function).deliver(letter(), NOON, tools)
        assert not caught.value.is_certain
    release.set()


def test_channels_are_registered_by_name() -> None:
    channels = Channels()
    channels.add("ops", Slack("https://hooks.example.com/x"))
    channels.add("log", print, group="5s")
    ops, log = channels.get("ops"), channels.get("log")
    assert ops is not None
    assert log is not None
    assert (ops.group_s, log.group_s) == (GROUP_S, 5.0)
    assert repr(log.channel) == "<FunctionChannel print>"
    assert channels.names == ["ops", "log"]
    assert channels.get("nowhere") is None


def test_bad_channels_are_refused() -> None:
    channels = Channels()
    with pytest.raises(BadInput, match="is not a channel; write Webhook"):
        channels.add("ops", "https://example.com")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="its name must be"):
        channels.add("", print)
    with pytest.raises(BadInput, match="channel 'ops': group"):
        channels.add("ops", print, group="soon")
    with pytest.raises(BadInput, match="must be at most 1h"):
        channels.add("ops", print, group="2h")
