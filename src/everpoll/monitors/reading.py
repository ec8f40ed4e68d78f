"""Read: makes a report of one HTTP answer, with the status of the service and of its dependencies.

Promises: pure; the same answer gives the same report. Work and memory are bounded, whatever the body is. No body raises
an error: warnings describe what cannot be read. Only a bad format or a bad mapping raises `BadInput`, which is a
ValueError.

The status is the worse one of the HTTP status (400 and above: down) and the status in the body. If the format or the
mapping that the user named cannot read the body, the status is unknown; `auto` then reads it as `plain`: 2xx is up.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from everpoll.errors import BadInput
from everpoll.monitors import body as bodies
from everpoll.monitors.detect import format_of_json, format_of_text
from everpoll.monitors.formats import (
    aspnet,
    details,
    django,
    health_go,
    health_json,
    kubernetes,
    mapped,
    microprofile,
    plain,
    proactive_deps,
    prometheus,
    spring,
    status_word,
)
from everpoll.monitors.gathering import Gathering, Unreadable
from everpoll.monitors.mapping import CompiledMapping, SchemaMapping, compile_mapping
from everpoll.monitors.report import Report, Status, worse
from everpoll.policy import shown

AUTO = "auto"
_READ_JSON: dict[str, Callable[[Any, Gathering], Status | None]] = {
    known.NAME: known.read
    for known in (
        *(proactive_deps, spring, health_json, aspnet, microprofile, health_go, details, django, status_word),
    )
}
_READ_TEXT: dict[str, Callable[[Any, Gathering], Status | None]] = {
    known.NAME: known.read for known in (kubernetes, prometheus)
}
FORMATS = (AUTO, *_READ_JSON, *_READ_TEXT, mapped.NAME, plain.NAME)
"""The names that `format=` accepts."""


def read(
    body: bytes | str,
    content_type: str | None,
    status: int,
    format: str = AUTO,  # noqa: A002 - the word of the API
    mapping: Mapping[str, Any] | CompiledMapping | None = None,
) -> Report:
    """Return the report of an answer; `mapping` may be compiled once with `compile_mapping`."""
    compiled = None if mapping is None else compile_mapping(mapping)
    check_format(format, compiled)
    into = Gathering()
    if format == plain.NAME:
        return into.report(_by_http(status, into), plain.NAME)
    said: Status | None
    try:
        named, said = _read_body(body, content_type, format, compiled, into)
    except Unreadable as reason:
        into.warn(str(reason))
        if format == AUTO and compiled is None:
            named, said = plain.NAME, None
        else:
            named, said = mapped.NAME if format == AUTO else format, Status.UNKNOWN
    return into.report(_by_http(status, into) if said is None else _worse_than_http(said, status), named)


def checksum(body: bytes | str, content_type: str | None = None, status: int | None = None) -> str:
    """Return a checksum of 16 hex digits: an answer with the same checksum need not be read again.

    The content type and the HTTP status affect the report, too: pass them, unless you compare them yourself.
    """
    data = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    digest = hashlib.blake2b(data, digest_size=8)
    if content_type is not None or status is not None:
        digest.update(f"\0{content_type}\0{status}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def check_format(name: object, compiled: CompiledMapping | None) -> None:
    """Raise `BadInput` for a format that is not known, or that does not fit the mapping."""
    if not isinstance(name, str) or name not in FORMATS:
        raise BadInput(f"format={shown(name)}: not a known format; write one of {', '.join(FORMATS)}")
    if compiled is None:
        if name == mapped.NAME:
            raise BadInput('format="mapping" needs a mapping; give mapping={"root": …, "fields": {…}}')
        return
    fitting = (AUTO, mapped.NAME) if isinstance(compiled, SchemaMapping) else (AUTO, mapped.NAME, prometheus.NAME)
    if name not in fitting:
        raise BadInput(f'format="{name}" takes no such mapping; write {" or ".join(fitting)}, or leave one of them out')


def _read_body(
    body: bytes | str, content_type: str | None, name: str, compiled: CompiledMapping | None, into: Gathering
) -> tuple[str, Status | None]:
    """Return the format of the body, and the service's status in it."""
    media = bodies.media_type(content_type)
    data = bodies.as_utf8(bodies.as_bytes(body), media, into.warn)
    if compiled is not None:
        return mapped.NAME if name == AUTO else name, _read_mapped(data, compiled, into)
    if name == AUTO:
        return _read_recognised(data, media, into)
    return name, _read_named(data, name, into)


def _read_mapped(data: bytes, compiled: CompiledMapping, into: Gathering) -> Status:
    if isinstance(compiled, SchemaMapping):
        return mapped.read(bodies.as_json(data, into.warn), into, compiled)
    return prometheus.read(bodies.as_text(data, into.warn), into, compiled)


def _read_named(data: bytes, name: str, into: Gathering) -> Status | None:
    if not data:
        raise Unreadable("the body is empty")
    if name in _READ_TEXT or (name == aspnet.NAME and not data.startswith(b"{")):
        return (_READ_TEXT.get(name) or aspnet.read)(bodies.as_text(data, into.warn), into)
    return _READ_JSON[name](bodies.as_json(data, into.warn), into)


def _read_recognised(data: bytes, media: bodies.MediaType, into: Gathering) -> tuple[str, Status | None]:
    """Return the format that recognizes the body, and the service's status in it."""
    in_text = format_of_text(data) if not data.startswith(b"{") else None
    if in_text is not None:
        return in_text, _read_named(data, in_text, into)
    if data.startswith((b"{", b"[")):
        value = bodies.as_json(data, into.warn)
        name = format_of_json(value, media)
        return name, None if name == plain.NAME else _READ_JSON[name](value, into)
    if media.is_json and data:
        # A word or a number is valid JSON without a status; a body that is not JSON raises.
        bodies.as_json(data, into.warn)
    return plain.NAME, None


def _by_http(status: int, into: Gathering) -> Status:
    if status >= 400:
        return Status.DOWN
    if 200 <= status < 300:
        return Status.UP
    into.warn(f"HTTP {status} is neither a success nor a failure")
    return Status.UNKNOWN


def _worse_than_http(said: Status, status: int) -> Status:
    return worse(said, Status.DOWN) if status >= 400 else said
