"""Explanations: why a task is where it is, and where to find what says it."""

import msgspec

from everpoll.engine.why import Why
from everpoll.http.stored_secrets import without_secrets


def without_secrets_in(why: Why) -> Why:
    """Return an explanation without secrets that an error repeats."""
    said = msgspec.to_builtins(why)
    return msgspec.convert({name: without_secrets(value) for name, value in said.items()}, Why)


WHY = {
    "verdict": "It failed after 3 attempts.",
    "evidence": ["2026-01-02 03:04:09 failed by web-1 (HTTPError: 503 Service Unavailable)"],
    "advice": "retry it when the cause is gone",
}
