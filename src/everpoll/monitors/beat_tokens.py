"""Beat tokens: what a service with the target "beat:" calls everpoll by.

Promises: every such service has a token from the moment its row is made. Registering it again, by any process and also
without the token, keeps the token of the row. A token that the user wrote wins.
"""

import secrets

from msgspec.structs import replace

from everpoll.monitors.definition import Definition, fetch_parts, hashed

WITHOUT_TOKEN = "beat:"  # noqa: S105 - it is none
TOKEN_BYTES = 24


def with_token(definition: Definition, before: Definition | None = None) -> Definition:
    """Return the definition with the token of the row that is there, or with a new one where it needs one."""
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
