"""Explanations of the state of a job, a run or a service, without secrets, and the routes that return them."""

from typing import Unpack

import msgspec

from everpoll.engine.why import Why
from everpoll.http.stored_secrets import without_secrets
from everpoll.server.route import Route
from everpoll.server.route_kinds import Named, detail

WHY = {
    "verdict": "It failed after 3 attempts.",
    "evidence": ["2026-01-02 03:04:09 failed by web-1 (HTTPError: 503 Service Unavailable)"],
    "advice": "retry it when the cause is gone",
}


def explanation(example: dict[str, str] | None = None, **named: Unpack[Named]) -> Route:
    """Return a route that explains one thing; `example` has the fields that differ from the explanation of a job."""
    return detail(answer=Why, example=WHY | (example or {}), **named)


def without_secrets_in(why: Why) -> Why:
    """Return an explanation with secrets in errors masked."""
    said = msgspec.to_builtins(why)
    return msgspec.convert({name: without_secrets(value) for name, value in said.items()}, Why)
