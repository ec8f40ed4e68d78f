"""proactive-deps: a list of `{name, healthy, health: {state, code, latency, skipped}, …}`, as Depsera polls it.

`healthy` decides; state 1 or "WARNING" makes a healthy dependency degraded; `code` is ignored. A dependency that the
service did not check (`skipped`) is up, whatever its other fields say. Optional fields of a wrong type are ignored.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from everpoll.monitors.bounds import latency_ms, name, optional_text, quoted
from everpoll.monitors.gathering import Gathering, Unreadable
from everpoll.monitors.report import Dependency, Status

NAME = "proactive-deps"
_NO_HEALTH: dict[str, Any] = {}
_ABSENT = Raw()


class _Health(Struct, gc=False):
    state: Raw = _ABSENT
    skipped: Raw = _ABSENT
    latency: float | UnsetType | None = UNSET


class Facts(Struct, gc=False, rename="camel"):
    """All fields of one item that `read` uses, undecoded; `facts_of` removes the latency."""

    name: Raw = _ABSENT
    healthy: Raw = _ABSENT
    health: _Health | UnsetType = UNSET
    skipped: Raw = _ABSENT
    state: Raw = _ABSENT
    latency_ms: float | None = None
    type: Raw = _ABSENT
    impact: Raw = _ABSENT
    description: Raw = _ABSENT
    contact: Raw = _ABSENT
    check_details: Raw = _ABSENT
    error: Raw = _ABSENT
    error_message: Raw = _ABSENT


_decode_facts = msgspec.json.Decoder(list[Facts]).decode


def facts_of(data: bytes) -> tuple[list[Facts], list[float | None]] | None:
    """Return the facts of all items without latencies, and the latencies; None if the body has another shape."""
    try:
        facts = _decode_facts(data)
    except ValueError:
        return None
    latencies = []
    for one in facts:
        latency, one.latency_ms, health = one.latency_ms, None, one.health
        if health is not UNSET and health.latency is not UNSET:
            latency, health.latency = health.latency, None
        latencies.append(latency_ms(latency))
    return facts, latencies


def recognizes(body: list[Any]) -> bool:
    """Tell whether the list is empty, or one of its first items has a name and something about health."""
    return not body or any(
        type(item) is dict and "name" in item and ("healthy" in item or "health" in item) for item in body[:100]
    )


def read(body: Any, into: Gathering) -> Status:
    """Read every dependency of the list."""
    if not isinstance(body, list):
        raise Unreadable("the body is not a list of dependencies")
    for index, item in enumerate(body):
        if not into.more():
            break
        dependency = _read_item(index, item, into)
        if dependency is not None:
            into.add(dependency)
    return into.from_parts()


def _read_item(index: int, item: Any, into: Gathering) -> Dependency | None:
    if type(item) is not dict:
        into.warn(f"item {index}: not an object")
        return None
    label = name(item.get("name"))
    if not label:
        into.warn(f"item {index}: has no name")
        return None
    health = item.get("health")
    if type(health) is not dict:
        health = _NO_HEALTH
    is_skipped = health.get("skipped") is True or item.get("skipped") is True
    status = Status.UP if is_skipped else _verdict(item.get("healthy"), health.get("state", item.get("state")))
    if status is None:
        into.warn(f"dependency {quoted(label)}: healthy is {quoted(item.get('healthy'))}, not true or false")
        return None
    details = into.json_object(label, "checkDetails", item.get("checkDetails"))
    error = item.get("error")
    return Dependency(
        name=label,
        status=status,
        skipped=is_skipped,
        latency_ms=latency_ms(health.get("latency", item.get("latencyMs"))),
        type=optional_text(item.get("type")) or _type_in(details) or "other",
        impact=optional_text(item.get("impact")),
        description=optional_text(item.get("description")),
        contact=into.json_object(label, "contact", item.get("contact")),
        check_details=details,
        error=None if error is None else into.tree(label, "error", error),
        error_message=optional_text(item.get("errorMessage")),
    )


def _verdict(healthy: object, state: object) -> Status | None:
    if healthy is True:
        is_warning = state == "WARNING" or (state == 1 and state is not True)
        return Status.DEGRADED if is_warning else Status.UP
    return Status.DOWN if healthy is False else None


def _type_in(details: dict[str, Any] | None) -> str | None:
    return None if details is None else optional_text(details.get("type"))
