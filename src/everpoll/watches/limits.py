"""How much may go into a row, and how it is made fit for one.

Promises: a row stays bounded, whatever the functions of a watch do, so that 100,000 runs are as cheap as one. What
decides something and does not fit is refused with its size; what is only told to people is cut. A run that waits
takes at most ROW_LIMIT characters beside its operation and its handle; most take a few hundred.
"""

from typing import Any

import msgspec

from everpoll.engine.calls import ERROR_LIMIT, storable
from everpoll.engine.lost_numbers import lost_number
from everpoll.errors import BadInput, Hopeless
from everpoll.policy import flaw_of

PAYLOAD_LIMIT = 1_000_000
"""Bytes of JSON: an operation, a handle, what Done carries, the evidence of a failure."""
MEMORY_LIMIT = 100_000
"""Bytes of JSON: `w.memory`, which is written with every look."""
NAMES_LIMIT = 100
"""Facts of one kind (`confirm`, `due`), and counters, that a run may have; the counters beyond share one."""
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
    """The value as JSON, nothing lost; `BadInput` if that cannot be, or takes more bytes than that."""
    try:
        text = _encoder.encode(value)
        lost = lost_number(value, text)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"{what} must be JSON: {error}") from None
    if lost is not None:
        raise BadInput(f"{what} must be JSON, which does not know {lost}: write None, or a text")
    if len(text) > limit:
        raise BadInput(
            f"{what} takes {len(text):,} bytes, more than {limit:,}: store it elsewhere and keep where it is"
        )
    return text


def as_json(value: Any, what: str, limit: int = PAYLOAD_LIMIT) -> Any:
    """The value as JSON would have it; `BadInput` if it cannot."""
    if value is None or value is True or value is False:
        return value
    return msgspec.json.decode(encoded(value, what, limit))


def told(value: object, limit: int = WORD_LIMIT) -> str:
    """As text for people, such as every database can hold, and not too long."""
    try:
        text = value if isinstance(value, str) else str(value)
    except Exception:  # noqa: BLE001 - somebody else's object
        text = f"({type(value).__name__}, whose text cannot be read)"
    text = text if text.isascii() and "\x00" not in text else storable(text[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def told_error(error: BaseException) -> str:
    """The type and the text of an error; of our own that say it all, the text."""
    if type(error) is Hopeless:
        return told(error, ERROR_LIMIT)
    return f"{type(error).__name__}: {told(error, ERROR_LIMIT)}"


def named(name: object, known: dict[str, Any], what: str) -> str:
    """The name of a fact, which decides something: there may be so many, so long."""
    if (flaw := flaw_of(name, NAME_LIMIT)) is not None:
        raise BadInput(f"{what}({told(name)!r}): it {flaw}: write a name of 1 to {NAME_LIMIT} characters")
    assert isinstance(name, str), "anything else has a flaw"
    if name not in known and len(known) >= NAMES_LIMIT:
        raise BadInput(f"{what}({name!r}): a run has at most {NAMES_LIMIT} of them; is the name made from a value?")
    return name
