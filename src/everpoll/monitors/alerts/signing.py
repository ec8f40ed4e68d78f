"""Signing: headers that prove to the receiver of a webhook that the message is genuine, complete and recent.

Three headers, as the Standard Webhooks specification has them, so that its libraries verify them in any language:

    webhook-id          the id of the message: equal for every try of one message, so that a receiver can drop repeats
    webhook-timestamp   when this try was made, in whole seconds since the epoch
    webhook-signature   "v1," and the base64 of HMAC-SHA256(key, "{id}.{timestamp}.{body}")

The key is the secret itself; if the secret begins with "whsec_", the key is the rest of it, decoded from base64. Pure.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping

from everpoll.errors import BadInput

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
TOLERANCE_S = 300.0
"""How far the timestamp of an accepted message may be from the current time, in both directions."""
_PREFIX = "whsec_"


def signed_headers(secret: str, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers that prove the origin of a message."""
    return {
        ID: message_id,
        TIMESTAMP: str(timestamp),
        SIGNATURE: _signature(_key(secret), message_id, str(timestamp), body),
    }


def is_authentic(
    secret: str, headers: Mapping[str, str], body: bytes, now: float, tolerance_s: float = TOLERANCE_S
) -> bool:
    """Return True if a message was signed with this secret not long ago. Header names may be in any case."""
    found = {name.lower(): value for name, value in headers.items()}
    message_id, timestamp, signatures = (found.get(name, "") for name in (ID, TIMESTAMP, SIGNATURE))
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 15):
        return False
    if abs(now - int(timestamp)) > tolerance_s:
        return False
    expected = _signature(_key(secret), message_id, timestamp, body).encode()
    # A sender that changes its secret signs with both for a while.
    return any(hmac.compare_digest(expected, one.encode()) for one in signatures.split(" "))


def _signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def _key(secret: str) -> bytes:
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        raise BadInput(f'the secret of a webhook: what follows "{_PREFIX}" must be base64') from None
