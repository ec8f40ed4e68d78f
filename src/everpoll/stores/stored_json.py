"""Stored JSON: encodes values as the JSON texts that stores keep."""

from typing import Any

import msgspec

_json = msgspec.json.Encoder(enc_hook=str, decimal_format="string")


def encode(value: Any) -> str:
    """Return the value as JSON, the only format that is stored. A value that JSON lacks becomes its text."""
    return _json.encode(value).decode()
