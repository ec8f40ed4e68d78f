"""health-go: hellofresh/health-go: OK / Partially Available / Unavailable, and `failures{name: message}`.

It lists failures only: a dependency that disappears from the list is up again, and has not vanished.
"""

from typing import Any

from everpoll.monitors.bounds import name, optional_text
from everpoll.monitors.gathering import Gathering, Unreadable
from everpoll.monitors.report import Dependency, Status

NAME = "health-go"
WORDS = ("Partially Available", "Unavailable")
"""The words that only this format uses."""


def recognizes(body: dict[str, Any]) -> bool:
    """Tell whether the body has one of the three words, and something else that health-go writes."""
    status = body.get("status")
    if status != "OK" and not (type(status) is str and status in WORDS):
        return False
    return any(type(body.get(member)) is dict for member in ("failures", "system", "component"))


def read(body: Any, into: Gathering) -> Status | None:
    """Read every failure, and the service's own word."""
    if not isinstance(body, dict) or not isinstance(body.get("status"), str):
        raise Unreadable("the body is not an object with a status")
    into.lists_failures_only = True
    failures = body.get("failures")
    for key, message in failures.items() if type(failures) is dict else ():
        if not into.more():
            break
        label = name(key)
        if not label:
            into.warn("a failure has no name")
            continue
        error = None if message is None or isinstance(message, str) else into.tree(label, "failure", message)
        into.add(Dependency(name=label, status=Status.DOWN, error=error, error_message=optional_text(message)))
    return into.own_word(body["status"])
