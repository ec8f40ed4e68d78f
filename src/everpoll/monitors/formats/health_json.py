"""health+json: the IETF draft: pass / warn / fail, and `checks{"component:measurement": […]}`.

Each key is one dependency with that name; of several nodes, the worst counts. A check may also be one object or one
word. A missing status means unknown.
"""

from typing import Any

from everpoll.monitors.bounds import latency_ms, name, optional_text, quoted
from everpoll.monitors.formats.failure import failure_of
from everpoll.monitors.gathering import Gathering, Unreadable
from everpoll.monitors.report import Dependency, Status, worse

NAME = "health+json"
MAX_NODES = 1_000
"""How many nodes of one check are read."""
WORDS = ("pass", "warn", "fail")
_MILLISECONDS_IN = {
    "ns": 1e-6,
    "us": 1e-3,
    "µs": 1e-3,
    "ms": 1.0,
    "s": 1e3,
    "nanoseconds": 1e-6,
    "microseconds": 1e-3,
    "milliseconds": 1.0,
    "seconds": 1e3,
}
_DETAILS = ("componentId", "observedValue", "observedUnit", "affectedEndpoints")


def recognizes(body: dict[str, Any]) -> bool:
    """Tell whether the body has a status, and checks by name."""
    return type(body.get("status")) is str and type(body.get("checks")) is dict


def read(body: Any, into: Gathering) -> Status | None:
    """Read every check, and the service's own word."""
    if not isinstance(body, dict):
        raise Unreadable("the body is not an object with a status")
    checks = body.get("checks")
    if type(checks) is not dict:
        # Drafts before the fourth one call it `details`.
        checks = body.get("details")
    for key, nodes in checks.items() if type(checks) is dict else ():
        if not into.more():
            break
        label = name(key)
        if not label:
            into.warn("a check has no name")
            continue
        into.add(_read_check(label, nodes, into))
    if body.get("status") is None:
        into.warn("the body has no status")
        return Status.UNKNOWN
    return into.own_word(body["status"])


def _read_check(label: str, nodes: Any, into: Gathering) -> Dependency:
    if type(nodes) is not list:
        nodes = [nodes]
    elif len(nodes) > MAX_NODES:
        into.warn(f"dependency {quoted(label)}: more than {MAX_NODES:,} nodes; the further ones are left out")
        nodes = nodes[:MAX_NODES]
    worst, status = None, None
    for node in nodes:
        one = into.word_of_part(label, node.get("status") if type(node) is dict else node)
        if status is None or worse(status, one) is not status:
            worst, status = node, one
    if worst is None or status is None:
        return Dependency(name=label, status=into.word_of_part(label, None))
    if type(worst) is not dict:
        return Dependency(name=label, status=status)
    error, error_message = None, None
    if status is not Status.UP:
        error, error_message = failure_of(label, (worst.get("output"), worst.get("error"), worst.get("message")), into)
    details = {key: worst[key] for key in _DETAILS if key in worst}
    return Dependency(
        name=label,
        status=status,
        latency_ms=_longest(label, nodes),
        type=optional_text(worst.get("componentType")) or "other",
        description=optional_text(worst.get("description")),
        check_details=into.json_object(label, "check", details) or None,
        error=error,
        error_message=error_message,
    )


def _longest(label: str, nodes: list[Any]) -> float | None:
    if not label.endswith(":responseTime"):
        return None
    times = [_response_time(node) for node in nodes if type(node) is dict]
    return max((time for time in times if time is not None), default=None)


def _response_time(node: dict[str, Any]) -> float | None:
    unit = node.get("observedUnit")
    unit_ms = _MILLISECONDS_IN.get(unit) if type(unit) is str else None
    return None if unit_ms is None else latency_ms(node.get("observedValue"), unit_ms)
