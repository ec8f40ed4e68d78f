"""Errors for failed requests.

    refused, timed out, name or certificate unknown, 408, 429, 5xx, a server that       StoreUnavailable: later perhaps
      restarts, a transaction that must be repeated, an expired token, a 400 without a reason
    a table, column or function that is not there, or that the key may not use          Refused, and TableUnfit at open
    a value that the table cannot keep                                                  BadInput
    anything else                                                                       Refused, with the server's words

The server's own words are kept, a key never: `masked` is the last thing that happens to every message.
"""

from typing import Any

import msgspec

from everpoll.drivers.sqlstates import AWAY_CLASSES, AWAY_STATES, LOCKED
from everpoll.errors import BadInput, EverpollError, StoreUnavailable
from everpoll.http import Kind, NotAsked, NotReached

NO_ROW = "PGRST116"
NO_FUNCTION = "PGRST202"
# Decoding a token, anonymous access, its claims: PostgREST 13 tells an expired one as the last of these.
TOKEN_CODES = ("PGRST301", "PGRST302", "PGRST303")
# Of PostgREST itself: no connection, an internal error of it, no schema cache yet, no free connection in time.
AWAY_CODES = ("PGRST000", "PGRST001", "PGRST002", "PGRST003")
VALUE_CLASSES = ("22", "23")
AWAY_STATUSES = (408, 425, 429)
SAID_LIMIT = 500


class Refused(EverpollError):
    """PostgREST understood the request and does not do it; `code` is its own, or the SQLSTATE."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


REFUSED = (Refused, BadInput)
"""Such a request has changed nothing."""


def is_about_a_row(error: Exception) -> bool:
    """Return True if a smaller request may succeed: a trigger or a constraint refused a row."""
    return isinstance(error, BadInput) or (isinstance(error, Refused) and error.code.startswith("P0"))


class TokenRefused(StoreUnavailable):
    """The token has expired, or is not accepted: a fresh one may be."""


class TooLarge(StoreUnavailable):
    """The answer has more bytes than are read; a smaller batch fits."""


class Unreadable(StoreUnavailable):
    """The answer has a value that Python cannot read; what the request changed stays changed."""


def of_transport(error: NotReached | NotAsked, timeout_s: float) -> StoreUnavailable:
    """Return the error for a request without an answer."""
    kind = error.kind if isinstance(error, NotReached) else None
    if kind is Kind.TIMED_OUT:
        return StoreUnavailable(f"PostgREST did not answer within {timeout_s:g} s")
    if kind is Kind.TOO_LARGE:
        return TooLarge(str(error))
    return StoreUnavailable(f"cannot connect to PostgREST, or the connection broke: {error}")


def of_answer(status: int, body: bytes) -> EverpollError:
    """Return the error for an answer that reports one."""
    said = _said(body)
    code, message = str(said.get("code") or ""), str(said.get("message") or "no reason given")[:SAID_LIMIT]
    text = f"PostgREST answered {status}{f' {code}' if code else ''}: {message}"
    if details := said.get("details"):
        text += f" ({str(details)[:SAID_LIMIT]})"
    if 300 <= status < 400:
        return StoreUnavailable(f"PostgREST answered {status}, a redirect, which is not followed: write its address")
    if code in TOKEN_CODES or status == 401:
        return TokenRefused(f"the token has expired or is not accepted: {text}")
    # What PostgREST says where its own connection broke in the middle of a statement: perhaps it was committed.
    is_broken = status == 400 and not code and not said.get("message")
    if is_broken or _is_away(status, code):
        return StoreUnavailable(text)
    if code.startswith(VALUE_CLASSES) and len(code) == 5:
        return BadInput(f"the table cannot keep this: {text}")
    return Refused(text, code)


def _is_away(status: int, code: str) -> bool:
    is_state = len(code) == 5 and not code.startswith("PGRST")
    if code in AWAY_CODES or code in {*AWAY_STATES, LOCKED} or (is_state and code.startswith(AWAY_CLASSES)):
        return True
    # A 5xx with a SQLSTATE that is not among those is a statement that will fail again.
    return status in AWAY_STATUSES or (status >= 500 and not is_state)


def _said(body: bytes) -> dict[str, Any]:
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError):
        said = None
    return said if isinstance(said, dict) else {"message": body[:SAID_LIMIT].decode("utf-8", "replace").strip()}
