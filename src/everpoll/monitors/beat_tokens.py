"""Beat tokens: the secret in the address that a service with the target "beat:" calls.

Promises: every such service has a token as soon as its row exists. Registering it again, by any process, keeps the
token of the row, unless the user wrote another one.
"""

import secrets

from msgspec.structs import replace

from everpoll.monitors.definition import Definition, fetch_parts, hashed

WITHOUT_TOKEN = "beat:"  # noqa: S105 - not a secret
TOKEN_BYTES = 24


def with_token(definition: Definition, before: Definition | None = None) -> Definition:
    """Return the definition with the token of the existing row, or with a new token if it needs one."""
    if definition.target != WITHOUT_TOKEN:
        return definition
    if before is not None and beat_token(before) is not None:
        target = before.target
    else:
        target = f"{WITHOUT_TOKEN}{secrets.token_urlsafe(TOKEN_BYTES)}"
    return replace(definition, target=target, fetch=hashed(fetch_parts(target, definition.headers)))


def beat_token(definition: Definition) -> str | None:
    """Return the token of a heartbeat service; None for other services, and for a row of an older release."""
    return definition.target[len(WITHOUT_TOKEN) :] or None if definition.is_heartbeat else None
