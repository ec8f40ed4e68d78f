"""Whatever an endpoint does, a look costs at most its timeout and a bounded amount of memory, and is told in words."""

import asyncio
import functools
import json
import re
import struct
import sys
import zlib
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from http_room.loopback import LIMIT_S, Asked, Loopback, Talk, answer, say, say_and_close, say_made, silence

PEAK_MB = 128
TIMEOUT_S = 0.3
"""Of looks that can only time out; others have LIMIT_S, so that a slow machine changes nothing."""
TRIES = 10
OK = b"HTTP/1.1 200 OK\r\n"
MIB = b"x" * 2**20


def endless(head: bytes, part: bytes) -> Talk:
    async def talk(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)

    return talk


def drip(head: bytes, part: bytes) -> Talk:
    async def talk(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.01)

    return talk


@functools.cache
def bomb() -> bytes:
    """A gibibyte of zeros, packed into a mebibyte: one packed mebibyte, repeated, as each begins anew."""
    packing = zlib.compressobj(9, wbits=-15)
    packed = packing.compress(bytes(2**20)) + packing.flush(zlib.Z_FULL_FLUSH)
    checksum = functools.reduce(lambda sum_, _: zlib.crc32(bytes(2**20), sum_), range(1024), 0)
    head, end = b"\x1f\x8b\x08" + bytes(7), zlib.compressobj(wbits=-15).flush()
    return head + packed * 1024 + end + struct.pack("<II", checksum, 2**30)


