"""Options: checks the arguments of `app.service` and makes a definition of them.

Promises: every bad value raises `BadInput`, which names the service and says what to write; no message repeats the
value of a header. It never resolves `${NAME}` references in headers, and never sends a request.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypedDict, TypeVar

import msgspec

from everpoll.errors import BadInput
from everpoll.monitors.alerting import Alert
from everpoll.monitors.conditions import parse_condition
from everpoll.monitors.definition import (
    DEFAULT_ALERT,
    DEFAULT_BACKOFF,
    DEFAULT_BREAKER,
    DEFAULT_EVERY_S,
    DEFAULT_TIMEOUT_S,
    Definition,
    fetch_parts,
    hashed,
)
from everpoll.monitors.mapping import compile_mapping
from everpoll.monitors.reading import check_format
from everpoll.monitors.targets import endpoint_of
from everpoll.policy import Backoff, Breaker, Duration, human, seconds, shown, whole_number

PER_HOST = "POLL_MAX_CONCURRENT_PER_HOST"
MAX_NAME_CHARS = 100
MAX_HEADERS = 50
MAX_HEADER_CHARS = 8_192
MAX_MAPPING_BYTES = 100_000
MAX_DEPENDS_ON = 1_000
MAX_CONDITIONS = 20
MAX_CONDITION_CHARS = 500
MAX_WITNESSES = 10
LONGEST_TIMEOUT_S = 600.0
LONGEST_BEAT_S = 366 * 86_400.0
"""The longest `every` of a heartbeat: waiting costs nothing, and even a yearly job may send heartbeats."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, init=False)
class Bounds:
    """The bounds for all services of an app: `Bounds("5s", "1h", per_host=5)`."""

    shortest_s: float
    longest_s: float
    per_host: int
    """How many looks at one host run at a time."""

    def __init__(self, shortest: Duration = "5s", longest: Duration = "1h", per_host: int = 5) -> None:
        put = object.__setattr__
        put(self, "shortest_s", seconds(shortest, name="shortest", positive=True))
        put(self, "longest_s", seconds(longest, name="longest", positive=True))
        accepted = "how many looks at one host may run at a time, at least 1"
        put(self, "per_host", whole_number(per_host, name="per_host", at_least=1, accepted=accepted))
        if self.longest_s < self.shortest_s:
            raise BadInput(f"longest={shown(longest)}: shorter than shortest={shown(shortest)}")


DEFAULT_BOUNDS = Bounds()


def bounds_from(environment: Mapping[str, str]) -> Bounds:
    """Return the default bounds, with `per_host` from the environment variables if it is set there."""
    text = environment.get(PER_HOST)
    if text is None:
        return DEFAULT_BOUNDS
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise BadInput(f"${PER_HOST}={text!r}: must be how many looks at one host may run at a time, 1 or more")
    return Bounds(DEFAULT_BOUNDS.shortest_s, DEFAULT_BOUNDS.longest_s, int(text))


class ServiceOptions(TypedDict, total=False):
    """What `app.service` takes in addition to the name and the target."""

    every: Duration
    """The time from the start of one look to the start of the next. Default: 30 seconds."""
    format: str
    """The format of the body; "auto" recognizes all formats."""
    mapping: dict[str, Any] | None
    """Where names and statuses are in a body of your own shape."""
    depends_on: Iterable[str]
    """The names of services and dependencies that this service needs."""
    timeout: Duration
    """How long one look may take; for a heartbeat, how late it may be. Default: 10 seconds."""
    headers: Mapping[str, str] | None
    """`"Bearer ${TOKEN}"` is read from the environment when the request is sent."""
    breaker: Breaker | None
    backoff: Backoff | None
    alert: Alert | None
    conditions: Iterable[str]
    fresh: bool
    """Open a new connection for each look."""
    witness: str | Iterable[str]
    """Addresses that a worker asks if this service does not answer: if they do not answer either, the fault is ours."""


def define(name: Any, target: Any, options: ServiceOptions, bounds: Bounds = DEFAULT_BOUNDS) -> Definition:
    """Return the definition of one service; raise `BadInput` for options that are not valid."""
    name = _name(name)
    where = f"service {name!r}"
    if unknown := sorted(options.keys() - ServiceOptions.__annotations__.keys()):
        known = ", ".join(sorted(ServiceOptions.__annotations__))
        raise BadInput(f"{where}: there is no option {unknown[0]!r}; there are {known}")
    try:
        endpoint = endpoint_of(target)
        headers = _headers(options.get("headers"))
        mapping = _mapping(options.get("mapping"))
        target = "beat:" + target[5:] if endpoint.is_heartbeat else target
        return Definition(
            name=name,
            target=target,
            fetch=hashed(fetch_parts(target, headers)),
            every_s=_every_s(options.get("every", DEFAULT_EVERY_S), bounds, endpoint.is_heartbeat),
            format=_format(options.get("format", "auto"), mapping),
            mapping=mapping,
            depends_on=_depends_on(options.get("depends_on", ()), name),
            timeout_s=_timeout_s(options.get("timeout", DEFAULT_TIMEOUT_S), endpoint.is_heartbeat),
            headers=headers,
            breaker=_instance(Breaker, "breaker", options.get("breaker", DEFAULT_BREAKER), 'Breaker(10, "5m")'),
            backoff=_instance(Backoff, "backoff", options.get("backoff", DEFAULT_BACKOFF), 'Backoff("1s", cap="5m")'),
            alert=_instance(Alert, "alert", options.get("alert"), 'Alert(after=2, to=["ops"])') or DEFAULT_ALERT,
            conditions=_conditions(options.get("conditions", ())),
            fresh=_flag("fresh", options.get("fresh", False)),
            witness=_witness(options.get("witness", ())),
        )
    except BadInput as error:
        raise type(error)(f"{where}: {error}") from None


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_NAME_CHARS or not value.isprintable():
        raise BadInput(f"service {shown(value)}: a name must have 1 to {MAX_NAME_CHARS} printable characters")
    return value


