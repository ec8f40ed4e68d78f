"""microprofile: MicroProfile Health (Quarkus, Open Liberty, Helidon): `status` and `checks[{name, status, data}]`."""

from typing import Any

from everpoll.monitors.bounds import name
from everpoll.monitors.formats.failure import failure_of
from everpoll.monitors.gathering import Gathering, Unreadable
from everpoll.monitors.report import Dependency, Status

NAME = "microprofile"


def recognizes(body: dict[str, Any]) -> bool:
    """Tell whether the body has a status and a list of checks; `outcome` is the status of version 1."""
    return type(body.get("checks")) is list and type(body.get("status", body.get("outcome"))) is str


def read(body: Any, into: Gathering) -> Status | None:
    """Read every check, and the service's own word."""
    if not isinstance(body, dict) or not isinstance(body.get("checks"), list):
        raise Unreadable("the body is not an object with a list of checks")
    for index, check in enumerate(body["checks"]):
        if not into.more():
            break
        label = name(check.get("name")) if type(check) is dict else ""
        if not label:
            into.warn(f"check {index}: " + ("has no name" if type(check) is dict else "not an object"))
            continue
        into.add(_read_check(label, check, into))
    return into.own_word(body.get("status", body.get("outcome")))


def _read_check(label: str, check: dict[str, Any], into: Gathering) -> Dependency:
    status = into.word_of_part(label, check.get("status", check.get("state")))
    data = check.get("data")
    if type(data) is not dict:
        data = {}
    error, error_message = None, None
    if status is not Status.UP:
        error, error_message = failure_of(label, (data.get("error"), data.get("message"), check.get("error")), into)
    return Dependency(
        name=label,
        status=status,
        check_details=into.json_object(label, "data", data) or None,
        error=error,
        error_message=error_message,
    )
