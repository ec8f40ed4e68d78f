"""Numbers that JSON does not know: NaN and the infinities, which the encoder silently turns into null.

Promises: costs nothing where the text has no null in it.
"""

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

import msgspec


def non_finite_number(value: Any, encoded: bytes) -> float | None:
    """Find a NaN or an infinity, however deep, in the value that was encoded as this JSON; None: there is none."""
    return next(_lost(msgspec.to_builtins(value, enc_hook=_opened)), None) if b"null" in encoded else None


def _lost(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        return iter(() if math.isfinite(value) else (value,))
    if isinstance(value, dict):
        return chain.from_iterable(map(_lost, value.values()))
    if isinstance(value, list | tuple):
        return chain.from_iterable(map(_lost, value))
    return iter(())


def _opened(value: Any) -> Any:
    """Return what a model of pydantic holds; other types hold no number that was encoded."""
    return value.model_dump() if hasattr(type(value), "model_dump") else None
