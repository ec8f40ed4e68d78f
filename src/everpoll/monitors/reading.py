"""Read: what one HTTP answer says about a service and its dependencies.

Promises: pure, and the same report for the same answer. Work and memory are bounded whatever the body is, and no body
raises: what cannot be read is in the warnings, in words. Only a bad format or a bad mapping raises `BadInput`, which is
a ValueError.

The status is the worse of what HTTP says (400 and above: down) and what the body says. A format or a mapping that the
user named and that cannot read the body makes it unknown; `auto` then reads it as `plain`: 2xx is up.
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
    """Return what an answer says; `mapping` may be compiled once with `compile_mapping`."""
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
    """Return 16 hex digits that stay the same while the answer does: an unchanged answer need not be read again.

    The content type and the HTTP status change a report too, so give them unless they are compared apart.
    """
    data = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    digest = hashlib.blake2b(data, digest_size=8)
    if content_type is not None or status is not None:
        digest.update(f"\0{content_type}\0{status}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def check_format(name: object, compiled: CompiledMapping | None) -> None:
    """Raise `BadInput` for a format that is not known, or that the mapping does not go with."""
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
    """Return the format that the body was read by, and what it says about the service."""
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
    """Return the format that recognises the body, and what it reads."""
    in_text = format_of_text(data) if not data.startswith(b"{") else None
    if in_text is not None:
        return in_text, _read_named(data, in_text, into)
    if data.startswith((b"{", b"[")):
        value = bodies.as_json(data, into.warn)
        name = format_of_json(value, media)
        return name, None if name == plain.NAME else _READ_JSON[name](value, into)
    if media.is_json and data:
        # A word or a number is JSON too, and says nothing; anything else gets its warning.
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
