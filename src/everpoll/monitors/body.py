"""Body: decodes the bytes of an answer to text or JSON, within bounds.

Promises: work and memory are bounded, whatever the bytes are. A body of more than 8 MiB is not read. JSON with more
than 100,000 objects and lists, or 300,000 values, is not decoded: 8 MiB of `{"":0}` would take 230 MB. A body that
cannot be decoded raises `Unreadable` with the reason, never another error. Byte order marks, UTF-16, UTF-32 and the
charset of the content type are understood; bytes that are not valid in their charset are replaced. JSON that is not
quite valid (NaN, Infinity, a lone surrogate, a control character in a text) is read, too, up to 1 MiB. If two members
have the same key, the last one counts.
"""

import codecs
import json
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from everpoll.monitors.gathering import Unreadable

MAX_BODY_BYTES = 8 * 1024 * 1024
"""The longest body that is read, in bytes."""
MAX_NESTING = 100
"""How deep objects and lists may be nested."""
MAX_CONTAINERS = 100_000
"""Objects and lists in one body."""
MAX_VALUES = 300_000
"""Values in one body, counted by their commas."""

# A second decoder is slower and takes the body as text, so only bodies of this size get it.
_MAX_LENIENT_BYTES = 1024 * 1024
# Below this size no body can reach the bounds on containers and values.
_SMALL_BYTES = MAX_CONTAINERS
_LONGEST_INTEGER_DIGITS = 400
# Without a position and without the decoder's own text: a warning must be the same at each look and in each release.
_NOT_JSON = "the body is not valid JSON"
_CONTAINERS = (dict, list)
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
_MAX_CONTENT_TYPE_CHARS = 200
# Charsets that are in use and decode in linear time; Python knows others, such as "idna", that do not.
_CHARSETS = {
    *("iso-8859-1", "latin-1", "latin1", "iso-8859-2", "iso-8859-5", "iso-8859-7", "iso-8859-9", "iso-8859-15"),
    *("windows-1250", "windows-1251", "windows-1252", "windows-1253", "windows-1254", "windows-1257", "koi8-r"),
    *("shift_jis", "euc-jp", "iso-2022-jp", "gb2312", "gbk", "gb18030", "big5", "euc-kr"),
}


class MediaType(msgspec.Struct, frozen=True):
    """What the content type of an answer says."""

    is_json: bool = False
    is_health_json: bool = False
    is_spring: bool = False
    charset: str | None = None
    """Another charset than UTF-8; UTF-16 and UTF-32 are recognized by their bytes."""


def media_type(content_type: str | None) -> MediaType:
    """Read a Content-Type header; an invalid one gives the defaults."""
    return _media_type(content_type[:_MAX_CONTENT_TYPE_CHARS]) if isinstance(content_type, str) else _NOTHING_SAID


def as_bytes(body: object) -> bytes:
    """Return the body as bytes; raise `Unreadable` if it is too long."""
    if isinstance(body, str):
        _check_length(len(body))
        body = body.encode("utf-8", "backslashreplace")
    elif isinstance(body, bytearray | memoryview):
        _check_length(body.nbytes if isinstance(body, memoryview) else len(body))
        body = bytes(body)
    elif not isinstance(body, bytes):
        return b""
    _check_length(len(body))
    return body


def as_utf8(data: bytes, media: MediaType, warn: Callable[[str], None]) -> bytes:
    """Return the body in UTF-8, without byte order mark and leading white space."""
    if data.startswith(codecs.BOM_UTF8):
        return data[len(codecs.BOM_UTF8) :].lstrip()
    # UTF-16 and UTF-32 begin with a byte order mark, or with JSON's first character among NUL bytes.
    if data.startswith(_WIDE_MARKS) or (b"\0" in data[:4] and data[:4].strip(b"\0")[:1] in {b"{", b"["}):
        return _recoded(data, json.detect_encoding(data), warn).lstrip()
    if media.charset and not data.isascii():
        return _recoded(data, media.charset, warn).lstrip()
    return data.lstrip()


