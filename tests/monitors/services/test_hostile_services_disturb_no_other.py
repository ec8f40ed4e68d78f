"""Whatever a service answers, it is told in words, costs little memory, and others are looked at on time."""

import asyncio
import json
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from http_room.loopback import Loopback, Talk, answer, say, say_made
from http_room.test_hostile_endpoints import MIB, OK, bomb, drip, endless, moved

PROGRAM = Path(__file__).with_name("hostile_services.py")
COST_MB = 128
TIMEOUT_S, SHORT_TIMEOUT_S = 60.0, 1.0
GOOD_EVERY_S = 0.5
LATE_S = 30.0
"""How late a look at a good service may be, on a machine that has much other work: less than one timeout."""


def said(body: bytes) -> Talk:
    return said_made(lambda: body)


def said_made(make: Callable[[], bytes]) -> Talk:
    return say_made(lambda: answer(200, make(), {"Content-Type": "application/json"}))


class Case(NamedTuple):
    talk: Talk
    status: str
    words: str
    """A pattern in the error, or in the warnings."""


DEEP = b'{"a":' * 10_000 + b"1" + b"}" * 10_000


def many() -> bytes:
    items = (b'{"name":"d%d","healthy":true,"health":{"latency":3}}' % one for one in range(140_000))
    return b"[" + b",".join(items) + b"]"


CASES: Mapping[str, Case] = {
    "endless body": Case(endless(OK + b"\r\n", MIB), "down", "more than 8 MiB"),
    "gzip bomb": Case(say_made(lambda: answer(200, bomb(), {"Content-Encoding": "gzip"})), "down", "more than 8 MiB"),
    "redirect to metadata": Case(moved("http://169.254.169.254/latest/"), "down", "must not lead there|metadata"),
    "redirect to a private address": Case(moved("http://10.0.0.1/admin"), "down", "must not lead there"),
    "redirect loop": Case(moved("/"), "down", "redirect loop"),
    "slow drip": Case(
        drip(OK + b"Content-Length: 99999\r\n\r\n", b"x"), "down", "did not (finish its )?answer within 1s"
    ),
    "100 MB of JSON": Case(said_made(lambda: b"[" + b'{"name":"db"},' * 7_500_000 + b"1]"), "down", "more than 8 MiB"),
    "8 MB of dependencies": Case(said_made(many), "up", "more than 100,000 objects"),
    "nested deeply": Case(said(DEEP), "up", "nested deeper than 100 levels"),
    "invalid UTF-8": Case(said(b'[{"name":"\xff\xfe","healthy":true}]'), "up", "not valid JSON"),
    "NaN": Case(said(b'[{"name":"db","healthy":true,"health":{"latency":NaN}}]'), "up", "not valid JSON"),
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads its memory from /proc")
async def test_hostile_services_are_told_in_words_and_disturb_no_other() -> None:
    async with AsyncExitStack() as stack:
        hostile = {}
        for name, case in CASES.items():
            hostile[name] = (await stack.enter_async_context(Loopback(case.talk))).url + "/"
        remote = await stack.enter_async_context(Loopback(say(answer(200, b"ok"))))
        good = {f"good {number}": f"{remote.url}/{number}" for number in range(5)}
        # All but one say something wrong before their time is over, however slow this machine is.
        timeouts_s = {name: SHORT_TIMEOUT_S if name == "slow drip" else TIMEOUT_S for name in CASES}
        asked = {"hostile": hostile, "good": good, "timeouts_s": timeouts_s, "good_every_s": GOOD_EVERY_S}
        found = await _looked_at(asked)
    got = found["hostile"]
    wrong = {name: got[name] for name, case in CASES.items() if not _is_right(case, got[name])}
    assert wrong == {}
    assert found["cost_mb"] < COST_MB
    assert found["statuses"] == ["up"]
    late = {
        name: max(later - earlier for later, earlier in pairwise(times)) - GOOD_EVERY_S
        for name, times in found["good"].items()
    }
    assert max(late.values()) < LATE_S, late


async def _looked_at(asked: Mapping[str, Any]) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        str(PROGRAM),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate(json.dumps(asked).encode())
    assert errors == b"", errors.decode()
    found: dict[str, Any] = json.loads(output)
    return found


def _is_right(case: Case, got: Mapping[str, Any]) -> bool:
    words = "; ".join([got["error"] or "", *got["warnings"]])
    return got["status"] == case.status and bool(re.search(case.words, words))