async def onwards(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(answer(302, b"", {"Location": f"{asked.path}x"}))


def moved(location: str) -> Talk:
    return say(answer(302, b"", {"Location": location}))


def chunk(part: bytes) -> bytes:
    return f"{len(part):x}\r\n".encode() + part + b"\r\n"


class Case(NamedTuple):
    talk: Talk
    kinds: str
    words: str

    @property
    def timeout_s(self) -> float:
        return TIMEOUT_S if "timed_out" in self.kinds else LIMIT_S


CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
CASES: Mapping[str, Case] = {
    "endless body": Case(endless(OK + b"\r\n", MIB), "too_large", "more than 8 MiB"),
    "endless chunks": Case(endless(CHUNKED, chunk(MIB)), "too_large", "more than 8 MiB"),
    "endless tiny chunks": Case(endless(CHUNKED, chunk(b"x") * 10_000), "too_large timed_out", "more|did not finish"),
    "one endless chunk": Case(endless(CHUNKED + b"7fffffff\r\n", MIB), "too_large", "more than 8 MiB"),
    "100 MB": Case(say_made(lambda: answer(200, MIB * 100)), "too_large", "more than 8 MiB"),
    "100 MB announced": Case(
        say(OK + b"Content-Length: 104857600\r\n\r\n"), "too_large timed_out", "more than|did not"
    ),
    "gzip bomb": Case(
        say_made(lambda: answer(200, bomb(), {"Content-Encoding": "gzip"})), "too_large", "more than 8 MiB"
    ),
    "gzip bomb in chunks": Case(
        say_made(lambda: CHUNKED.replace(b"\r\n", b"\r\nContent-Encoding: gzip\r\n", 1) + chunk(bomb()) + chunk(b"")),
        "too_large",
        "more than 8 MiB",
    ),
    "gzip bomb in an error": Case(
        say_made(lambda: answer(500, bomb(), {"Content-Encoding": "gzip"})), "answer", "500 with 8388608"
    ),
    "endless error": Case(endless(b"HTTP/1.1 503 Busy\r\n\r\n", MIB), "answer", "503 with 8388608 bytes"),
    "endless redirect body": Case(
        endless(b"HTTP/1.1 302 F\r\nLocation: //x@\r\n\r\n", MIB), "redirect", "redirects to"
    ),
    "endless gzip of nothing": Case(
        endless(OK + b"Content-Encoding: deflate\r\n\r\n" + zlib.compress(b"")[:2], b"\0\0\0\xff\xff" * 10_000),
        "too_large",
        "more than 8 MiB",
    ),
    "endless headers": Case(endless(OK, b"A: b\r\n" * 1000), "protocol", "headers that|not valid HTTP"),
    "many headers": Case(say(OK + b"A: b\r\n" * 9000 + b"\r\n"), "protocol", "headers that|not valid HTTP"),
    "an endless header": Case(endless(OK + b"A: ", MIB), "protocol", "headers that|not valid HTTP"),
    "an endless status": Case(endless(b"HTTP/1.1 200 ", MIB), "protocol", "headers that|not valid HTTP"),
    "endless hints": Case(
        endless(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 100), "timed_out protocol too_large", "."
    ),
    "endless trailers": Case(
        endless(CHUNKED + b"0\r\n", b"A: b\r\n" * 1000), "timed_out protocol too_large refused", "."
    ),
    "slow drip of a body": Case(
        drip(OK + b"Content-Length: 100000\r\n\r\n", b"x"), "timed_out", "did not finish its answer"
    ),
    "slow drip of chunks": Case(drip(CHUNKED, chunk(b"x")), "timed_out", "did not finish its answer within 300ms"),
    "slow drip of headers": Case(drip(OK, b"A: b\r\n"), "timed_out", "did not answer within 300ms"),
    "slow drip of a status": Case(drip(b"HTTP/1.1 200 ", b"x"), "timed_out", "did not answer within 300ms"),
    "never answers": Case(silence, "timed_out", "did not answer within 300ms"),
    "body never ends": Case(
        say(OK + b"Content-Length: 10\r\n\r\n12345"), "timed_out", "did not finish .*: 5 bytes came"
    ),
    "redirect loop": Case(moved("/redirect%20loop"), "redirect", "redirect loop"),
    "endless redirects": Case(onwards, "redirect", "more than 10 redirects"),
    "redirect to metadata": Case(
        moved("http://169.254.169.254/latest/meta-data/"), "address", "must not lead there|metadata"
    ),
    "redirect to a private address": Case(moved("http://10.0.0.1/admin"), "address", "must not lead there"),
    "redirect to a private name": Case(moved("http://localhost:22/"), "address", "must not lead there"),
    "redirect to a file": Case(moved("file:///etc/passwd"), "redirect", "not an http or https URL"),
    "closes at once": Case(say_and_close(), "refused", "closed the connection without an answer"),
    "closes in the status": Case(
        say_and_close(b"HTTP/1.1 2"), "refused protocol", "closed the connection|not valid HTTP"
    ),
    "closes in the headers": Case(
        say_and_close(OK + b"A: b\r\n"), "refused protocol", "closed the connection|not valid"
    ),
    "closes in the body": Case(
        say_and_close(OK + b"Content-Length: 50\r\n\r\nshort"),
        "refused",
        "before its answer was complete: 5 bytes came",
    ),
    "closes in a chunk": Case(say_and_close(CHUNKED + b"50\r\nshort"), "refused", "before its answer was complete"),
    "closes before the last chunk": Case(
        say_and_close(CHUNKED + chunk(b"x")), "refused", "before its answer was complete"
    ),
    "more than it announced": Case(
        say(OK + b"Content-Length: 2\r\n\r\nxyz" + MIB), "answer protocol", "200 with 2 bytes|valid HTTP"
    ),
    "a length that is negative": Case(say_and_close(OK + b"Content-Length: -5\r\n\r\n"), "protocol", "not valid HTTP"),
    "a length that is not a number": Case(
        say_and_close(OK + b"Content-Length: x\r\n\r\n"), "protocol", "not valid HTTP"
    ),
    "two lengths": Case(
        say_and_close(OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxy"), "protocol", "not valid HTTP"
    ),
    "a length beyond all": Case(
        say(OK + b"Content-Length: 99999999999999999999999\r\n\r\n"), "protocol too_large", "not valid HTTP|more than"
    ),
    "a chunk that is not a number": Case(say_and_close(CHUNKED + b"zz\r\n"), "protocol refused", "valid HTTP|complete"),
    "a header without a colon": Case(say_and_close(OK + b"nonsense\r\n\r\n"), "protocol", "not valid HTTP"),
    "a header with a NUL": Case(say_and_close(OK + b"A: \0\r\n\r\n"), "protocol", "not valid HTTP"),
    "another protocol": Case(say_and_close(b"SSH-2.0-OpenSSH_9.2\r\n"), "protocol", "not valid HTTP"),
    "a status that is not a number": Case(say_and_close(b"HTTP/1.1 abc\r\n\r\n"), "protocol", "not valid HTTP"),
    "HTTP 9": Case(say_and_close(b"HTTP/9.9 200 OK\r\n\r\n"), "protocol answer", "."),
    "binary garbage": Case(say_and_close(bytes(range(256)) * 100), "protocol", "not valid HTTP"),
    "switches protocols": Case(
        say_and_close(b"HTTP/1.1 101 Switching\r\nUpgrade: ws\r\nConnection: upgrade\r\n\r\nabc"),
        "protocol answer refused",
        ".",
    ),
}


@pytest.mark.parametrize("options", [{"lean": True}, {"lean": False}], ids=["lean", "full"])
async def test_a_hostile_endpoint_is_bounded_and_told_in_words(options: dict[str, bool]) -> None:
    async with AsyncExitStack() as stack:
        looks = {}
        for name, case in CASES.items():
            remote = await stack.enter_async_context(Loopback(case.talk))
            looks[name] = (f"{remote.url}/{name.replace(' ', '%20')}?token=hunter2", case.timeout_s)
        found = await _looked_at(looks, options)
        for _ in range(TRIES):
            # An answer that has not begun within the short timeout, on a busy machine, is looked at again.
            slow = [name for name, case in CASES.items() if _is_too_slow(case, found[name])]
            found |= await _looked_at({name: looks[name] for name in slow}, options) if slow else {}
    wrong = {name: found[name] for name, case in CASES.items() if not _is_right(case, found[name])}
    assert wrong == {}


async def _looked_at(looks: Mapping[str, tuple[str, float]], options: dict[str, bool]) -> dict[str, Any]:
    program = Path(__file__).with_name("hostile_looks.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        str(program),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, errors = await process.communicate(json.dumps({"looks": looks, "client": options}).encode())
    assert errors == b"", errors.decode()
    found: dict[str, Any] = json.loads(said)
    return found


def _is_too_slow(case: Case, got: Mapping[str, Any]) -> bool:
    return got["kind"] == "timed_out" and "timed_out" in case.kinds and not re.search(case.words, got["words"])


def _is_right(case: Case, got: Mapping[str, Any]) -> bool:
    is_said = got["kind"] in case.kinds.split() and re.search(case.words, got["words"])
    is_bounded = got["took_s"] < case.timeout_s + LIMIT_S and got["peak_mb"] < PEAK_MB
    return bool(is_said) and is_bounded and "hunter2" not in got["words"]