def as_text(data: bytes, warn: Callable[[str], None]) -> str:
    """Return UTF-8 as text; invalid bytes are replaced, with a warning."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        warn("the body is not valid UTF-8; the invalid bytes are replaced")
        return data.decode("utf-8", "replace")


def as_json(data: bytes, warn: Callable[[str], None]) -> Any:
    """Decode JSON; raise `Unreadable` if it is not JSON, or beyond the bounds."""
    if len(data) > _SMALL_BYTES:
        _check_counts(data)
    try:
        value = msgspec.json.decode(data)
    except RecursionError:
        raise Unreadable(f"the JSON is nested deeper than {MAX_NESTING} levels") from None
    except ValueError:
        value = _leniently(data, warn)
    if data.count(b"[") + data.count(b"{") > MAX_NESTING:
        _check_nesting(value)
    return value


@lru_cache(maxsize=256)
def _media_type(content_type: str) -> MediaType:
    kind, _, parameters = content_type.lower().partition(";")
    kind = kind.strip()
    _, _, rest = parameters.partition("charset=")
    charset = rest.partition(";")[0].strip().strip("\"'")
    return MediaType(
        is_json=kind.endswith(("/json", "+json")),
        is_health_json=kind == "application/health+json",
        is_spring=kind.startswith("application/vnd.spring-boot.actuator"),
        charset=charset if charset in _CHARSETS else None,
    )


_NOTHING_SAID = MediaType()


def _check_length(length: int) -> None:
    if length > MAX_BODY_BYTES:
        raise Unreadable(f"the body is longer than {MAX_BODY_BYTES:,} bytes")


def _check_counts(data: bytes) -> None:
    if data.count(b"{") + data.count(b"[") > MAX_CONTAINERS:
        raise Unreadable(f"the JSON has more than {MAX_CONTAINERS:,} objects and lists")
    if data.count(b",") > MAX_VALUES:
        raise Unreadable(f"the JSON has more than {MAX_VALUES:,} values")


def _check_nesting(value: Any) -> None:
    level = [value] if type(value) in _CONTAINERS else []
    for _ in range(MAX_NESTING):
        if not level:
            return
        level = [
            member
            for container in level
            for member in (container.values() if type(container) is dict else container)
            if type(member) in _CONTAINERS
        ]
    if level:
        raise Unreadable(f"the JSON is nested deeper than {MAX_NESTING} levels")


def _recoded(data: bytes, encoding: str, warn: Callable[[str], None]) -> bytes:
    recoded = data.decode(encoding, "replace")
    if "\ufffd" in recoded:
        warn(f"the body is not valid {encoding}; the invalid bytes are replaced")
    return recoded.removeprefix("\ufeff").encode("utf-8", "replace")


def _leniently(data: bytes, warn: Callable[[str], None]) -> Any:
    """Decode JSON that the strict decoder refuses, although some JSON writers produce it."""
    if not data:
        raise Unreadable("the body is empty")
    if len(data) > _MAX_LENIENT_BYTES:
        raise Unreadable(_NOT_JSON)
    try:
        value = _LENIENT.decode(data.decode("utf-8", "replace"))
    except RecursionError:
        raise Unreadable(f"the JSON is nested deeper than {MAX_NESTING} levels") from None
    except ValueError:
        raise Unreadable(_NOT_JSON) from None
    warn(f"{_NOT_JSON}; it is read as far as that is possible")
    return value


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= _LONGEST_INTEGER_DIGITS else "a very large number"


def _finite(digits: str) -> float | str:
    value = float(digits)
    return value if math.isfinite(value) else digits[:_LONGEST_INTEGER_DIGITS]


# It never returns an infinite number or NaN: those become texts, which are neither a latency nor a status.
_LENIENT = json.JSONDecoder(parse_int=_integer, parse_float=_finite, parse_constant=str, strict=False)
