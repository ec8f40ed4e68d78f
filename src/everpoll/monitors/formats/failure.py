"""Failure: finds the error of a part that is not up."""

from typing import Any

from everpoll.monitors.bounds import optional_text
from everpoll.monitors.gathering import Gathering


def failure_of(name: str, candidates: tuple[Any, ...], into: Gathering) -> tuple[Any, str | None]:
    """Return the error object and the error text of a dependency, from the first candidate that is not empty.

    A text is the error text. An object or a list is the error object, and its `message` is the error text.
    """
    for candidate in candidates:
        said = optional_text(candidate)
        if said is not None:
            return None, said
        if isinstance(candidate, dict | list) and candidate:
            message = candidate.get("message") if isinstance(candidate, dict) else None
            return into.tree(name, "error", candidate), optional_text(message)
    return None, None