def _every_s(value: Duration, bounds: Bounds, is_heartbeat: bool) -> float:
    every_s = seconds(value, name="every", positive=True)
    longest_s = max(bounds.longest_s, LONGEST_BEAT_S) if is_heartbeat else bounds.longest_s
    if not bounds.shortest_s <= every_s <= longest_s:
        raise BadInput(
            f"every={shown(value)}: must be from {human(bounds.shortest_s)} to {human(longest_s)}; "
            "app.services.configure(shortest=, longest=) changes these bounds"
        )
    return every_s


def _timeout_s(value: Duration, is_heartbeat: bool) -> float:
    timeout_s = seconds(value, name="timeout", positive=True)
    longest_s = LONGEST_BEAT_S if is_heartbeat else LONGEST_TIMEOUT_S
    if timeout_s > longest_s:
        raise BadInput(f'timeout={shown(value)}: must be at most {human(longest_s)}; write "10s"')
    return timeout_s


def _headers(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or len(value) > MAX_HEADERS:
        raise BadInput(f'headers: must be at most {MAX_HEADERS} names with values; write {{"X-Api-Key": "${{KEY}}"}}')
    for name, text in value.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise BadInput(f"headers: {shown(name)} is not a valid name of a header; write letters, digits and -")
        # The value may be a secret, so no message repeats it.
        if not isinstance(text, str) or len(text) > MAX_HEADER_CHARS or not _is_sendable(text):
            raise BadInput(f"headers: the value of {name} must be text of one line, in latin-1 characters")
        if "${" in _REFERENCE.sub("", text):
            raise BadInput(f"headers: the value of {name} has a broken reference; write ${{NAME}}")
    return dict(value)


def _is_sendable(text: str) -> bool:
    return all(char == "\t" or " " <= char <= "~" or "\x80" <= char <= "\xff" for char in text)


def _mapping(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise BadInput(f'mapping={shown(value)}: must be a dict; write {{"root": "", "fields": {{…}}}}')
    try:
        text = msgspec.json.encode(value)
        kept: dict[str, Any] = msgspec.json.decode(text)
    except (TypeError, ValueError, RecursionError):
        raise BadInput(f"mapping={shown(value)}: must be JSON") from None
    if len(text) > MAX_MAPPING_BYTES:
        raise BadInput(f"mapping of {len(text):,} bytes: must have at most {MAX_MAPPING_BYTES:,}")
    return kept


def _depends_on(value: Any, name: str) -> tuple[str, ...]:
    names = _texts("depends_on", value, MAX_DEPENDS_ON, MAX_NAME_CHARS, '["database"]')
    if name in names:
        raise BadInput(f"depends_on={shown(value)}: a service must not depend on itself")
    return names


def _conditions(value: Any) -> tuple[str, ...]:
    texts = _texts("conditions", value, MAX_CONDITIONS, MAX_CONDITION_CHARS, '["status == 200"]')
    for text in texts:
        parse_condition(text)
    return texts


def _format(name: Any, mapping: Any) -> str:
    check_format(name, None if mapping is None else compile_mapping(mapping))
    return str(name)


def _witness(value: Any) -> tuple[str, ...]:
    addresses = (value,) if isinstance(value, str) else value
    kept = _texts("witness", addresses, MAX_WITNESSES, MAX_HEADER_CHARS, '["https://example.com"]')
    for address in kept:
        try:
            is_heartbeat = endpoint_of(address).is_heartbeat
        except BadInput as error:
            raise BadInput(f"witness: {str(error).removeprefix('target=')}") from None
        if is_heartbeat:
            raise BadInput("witness: a heartbeat cannot be asked; write an address")
    return kept


def _texts(option: str, value: Any, most: int, most_chars: int, like: str) -> tuple[str, ...]:
    texts = None if isinstance(value, str) or not isinstance(value, Iterable) else tuple(islice(value, most + 1))
    if texts is None or not all(
        isinstance(one, str) and 1 <= len(one) <= most_chars and one.isprintable() for one in texts
    ):
        raise BadInput(f"{option}: must be texts of 1 to {most_chars} printable characters; write {like}")
    if len(texts) > most:
        raise BadInput(f"{option}: must be at most {most:,}, and there are more")
    return tuple(dict.fromkeys(texts))


def _text(option: str, value: Any, most_chars: int, like: str) -> str:
    if not _is_text(value, most_chars):
        raise BadInput(f"{option}={shown(value)}: must be text; write {like}")
    return str(value)


def _is_text(value: Any, most_chars: int) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= most_chars and value.isprintable()


def _flag(option: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadInput(f"{option}={shown(value)}: must be True or False")
    return value


def _instance(kind: type[T], option: str, value: Any, like: str) -> T | None:
    if value is not None and not isinstance(value, kind):
        raise BadInput(f"{option}={shown(value)}: write {like}")
    return value
