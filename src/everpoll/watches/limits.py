"""Limits of what is stored in a row.

Promises: a row stays bounded, whatever the functions of a watch return. A value that a decision needs and that is too
large is refused with its size; text for people is cut. A waiting run takes at most ROW_LIMIT characters in addition to
its operation and its handle; most take a few hundred.
"""

from typing import Any

import msgspec

from everpoll.engine.non_finite_numbers import non_finite_number
from everpoll.errors import BadInput, Hopeless
from everpoll.policy import flaw_of
from everpoll.policy.storable_texts import ERROR_LIMIT, storable

PAYLOAD_LIMIT = 1_000_000
"""Bytes of JSON: an operation, a handle, what Done carries, the evidence of a failure."""
MEMORY_LIMIT = 100_000
"""Bytes of JSON: `w.memory`, which is written with every look."""
NAMES_LIMIT = 100
"""How many facts of one kind (`confirm`, `due`), and how many counters a run may have; further counters share one."""
NAME_LIMIT = 100
WORD_LIMIT = 200
"""Characters of a status, of progress, of a fact that changed."""
WHY_LIMIT = 500
"""Characters of a decision in the log."""
REASON_LIMIT = 2_000
"""Characters of the reason of an outcome."""
CHANGED_LIMIT = 10
"""Facts that a decision in the log names."""
ROW_LIMIT = 300_000

_encoder = msgspec.json.Encoder(decimal_format="string")


def encoded(value: Any, what: str, limit: int = PAYLOAD_LIMIT) -> bytes:
    """Return the value as JSON; raise `BadInput` if JSON would lose a part of it, or if it exceeds `limit` bytes."""
    try:
        text = _encoder.encode(value)
        lost = non_finite_number(value, text)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"{what} must be JSON: {error}") from None
    if lost is not None:
        raise BadInput(f"{what} must be JSON, which does not know {lost}: write None, or a text")
    if len(text) > limit:
        raise BadInput(
            f"{what} takes {len(text):,} bytes, more than {limit:,}: store it elsewhere and return its address"
        )
    return text


def as_json(value: Any, what: str, limit: int = PAYLOAD_LIMIT) -> Any:
    """Return the value as it comes back from JSON; raise `BadInput` if it cannot be stored."""
    if value is None or value is True or value is False:
        return value
    return msgspec.json.decode(encoded(value, what, limit))


def short_text(value: object, limit: int = WORD_LIMIT) -> str:
    """Return the value as text for people that every database can hold, cut to `limit` characters."""
    try:
        text = value if isinstance(value, str) else str(value)
    except Exception:  # noqa: BLE001 - an object of the user or of a library
        text = f"({type(value).__name__}, whose str() failed)"
    text = text if text.isascii() and "\x00" not in text else storable(text[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def error_text(error: BaseException) -> str:
    """Return the type and the text of an error; for `Hopeless`, the text alone."""
    if type(error) is Hopeless:
        return short_text(error, ERROR_LIMIT)
    return f"{type(error).__name__}: {short_text(error, ERROR_LIMIT)}"


def fact_name(name: object, known: dict[str, Any], what: str) -> str:
    """Return the name of a fact; raise `BadInput` if it is too long or the run has too many."""
    if (flaw := flaw_of(name, NAME_LIMIT)) is not None:
        raise BadInput(f"{what}({short_text(name)!r}): it {flaw}: write a name of 1 to {NAME_LIMIT} characters")
    assert isinstance(name, str), "anything else has a flaw"
    if name not in known and len(known) >= NAMES_LIMIT:
        raise BadInput(f"{what}({name!r}): a run has at most {NAMES_LIMIT} of them; is the name made from a value?")
    return name
